"""Messages that are taken only if somebody will use them.

To take one copies it three times, and most pictures of a camera are followed by newer ones before a frame begins.
rcl tells of each as it comes, in a thread of the middleware's, where compiled code counts it (src/arrivals.cpp).
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass

from rclpy.guard_condition import GuardCondition
from rclpy.subscription import Subscription

from .. import kernels

Wanted = Callable[[int, int], int]
"""(when the next tick is due, how far apart messages come) -> from when on they are not to wait for the tick; in ns."""
AT_ONCE = 0
_IN_A_ROW, _EVERY = 3, 5  # messages, of which one is overtaken if any two neighbours change places; ticks


class _Arrivals(ctypes.Structure):
    """Arrivals of src/arrivals.cpp. count: messages so far. Times are of `time.monotonic_ns`."""

    _fields_ = [
        ("count", ctypes.c_int64), ("newest_ns", ctypes.c_int64), ("wanted_from_ns", ctypes.c_int64),
        ("trigger", ctypes.c_void_p), ("guard_condition", ctypes.c_void_p),
    ]


@dataclass(frozen=True)
class Sample:
    """A serialised message, when it came (time.monotonic_ns), and how many that came before it were not taken."""

    serialized: bytes
    came_ns: int
    skipped: int


class Unsupported(Exception):
    """Nobody counts messages here, or this middleware does not tell of them."""


class Sampled:
    """Between construction and `close`, gives a raw subscription's callback a Sample of what has come by `collect`.

    wake: is triggered by messages that are wanted at once: all, until `plan` says otherwise.
    For one thread. The handles of both must live until `close`.
    """

    def __init__(self, subscription: Subscription, wanted: Wanted, wake: GuardCondition) -> None:
        """Raises Unsupported."""
        library = kernels.library()
        if library is None:
            raise Unsupported
        try:
            rcl = ctypes.CDLL("librcl.so")  # rclpy has loaded it, and tells its handles
        except OSError as error:  # under another name
            raise Unsupported from error
        self.subscription, self._wanted = subscription, wanted
        self._arrivals = _Arrivals(
            trigger=ctypes.cast(rcl.rcl_trigger_guard_condition, ctypes.c_void_p), guard_condition=wake.handle.pointer)
        self._known, self._known_ns = 0, 0  # messages that were taken or skipped, and when the newest of them came
        self._planned, self._planned_ns = 0, 0  # messages before the last plan, and when the newest of them came
        self._set_callback = rcl.rcl_subscription_set_on_new_message_callback
        self._set_callback.argtypes = [ctypes.c_void_p] * 3
        if self._set_callback(subscription.handle.pointer, library.oxygen_arrived, ctypes.addressof(self._arrivals)):
            ctypes.CDLL("librcutils.so").rcutils_reset_error()
            raise Unsupported

    def close(self) -> None:
        self._set_callback(self.subscription.handle.pointer, None, None)

    @property
    def due(self) -> bool:
        """Whether something has come that is wanted at once."""
        arrivals = self._arrivals
        return arrivals.count > self._known and arrivals.newest_ns >= arrivals.wanted_from_ns

    def collect(self) -> None:
        """Give what has come since the last time: the newest, as many as the subscription's depth.

        When the very newest came is known, of the others it is as if they had come evenly.
        """
        count, came = self._arrivals.count, []
        if count <= self._known:
            return
        while (message := _take(self.subscription)) is not None:
            came.append(message)
        if not came:  # it was taken the last time, in place of one that is counted with the next
            return
        newest_ns, since = self._arrivals.newest_ns, max(count - self._known, len(came))
        gap_ns = (newest_ns - self._known_ns) // since if self._known else 0
        self._known, self._known_ns = self._known + since, newest_ns
        skipped = since - len(came)
        for later, message in zip(reversed(range(len(came))), came):
            self.subscription.callback(Sample(message, newest_ns - later * gap_ns, skipped))
            skipped = 0

    def plan(self, next_tick_ns: int | None) -> None:
        """Let messages wait for the next tick, but for those that are wanted; None: there is none, nothing waits."""
        count, newest_ns = self._arrivals.count, self._arrivals.newest_ns
        came, span_ns = count - self._planned, newest_ns - self._planned_ns
        self._planned, self._planned_ns = count, newest_ns
        at_once = next_tick_ns is None or came <= 0
        self._arrivals.wanted_from_ns = AT_ONCE if at_once else self._wanted(next_tick_ns, span_ns // came)


def hear(subscription: Subscription) -> None:
    """Give a raw subscription's callback all messages that there are, as Samples that have just come."""
    while (message := _take(subscription)) is not None:
        subscription.callback(Sample(message, time.monotonic_ns(), 0))


class Ahead:
    """A message that will be the newest at the next tick does not wait for it.

    Nor, now and then, do those before it: of some that follow one another, one may turn out to be late. all_needed:
    whether the newest does not make up for the others; then none waits.
    """

    def __init__(self, all_needed: Callable[[], bool]) -> None:
        self._all_needed, self._plans = all_needed, 0

    def __call__(self, next_tick_ns: int, gap_ns: int) -> int:
        self._plans += 1
        wanted = 1 if self._plans % _EVERY else _IN_A_ROW
        return AT_ONCE if self._all_needed() else next_tick_ns - wanted * gap_ns


def _take(subscription: Subscription) -> bytes | None:
    taken = subscription.handle.take_message(subscription.msg_type, True)
    return taken[0] if taken else None
