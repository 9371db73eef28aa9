"""What the robot last sent, judged: pictures stay serialised until a frame wants them.

Receipt is on the steady clock, stamps are ROS time. A message counts as fresh only if both agree that it is new.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from .embodiment.errors import InputError
from .embodiment.joints import JointBuffer
from .plain_cdr import header_stamp_ns, same_but_for_stamp

# A driver may stamp the end of an exposure by a clock that is a little ahead of ours.
FUTURE_TOLERANCE = 0.1  # s
_STILL = "their stamp has not changed"
_DISORDER = 10.0  # s after a message that was overtaken in which more are feared
_REMEMBERED = 2.0  # s that a refusal is reported, so that good messages between two reports do not hide it


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
class Clock:
    """What receipt is told by, in words, and what helps where stamps are ahead of it, or behind."""

    name: str = "this node's clock"
    ahead: str = "synchronise the clocks, or set use_sim_time"
    behind: str = "synchronise the clocks, or set use_sim_time and play the bag with --clock"


SIMULATED = Clock("/clock", *2 * ("let who publishes it set use_sim_time too",))


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
    masked: why optional cameras are not among the images.
    """

    images: Mapping[str, np.ndarray]
    state: np.ndarray
    stamps: Mapping[str, int]
    masked: tuple[Reason, ...] = ()

    @property
    def stamp_ns(self) -> int:
        """Of the newest picture, or of the joint state if that is newer."""
        return max(self.stamps.values())

    @property
    def oldest_ns(self) -> int:
        return min(self.stamps.values())


class Source(ABC):
    """One topic, and how it fares: counts, the newest `problem`, and whether its messages are `unstamped`.

    received: messages. refused: those that were no good. late: those that came after newer ones. stampless: those
    without a stamp. unusable: frames that could not use it.
    """

    clock = Clock()

    def __init__(self, topic: str, max_age: float) -> None:
        self.topic, self.max_age = topic, max_age
        self.received = self.refused = self.late = self.stampless = self.unusable = 0
        self.problem: Reason | None = None
        self._refusal: tuple[Reason, Now] | None = None  # the last one, and when it was
        self._untold: Reason | None = None
        self._unstamped: Reason | None = None
        self._heard: Now | None = None  # the last message, whatever it was worth
        self._gap_ns = 0  # between the last two, in time of receipt
        self._late_ns: int | None = None  # steady time of the last one that was overtaken

    def complaints(self, now: Now) -> list[Reason]:
        """What is wrong with messages that came lately, though there may be others to make a frame from."""
        refusal, then = self._refusal or (None, now)
        lately = now.steady_ns - then.steady_ns < _REMEMBERED * 1e9
        found = self.problem or (refusal if lately else None)
        return [reason for reason in (found, self._unstamped) if reason]

    def news(self) -> list[Reason]:
        """The same of messages since this was asked last, for the log."""
        untold, self._untold = self._untold, None
        return [reason for reason in (untold, self._unstamped) if reason]

    def age(self, now: Now) -> float | None:
        """Seconds since the last message came, None before the first."""
        heard = self._heard
        return None if heard is None else (now.steady_ns - heard.steady_ns) / 1e9

    def needs_all(self) -> bool:
        """Whether the message that came last does not make up for those before it: some have come out of order."""
        late_ns, heard = self._late_ns, self._heard
        return late_ns is not None and heard is not None and heard.steady_ns - late_ns < _DISORDER * 1e9

    def settled(self, until: float) -> bool:
        """Whether the last message will be so still at `until`, in steady seconds, if the next one takes as long to
        come as it did."""
        heard = self._heard
        return heard is not None and heard.steady_ns + self._gap_ns >= until * 1e9

    @abstractmethod
    def receive(self, serialized: bytes, now: Now, came_ns: int | None = None, skipped: int = 0) -> None:
        """Take a serialised message.

        came_ns: when it came, by the steady clock; None: now. skipped: how many that came just before it nobody took.
        """

    @abstractmethod
    def clear(self) -> None:
        """Forget all messages, as on activation: no chunk may come from data of before."""

    def _hear(self, stamp_ns: int, now: Now, came_ns: int | None, skipped: int) -> Now:
        """Note that a message came; its receipt."""
        receipt, before = now, self._heard  # which `clear` in another thread may take away at any time
        if before is not None and before.ros_ns - now.ros_ns > FUTURE_TOLERANCE * 1e9:
            self.clear()  # time began again, as that of a bag played in a loop
            before = None
        if came_ns is not None:  # simulated time may have stood still since
            earliest_ns = min(before.ros_ns if before else 0, now.ros_ns)
            receipt = Now(came_ns, max(earliest_ns, now.ros_ns - (now.steady_ns - came_ns)))
        self.received += 1 + skipped
        self.stampless += not stamp_ns
        self._heard, self._gap_ns = receipt, (receipt.steady_ns - before.steady_ns) // (1 + skipped) if before else 0
        self._unstamped = None if stamp_ns else Reason(
            self.topic, f"stamp is 0, {receipt.ros_ns / 1e9:.0f} s before {self.clock.name}, so the time of receipt "
            "counts; let the driver stamp its messages")
        return receipt

    def _refuse(self, text: str, now: Now) -> None:
        self.refused += 1
        self.problem = self._untold = Reason(self.topic, text)
        self._refusal = self.problem, now

    def _overtaken(self, stamp_ns: int, newest_ns: int) -> bool:
        """Whether a message was overtaken by a newer one. Much older than that is a clock that was set back."""
        return 0 < newest_ns - stamp_ns <= self.max_age * 1e9

    def _count_late(self, receipt: Now) -> None:
        self.late, self._late_ns = self.late + 1, receipt.steady_ns

    def _require_fresh(self, stamp_ns: int, receipt: Now, now: Now, standstill: str = _STILL) -> None:
        """Raises NotReady where the last good message is too old by either clock, or from the future.

        standstill: what does not change where messages come all the same.
        """
        heard, problem = self._heard or receipt, self.problem  # which the thread that hears may change at any time
        waited, age = (now.steady_ns - receipt.steady_ns) / 1e9, (now.ros_ns - stamp_ns) / 1e9
        behind = (receipt.ros_ns - stamp_ns) / 1e9
        if age < -FUTURE_TOLERANCE:
            text = f"stamped {-age:.2f} s after {self.clock.name}; {self.clock.ahead}"
        elif behind > self.max_age:
            text = (f"stamped {behind:.2f} s before {self.clock.name} though it had just come, the limit is "
                    f"{self.max_age:g} s; {self.clock.behind}")
        elif max(waited, age) <= self.max_age:
            return
        elif not problem and heard.steady_ns > receipt.steady_ns:
            text = f"messages come, but {standstill} for {max(waited, age):.2f} s, the limit is {self.max_age:g} s"
        else:
            text = f"the last good message came {max(waited, age):.2f} s ago, the limit is {self.max_age:g} s"
        if problem:
            text += f"; newer ones are refused: {problem.text}"
        raise NotReady([Reason(self.topic, text)])


