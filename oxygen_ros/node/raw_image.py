"""A serialised sensor_msgs/Image, looked at where it lies: rclpy copies its pixels three times, in a millisecond."""

from __future__ import annotations

import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class RawImage:
    """The fields that tell the pixels, as in sensor_msgs/Image. data: a view of the serialised message."""

    encoding: str
    height: int
    width: int
    step: int
    is_bigendian: int
    data: memoryview


def raw_image(serialized: bytes) -> RawImage | None:
    """None of bytes that are no plain CDR of an Image; rclpy knows what is wrong with them.

    Plain CDR: four bytes of encapsulation, whose second is 1 for little endian, then the fields one after the other,
    each aligned to its size. A string is its length with the final zero, and its characters.
    """
    if serialized[:2] not in (b"\x00\x00", b"\x00\x01"):
        return None
    order = "<" if serialized[1] else ">"
    body = memoryview(serialized)[4:]
    try:
        (frame_id,) = struct.unpack_from(f"{order}8xI", body)
        at = _aligned(12 + frame_id)
        height, width, length = struct.unpack_from(f"{order}3I", body, at)
        encoding = bytes(body[at + 12 : at + 12 + length - 1]).decode("ascii")
        at += 12 + length
        is_bigendian = body[at]
        at = _aligned(at + 1)
        step, size = struct.unpack_from(f"{order}2I", body, at)
    except (struct.error, UnicodeDecodeError, IndexError):
        return None
    data = body[at + 8 : at + 8 + size]
    return RawImage(encoding, height, width, step, is_bigendian, data) if len(data) == size else None


def _aligned(at: int) -> int:
    return -(-at // 4) * 4
