"""Serialised sensor messages, read where they lie.

rclpy copies an Image's pixels three times, in a millisecond, and a JointState goes through four modules, which is slow
just after pictures have driven them from the caches.

Plain CDR: four bytes of encapsulation, whose second is 1 for little endian, then the fields one after the other, each
aligned to its size. A string is its length with the final zero, and its characters; a sequence its length, and its
elements. The functions return None for anything else: rclpy knows what is wrong.
"""

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
        text = bytes(self.octets())[:-1]
        if 0 in text:
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