class CameraInput(Source):
    """The newest picture of one camera topic.

    `receive` may run in any thread, `picture` in the frame's only.
    frozen_after: so many pictures that differ in nothing but their stamps are a frozen camera; 0 never.
    optional: a frame can do without it.
    """

    def __init__(self, topic: str, decode: Callable[[bytes], np.ndarray], max_age: float, *, frozen_after: int = 0,
                 optional: bool = False) -> None:
        super().__init__(topic, max_age)
        self.frozen_after, self.optional = frozen_after, optional
        self._decode = decode
        self.clear()

    def clear(self) -> None:
        self.problem = self._refusal = self._untold = self._heard = None
        self._alike = 0  # pictures before the newest one that had its bytes, or were skipped between two that had
        self._newest: Arrival | None = None
        self._tried: Arrival | None = None
        self._good: Picture | None = None

    @property
    def good_stamp_ns(self) -> int | None:
        good = self._good
        return None if good is None else good.arrival.stamp_ns

    def receive(self, serialized: bytes, now: Now, came_ns: int | None = None, skipped: int = 0) -> None:
        given = header_stamp_ns(serialized)
        receipt = self._hear(given, now, came_ns, skipped)
        stamp_ns, newest = given or receipt.ros_ns, self._newest
        # The same stamp again is the same picture, sent again. Without stamps the bytes have to tell.
        again = newest is not None and (newest.stamp_ns == stamp_ns if given else newest.serialized == serialized)
        if again:
            return
        if newest is not None and given and self._overtaken(stamp_ns, newest.stamp_ns):
            self._count_late(receipt)
            return
        same = self.frozen_after and newest is not None and same_but_for_stamp(serialized, newest.serialized)
        self._alike = self._alike + 1 + skipped if same else 0
        self._newest = Arrival(serialized, stamp_ns, receipt)

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
                self._refuse(str(error), now)
        good = self._good  # `clear` may take it away at any time
        if good is None:
            raise NotReady([self.problem or Reason(self.topic, "no good message yet")])
        if 0 < self.frozen_after <= self._alike + 1:
            raise NotReady([Reason(self.topic, f"frozen: its last {self._alike + 1} pictures are the same, byte for "
                                   f"byte, frozen_after is {self.frozen_after}; restart the camera")])
        self._require_fresh(good.arrival.stamp_ns, good.arrival.receipt, now)
        return good


