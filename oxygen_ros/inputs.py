"""What the robot last sent, judged: pictures stay serialised until a frame wants them.

Receipt is on the steady clock, stamps are ROS time. A message counts as fresh only if both agree that it is new.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from .embodiment.errors import InputError
from .embodiment.joints import JointBuffer

# A driver may stamp the end of an exposure by a clock that is a little ahead of ours.
FUTURE_TOLERANCE = 0.1  # s


@dataclass(frozen=True)
class Reason:
    """Why a topic is of no use now, or of less: a line for the operator."""

    topic: str
    text: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.text}"


class NotReady(Exception):
    """No frame can be made now; `reasons` has one for each topic that lacks."""

    def __init__(self, reasons: Sequence[Reason]) -> None:
        super().__init__("; ".join(map(str, reasons)))
        self.reasons = tuple(reasons)


@dataclass(frozen=True)
class Now:
    """The same moment on both clocks, in nanoseconds."""

    steady_ns: int
    ros_ns: int


@dataclass(frozen=True)
class Arrival:
    """A message as it came, with the stamp that it counts by."""

    serialized: bytes
    stamp_ns: int
    receipt: Now


@dataclass(frozen=True)
class Picture:
    pixels: np.ndarray
    arrival: Arrival


@dataclass(frozen=True)
class Snapshot:
    """Everything one frame is made from.

    stamps: topic -> stamp of the message that is used; of joints that came in parts, of the oldest.
    """

    images: Mapping[str, np.ndarray]
    state: np.ndarray
    stamps: Mapping[str, int]

    @property
    def stamp_ns(self) -> int:
        """Of the newest picture, or of the joint state if that is newer."""
        return max(self.stamps.values())

    @property
    def oldest_ns(self) -> int:
        return min(self.stamps.values())


class Source:
    """One topic, and how it fares: counts, the newest `problem`, and whether its messages are `unstamped`."""

    def __init__(self, topic: str, max_age: float) -> None:
        self.topic, self.max_age = topic, max_age
        self.received = self.refused = 0
        self.problem: Reason | None = None
        self._unstamped: Reason | None = None
        self._heard: Now | None = None  # the last message, whatever it was worth

    def complaints(self) -> list[Reason]:
        """What is wrong with messages that came, though there may be others to make a frame from."""
        return [reason for reason in (self.problem, self._unstamped) if reason]

    def age(self, now: Now) -> float | None:
        """Seconds since the last message came, None before the first."""
        return None if self._heard is None else (now.steady_ns - self._heard.steady_ns) / 1e9

    def _hear(self, stamp_ns: int, now: Now) -> int:
        """Note that a message came; return the stamp that it counts by, which is its receipt where it has none."""
        self.received += 1
        self._heard = now
        self._unstamped = None if stamp_ns else Reason(
            self.topic, f"stamp is 0, {now.ros_ns / 1e9:.0f} s before this node's clock, so the time of receipt "
            "counts; let the driver stamp its messages")
        return stamp_ns or now.ros_ns

    def _refuse(self, text: str) -> None:
        self.refused += 1
        self.problem = Reason(self.topic, text)

    def _standstill(self) -> str:
        """What does not change although messages come."""
        return "their stamp has not changed"

    def _require_fresh(self, stamp_ns: int, receipt: Now, now: Now) -> None:
        """Raises NotReady where the last good message is too old by either clock, or from the future."""
        waited, age = (now.steady_ns - receipt.steady_ns) / 1e9, (now.ros_ns - stamp_ns) / 1e9
        behind = (receipt.ros_ns - stamp_ns) / 1e9
        if age < -FUTURE_TOLERANCE:
            text = f"stamped {-age:.2f} s after this node's clock; synchronise the clocks, or set use_sim_time"
        elif behind > self.max_age:
            text = (f"stamped {behind:.2f} s before this node's clock though it had just come, the limit is "
                    f"{self.max_age:g} s; synchronise the clocks, or set use_sim_time and play the bag with --clock")
        elif max(waited, age) <= self.max_age:
            return
        elif not self.problem and self._heard.steady_ns > receipt.steady_ns:
            text = f"messages come, but {self._standstill()} for {age:.2f} s, the limit is {self.max_age:g} s"
        else:
            text = f"the last good message came {waited:.2f} s ago, the limit is {self.max_age:g} s"
        if self.problem:
            text += f"; newer ones are refused: {self.problem.text}"
        raise NotReady([Reason(self.topic, text)])


class CameraInput(Source):
    """The newest picture of one camera topic.

    `receive` may run in any thread, `picture` in the frame's only.
    """

    def __init__(self, topic: str, decode: Callable[[bytes], np.ndarray], max_age: float) -> None:
        super().__init__(topic, max_age)
        self._decode = decode
        self.clear()

    def clear(self) -> None:
        """Forget all pictures, as on activation: no chunk may come from data of before."""
        self.problem = self._heard = None
        self._newest: Arrival | None = None
        self._tried: Arrival | None = None
        self._good: Picture | None = None

    @property
    def good_stamp_ns(self) -> int | None:
        return None if self._good is None else self._good.arrival.stamp_ns

    def receive(self, serialized: bytes, now: Now) -> None:
        given = header_stamp_ns(serialized)
        stamp_ns, newest = self._hear(given, now), self._newest
        # The same stamp again is the same picture, sent again. Without stamps the bytes have to tell.
        again = newest is not None and (newest.stamp_ns == stamp_ns if given else newest.serialized == serialized)
        if not again:
            self._newest = Arrival(serialized, stamp_ns, now)

    def picture(self, now: Now) -> Picture:
        """The newest good picture. A broken one is refused once, with `problem` set, and the last good one ages on.

        Raises NotReady.
        """
        newest = self._newest
        if newest is None:
            raise NotReady([Reason(self.topic, "no message yet")])
        if newest is not self._tried:
            self._tried = newest
            try:
                self._good, self.problem = Picture(self._decode(newest.serialized), newest), None
            except InputError as error:
                self._refuse(str(error))
        if self._good is None:
            raise NotReady([self.problem or Reason(self.topic, "no good message yet")])
        self._require_fresh(self._good.arrival.stamp_ns, self._good.arrival.receipt, now)
        return self._good


class JointInput(Source):
    """The joint states of one robot, by name, whoever publishes which part of them.

    decode: serialised message -> names and positions, raising InputError.
    """

    def __init__(self, topic: str, decode: Callable[[bytes], tuple[Sequence[str], Sequence[float]]],
                 names: Sequence[str], max_age: float) -> None:
        super().__init__(topic, max_age)
        self._decode = decode
        self._buffer = JointBuffer(names)
        self.clear()

    def clear(self) -> None:
        self._buffer.clear()
        self.problem = self._heard = None
        self._behind_ns = 0

    @property
    def good_stamp_ns(self) -> int | None:
        try:
            return self._buffer.state()[1]
        except InputError:
            return None

    def receive(self, serialized: bytes, now: Now) -> None:
        """A message that is not well formed is refused, with `problem` set, and nothing of it is kept."""
        stamp_ns = self._hear(header_stamp_ns(serialized), now)
        try:
            names, positions = self._decode(serialized)
            self._buffer.update(names, positions, stamp_ns, now.steady_ns)
        except InputError as error:
            self._refuse(str(error))
            return
        self.problem, self._behind_ns = None, now.ros_ns - stamp_ns

    def state(self, now: Now) -> tuple[np.ndarray, int]:
        """(positions in the robot's order, stamp of the oldest of them). Raises NotReady."""
        if self._heard is None:
            raise NotReady([Reason(self.topic, "no message yet")])
        try:
            values, stamp_ns = self._buffer.state()
        except InputError as error:
            raise NotReady([self.problem or Reason(self.topic, str(error))]) from None
        # What the joint that has waited longest was behind by is not kept; the newest message tells it as well.
        receipt = Now(self._buffer.oldest_receipt_ns(), stamp_ns + self._behind_ns)
        self._require_fresh(stamp_ns, receipt, now)
        return values, stamp_ns

    def _standstill(self) -> str:
        oldest = self._buffer.oldest_receipt_ns()
        silent = [name for name in self._buffer.names if self._buffer.oldest_receipt_ns([name]) == oldest]
        return f"none with {', '.join(silent)}"


@dataclass
class Inputs:
    """All inputs of a robot."""

    joints: JointInput
    cameras: Mapping[str, CameraInput] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Source]:
        yield from self.cameras.values()
        yield self.joints

    def clear(self) -> None:
        for source in self:
            source.clear()

    def oldest_ns(self) -> int | None:
        """Stamp of the oldest of the last good messages, fresh or not; None while a topic has had none."""
        stamps = [source.good_stamp_ns for source in self]
        return None if None in stamps else min(stamps)

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
        stamps = {self.cameras[name].topic: picture.arrival.stamp_ns for name, picture in pictures.items()}
        stamps[self.joints.topic] = state_stamp_ns
        return Snapshot({name: picture.pixels for name, picture in pictures.items()}, state, stamps)


def header_stamp_ns(serialized: bytes) -> int:
    """The stamp of a serialised message that begins with a std_msgs/Header, without deserialising it.

    CDR: four bytes of encapsulation, whose second says little endian, then int32 seconds and uint32 nanoseconds.
    """
    if len(serialized) < 12:
        return 0
    seconds, nanoseconds = struct.unpack_from("<iI" if serialized[1] & 1 else ">iI", serialized, 4)
    return seconds * 1_000_000_000 + nanoseconds
