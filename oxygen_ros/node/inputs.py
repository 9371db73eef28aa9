"""What the robot last sent, judged: pictures stay serialised until a frame wants them.

Receipt is on the steady clock, stamps are ROS time. A message counts as fresh only if both agree that it is new.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..embodiment.errors import InputError
from ..embodiment.joints import JointBuffer

# A driver may stamp the end of an exposure by a clock that is a little ahead of ours.
FUTURE_TOLERANCE = 0.1  # s


class NotReady(Exception):
    """No frame can be made now; `reasons` says of each topic why, one line each."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = tuple(reasons)


@dataclass(frozen=True)
class Now:
    """The same moment on both clocks, in nanoseconds."""

    steady_ns: int
    ros_ns: int


@dataclass(frozen=True)
class Picture:
    pixels: np.ndarray
    stamp_ns: int
    receipt: Now


@dataclass(frozen=True)
class Snapshot:
    """Everything one frame is made from. stamp_ns: of the newest picture, or of the joint state if that is newer."""

    images: Mapping[str, np.ndarray]
    state: np.ndarray
    stamp_ns: int


class CameraInput:
    """The newest picture of one camera topic.

    `receive` may run in any thread, `picture` in the frame's only.
    """

    def __init__(self, topic: str, decode: Callable[[bytes], np.ndarray], max_age: float) -> None:
        self.topic, self.max_age = topic, max_age
        self.received = self.refused = 0
        self.problem = ""
        self._decode = decode
        self.clear()

    def clear(self) -> None:
        """Forget all pictures, as on activation: no chunk may come from data of before."""
        self._newest: tuple[bytes, int, Now] | None = None
        self._tried: bytes | None = None
        self._good: Picture | None = None

    def receive(self, serialized: bytes, now: Now) -> None:
        self.received += 1
        stamp_ns = header_stamp_ns(serialized) or now.ros_ns
        newest = self._newest
        if newest is None or newest[1] != stamp_ns:  # the same stamp again is the same picture, sent again
            self._newest = (serialized, stamp_ns, now)

    def picture(self, now: Now) -> Picture:
        """The newest good picture. A broken one is refused once, with `problem` set, and the last good one ages on.

        Raises NotReady.
        """
        newest = self._newest
        if newest is None:
            raise NotReady([f"{self.topic}: no message yet"])
        serialized, stamp_ns, receipt = newest
        if serialized is not self._tried:
            self._tried = serialized
            try:
                self._good, self.problem = Picture(self._decode(serialized), stamp_ns, receipt), ""
            except InputError as error:
                self.refused += 1
                self.problem = f"{self.topic}: {error}"
        if self._good is None:
            raise NotReady([self.problem])
        late = _staleness(self.topic, self._good.stamp_ns, self._good.receipt, now, self.max_age)
        if late:
            raise NotReady([f"{late}; newer ones are refused: {self.problem}" if self.problem else late])
        return self._good

    def age(self, now: Now) -> float | None:
        """Seconds since the newest message arrived, None before the first."""
        newest = self._newest
        return None if newest is None else (now.steady_ns - newest[2].steady_ns) / 1e9


class JointInput:
    """The joint states of one robot, by name, whoever publishes which part of them."""

    def __init__(self, topic: str, names: Sequence[str], max_age: float) -> None:
        self.topic, self.max_age = topic, max_age
        self.received = self.refused = 0
        self.problem = ""
        self._buffer = JointBuffer(names)
        self._newest: Now | None = None

    def clear(self) -> None:
        self._buffer.clear()
        self._newest = None

    def receive(self, names: Sequence[str], positions: Sequence[float], stamp_ns: int, now: Now) -> None:
        """Raises InputError, and keeps nothing of the message, where it is not well formed."""
        self.received += 1
        try:
            self._buffer.update(names, positions, stamp_ns or now.ros_ns, now.steady_ns)
        except InputError as error:
            self.refused += 1
            self.problem = f"{self.topic}: {error}"
            raise InputError(f"{self.topic}: {error.thing}", error.found, error.expected, error.remedy) from None
        self.problem = ""
        self._newest = now

    def state(self, now: Now) -> tuple[np.ndarray, int]:
        """(positions in the robot's order, stamp of the oldest of them). Raises NotReady."""
        if self._newest is None:
            raise NotReady([self.problem or f"{self.topic}: no message yet"])
        try:
            values, stamp_ns = self._buffer.state()
        except InputError as error:
            raise NotReady([f"{self.topic}: {error}"]) from None
        receipt = Now(self._buffer.oldest_receipt_ns(), 0)
        late = _staleness(self.topic, stamp_ns, receipt, now, self.max_age)
        if late:
            raise NotReady([f"{late}; newer ones are refused: {self.problem}" if self.problem else late])
        return values, stamp_ns

    def age(self, now: Now) -> float | None:
        return None if self._newest is None else (now.steady_ns - self._newest.steady_ns) / 1e9


@dataclass
class Inputs:
    """All inputs of a robot."""

    joints: JointInput
    cameras: Mapping[str, CameraInput] = field(default_factory=dict)

    def __iter__(self):
        yield from self.cameras.values()
        yield self.joints

    def clear(self) -> None:
        for source in self:
            source.clear()

    def snapshot(self, now: Now) -> Snapshot:
        """What a frame that begins now is made from. Raises NotReady with a reason for each topic that lacks."""
        pictures, reasons = {}, []
        for name, camera in self.cameras.items():
            try:
                pictures[name] = camera.picture(now)
            except NotReady as error:
                reasons += error.reasons
        try:
            state, state_stamp_ns = self.joints.state(now)
        except NotReady as error:
            reasons += error.reasons
        if reasons:
            raise NotReady(reasons)
        stamp_ns = max([state_stamp_ns, *(picture.stamp_ns for picture in pictures.values())])
        return Snapshot({name: picture.pixels for name, picture in pictures.items()}, state, stamp_ns)


def header_stamp_ns(serialized: bytes) -> int:
    """The stamp of a serialised message that begins with a std_msgs/Header, without deserialising it.

    CDR: four bytes of encapsulation, whose second says little endian, then int32 seconds and uint32 nanoseconds.
    """
    if len(serialized) < 12:
        return 0
    seconds, nanoseconds = struct.unpack_from("<iI" if serialized[1] & 1 else ">iI", serialized, 4)
    return seconds * 1_000_000_000 + nanoseconds


def _staleness(topic: str, stamp_ns: int, receipt: Now, now: Now, limit: float) -> str:
    received = (now.steady_ns - receipt.steady_ns) / 1e9
    if received > limit:
        return f"{topic}: the last good message came {received:.2f} s ago, the limit is {limit:g} s"
    age = (now.ros_ns - stamp_ns) / 1e9
    if age > limit:
        return (f"{topic}: stamped {age:.2f} s before this node's clock though it has just come, the limit is {limit:g} s; "
                "synchronise the clocks, or set use_sim_time and play the bag with --clock")
    if age < -FUTURE_TOLERANCE:
        return f"{topic}: stamped {-age:.2f} s after this node's clock; synchronise the clocks, or set use_sim_time"
    return ""