class JointInput(Source):
    """The joint states of one robot, by name, whoever publishes which part of them.

    decode: serialised message -> names and positions, raising InputError.
    whole: whether each message so far had all of them.
    """

    def __init__(self, topic: str, decode: Callable[[bytes], tuple[Sequence[str], Sequence[float]]],
                 names: Sequence[str], max_age: float) -> None:
        super().__init__(topic, max_age)
        self._decode = decode
        self._buffer, self._names = JointBuffer(names), frozenset(names)
        self.whole = True
        self.clear()

    def clear(self) -> None:
        self._buffer.clear()
        self.problem = self._refusal = self._untold = self._heard = None
        self._stamp_ns = 0  # of the last good message

    def needs_all(self) -> bool:
        """The same; or some hold parts of the robot."""
        return not self.whole or super().needs_all()

    @property
    def good_stamp_ns(self) -> int | None:
        try:
            return self._buffer.read().stamp_ns
        except InputError:
            return None

    def receive(self, serialized: bytes, now: Now, came_ns: int | None = None, skipped: int = 0) -> None:
        """A message that is not well formed is refused, with `problem` set, and nothing of it is kept."""
        given = header_stamp_ns(serialized)
        receipt = self._hear(given, now, came_ns, skipped)
        stamp_ns = given or receipt.ros_ns
        try:
            names, positions = self._decode(serialized)
            overtaken = self._buffer.update(names, positions, stamp_ns, receipt.steady_ns, self._overtaken,
                                            receipt.ros_ns - stamp_ns)
        except InputError as error:
            self._refuse(str(error), now)
            return
        if overtaken:
            self._count_late(receipt)
            return
        self.problem, self._stamp_ns = None, stamp_ns
        self.whole = self.whole and self._names.issubset(names)

    def state(self, now: Now) -> tuple[np.ndarray, int]:
        """(positions in the robot's order, stamp of the oldest of them). Raises NotReady."""
        if self._heard is None:
            raise NotReady([Reason(self.topic, "no message yet")])
        try:
            read = self._buffer.read()
        except InputError as error:
            raise NotReady([self.problem or Reason(self.topic, str(error))]) from None
        receipt = Now(read.receipt_ns, read.stamp_ns + read.behind_ns)
        standstill = _STILL if read.stamp_ns == self._stamp_ns else f"none with {', '.join(read.oldest)}"
        self._require_fresh(read.stamp_ns, receipt, now, standstill)
        return read.positions, read.stamp_ns


@dataclass
class Inputs:
    """All inputs of a robot. skew: seconds that the pictures of one frame may lie apart; 0 does not ask."""

    joints: JointInput
    cameras: Mapping[str, CameraInput] = field(default_factory=dict)
    skew: float = 0.0

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

    def settled(self, until: float, now: Now) -> dict[str, np.ndarray]:
        """The good pictures of those cameras whose next one is not expected before `until`, in steady seconds."""
        found = {}
        for name, camera in self.cameras.items():
            with suppress(NotReady):
                if camera.settled(until):
                    found[name] = camera.picture(now).pixels
        return found

    def snapshot(self, now: Now) -> Snapshot:
        """What a frame that begins now is made from. Raises NotReady with a reason for each topic that lacks."""
        pictures, reasons, masked = {}, [], []
        for name, camera in self.cameras.items():
            try:
                pictures[name] = camera.picture(now)
            except NotReady as error:
                (masked if camera.optional else reasons).extend(error.reasons)
        for name, reason in self._astray(pictures):
            (masked if self.cameras[name].optional else reasons).append(reason)
            del pictures[name]
        try:
            state, state_stamp_ns = self.joints.state(now)
        except NotReady as error:
            reasons += error.reasons
        for source in self:
            source.unusable += any(reason.topic == source.topic for reason in (*reasons, *masked))
        if reasons:
            raise NotReady(reasons)
        stamps = {self.cameras[name].topic: picture.arrival.stamp_ns for name, picture in pictures.items()}
        stamps[self.joints.topic] = state_stamp_ns
        return Snapshot({name: picture.pixels for name, picture in pictures.items()}, state, stamps, tuple(masked))

    def _astray(self, pictures: Mapping[str, Picture]) -> list[tuple[str, Reason]]:
        """Cameras whose picture lies too far behind the newest one."""
        if not self.skew or not pictures:
            return []
        stamps = {name: picture.arrival.stamp_ns for name, picture in pictures.items()}
        newest = max(stamps, key=stamps.get)
        return [
            (name, Reason(self.cameras[name].topic, f"stamped {behind:.3f} s before {self.cameras[newest].topic}, "
                          f"camera_skew is {self.skew:g} s"))
            for name, stamp in stamps.items() if (behind := (stamps[newest] - stamp) / 1e9) > self.skew
        ]
