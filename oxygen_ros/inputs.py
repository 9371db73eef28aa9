"""What the robot last sent, judged: pictures stay serialised until a frame wants them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from .embodiment.errors import InputError
from .embodiment.joints import JointBuffer
from .plain_cdr import header_stamp_ns, same_but_for_stamp
from .source import STILL, NotReady, Now, Reason, Source


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
        super().clear()
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
        if newest is not None and given and self._overtaken(stamp_ns, newest.stamp_ns, receipt):
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
        super().clear()
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
            overtaken = self._buffer.update(names, positions, stamp_ns, receipt.steady_ns,
                                            lambda stamp_ns, newest_ns: self._overtaken(stamp_ns, newest_ns, receipt),
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
        standstill = STILL if read.stamp_ns == self._stamp_ns else f"none with {', '.join(read.oldest)}"
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
        """Cameras whose picture lies too far from one that is used: a required one from the newest of them, an optional
        one, which must never cost a frame, from any."""
        stamps = {name: picture.arrival.stamp_ns for name, picture in pictures.items() if self.skew}
        found, used = [], []
        for name in sorted(stamps, key=lambda name: (self.cameras[name].optional, -stamps[name])):
            other = max(used, key=lambda other: abs(stamps[name] - stamps[other]), default=name)
            apart = (stamps[name] - stamps[other]) / 1e9
            if abs(apart) <= self.skew:
                used.append(name)
                continue
            found.append((name, Reason(
                self.cameras[name].topic, f"stamped {abs(apart):.3f} s {'after' if apart > 0 else 'before'} "
                f"{self.cameras[other].topic}, camera_skew is {self.skew:g} s")))
        return found
