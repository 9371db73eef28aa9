"""One topic of a robot, and how it fares: whether what it last sent is of use now, and if not, why.

Receipt is on the steady clock, stamps are ROS time. A message counts as fresh only if both agree that it is new.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

# A driver may stamp the end of an exposure by a clock that is a little ahead of ours.
FUTURE_TOLERANCE = 0.1  # s
STILL = "their stamp has not changed"
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
        self.problem = self._refusal = self._untold = self._heard = None

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

    def _overtaken(self, stamp_ns: int, newest_ns: int, receipt: Now) -> bool:
        """Whether a message was overtaken by a newer one: not by one from the future, which is of no use itself. Much
        older than that is a clock that was set back."""
        ahead = (newest_ns - receipt.ros_ns) / 1e9
        return ahead <= FUTURE_TOLERANCE and 0 < newest_ns - stamp_ns <= self.max_age * 1e9

    def _count_late(self, receipt: Now) -> None:
        self.late, self._late_ns = self.late + 1, receipt.steady_ns

    def _require_fresh(self, stamp_ns: int, receipt: Now, now: Now, standstill: str = STILL) -> None:
        """Raises NotReady where the last good message is too old by either clock, or from the future.

        standstill: what does not change where messages come all the same.
        """
        heard, problem = self._heard or receipt, self.problem  # which the thread that hears may change at any time
        waited, age = (now.steady_ns - receipt.steady_ns) / 1e9, (now.ros_ns - stamp_ns) / 1e9
        behind, set_back = (receipt.ros_ns - stamp_ns) / 1e9, (receipt.ros_ns - now.ros_ns) / 1e9
        if set_back > FUTURE_TOLERANCE:
            text = f"no message since {self.clock.name} was set back by more than {set_back:.2f} s"
        elif age < -FUTURE_TOLERANCE:
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
