"""Serialised sensor messages, read where they lie.

rclpy copies an Image's pixels three times, in a millisecond, and a JointState goes through four modules, which is slow
just after pictures have driven them from the caches.

Plain CDR: four bytes of encapsulation, whose second is 1 for little endian, then the fields one after the other, each
aligned to its size. A string is its length with the final zero, and its characters; a sequence its length, and its
elements. A stamp is int32 seconds and uint32 nanoseconds. `image` and `joint_state` return None for anything else:
rclpy knows what is wrong.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_HEADER = 12  # bytes that hold encapsulation and stamp


def header_stamp_ns(serialized: bytes) -> int:
    """The stamp of a message that begins with a std_msgs/Header; 0 for one that is too short for any."""
    if len(serialized) < _HEADER:
        return 0
    seconds, nanoseconds = struct.unpack_from("<iI" if serialized[1] & 1 else ">iI", serialized, 4)
    return seconds * 1_000_000_000 + nanoseconds


def restamped(serialized: bytes, stamp_ns: int) -> bytes:
    """The same message with another stamp; one too short for a stamp as it is."""
    if len(serialized) < _HEADER:
        return serialized
    order = "<iI" if serialized[1] & 1 else ">iI"
    return serialized[:4] + struct.pack(order, stamp_ns // 10**9, stamp_ns % 10**9) + serialized[_HEADER:]


def same_but_for_stamp(one: bytes, other: bytes) -> bool:
    # The end tells nearly always, without a copy of the whole.
    end = slice(max(_HEADER, len(one) - 4096), None)
    return len(one) == len(other) and one[end] == other[end] and one[_HEADER:] == other[_HEADER:]


@dataclass(frozen=True)
class RawImage:
    """The fields that tell the pixels, as in sensor_msgs/Image. data: a view of the serialised message."""

    encoding: str
    height: int
    width: int
    step: int
    is_bigendian: int
    data: memoryview


class _NotPlain(Exception):
    pass


class _Fields:
    """What follows a message's header."""

    def __init__(self, serialized: bytes) -> None:
        if serialized[:2] not in (b"\0\0", b"\0\1"):
            raise _NotPlain
        self._order, self._body, self._at = "<" if serialized[1] else ">", memoryview(serialized)[4:], 8
        self.string()  # frame_id

    def numbers(self, kind: str, size: int, count: int = 1) -> tuple:
        """count of them, of `size` bytes, as struct names their kind."""
        at = -(-self._at // size) * size if count else self._at
        self._at = at + size * count
        if self._at > len(self._body):
            raise _NotPlain
        return struct.unpack_from(f"{self._order}{count}{kind}", self._body, at)

    def string(self) -> str:
        text, zero, rest = bytes(self.octets()).partition(b"\0")
        if rest or (text and not zero):
            raise _NotPlain
        return text.decode()

    def octets(self) -> memoryview:
        (count,) = self.numbers("I", 4)
        begin, self._at = self._at, self._at + count
        if self._at > len(self._body):
            raise _NotPlain
        return self._body[begin : self._at]


def image(serialized: bytes) -> RawImage | None:
    """A serialised sensor_msgs/Image, whose pixels may be fewer or more than its fields say."""
    try:
        fields = _Fields(serialized)
        height, width = fields.numbers("I", 4, 2)
        encoding = fields.string()
        (is_bigendian,) = fields.numbers("B", 1)
        (step,) = fields.numbers("I", 4)
        return RawImage(encoding, height, width, step, is_bigendian, fields.octets())
    except (_NotPlain, UnicodeDecodeError):
        return None


def joint_state(serialized: bytes) -> tuple[list[str], tuple[float, ...]] | None:
    """Names and positions of a serialised sensor_msgs/JointState, as many of each as it has: they need not pair."""
    try:
        fields = _Fields(serialized)
        (count,) = fields.numbers("I", 4)
        names = [fields.string() for _ in range(count)]
        positions, _, _ = (fields.numbers("d", 8, *fields.numbers("I", 4)) for _ in range(3))  # velocity, effort
        return names, positions
    except (_NotPlain, UnicodeDecodeError):
        return None
