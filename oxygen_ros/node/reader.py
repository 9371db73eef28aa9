"""Messages and ticks that come often, heard in a thread of their own, past the executor.

rclpy's executor waits for the whole node, and gathers what to wait for anew, twice for each message: of a picture of
0.9 MB that costs three times what taking it does. This one waits for its few subscriptions and one timer alone.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext, suppress

from rclpy.callback_groups import CallbackGroup
from rclpy.context import Context
from rclpy.exceptions import InvalidHandle
from rclpy.guard_condition import GuardCondition
from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy
from rclpy.subscription import Subscription
from rclpy.timer import Timer

from .sampling import Sampled, Unsupported, Wanted, hear

_MOMENT = 0.05  # s; a reader that is not busy takes less than a hundredth of it


class NotByExecutor(CallbackGroup):
    """Of subscriptions and timers that an executor is to leave alone."""

    def can_execute(self, entity: object) -> bool:
        return False

    def beginning_execution(self, entity: object) -> bool:
        return False

    def ending_execution(self, entity: object) -> None:
        pass


class Reader:
    """From construction to `stop`, gives the messages of raw subscriptions to their callbacks, as Samples.

    Without ticks, every message when it comes. With them the newest at each tick, and between ticks those that are
    wanted; where the middleware does not tell of messages, all are.
    broken: is given what ends that before its time: what a callback raises, too.
    """

    def __init__(self, subscriptions: Mapping[Subscription, Wanted], context: Context,
                 broken: Callable[[Exception], None]) -> None:
        self._subscriptions, self._context, self._broken = subscriptions, context, broken
        self._sampled: list[Sampled] = []
        self._heard: list[Subscription] = []  # those that cannot be sampled
        self._wake = GuardCondition(None, None, context=context)
        self._stop = threading.Event()
        self._timer: Timer | None = None
        self._looks: deque[tuple[Subscription | None, threading.Event]] = deque()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)
        self._thread.start()

    def tick_by(self, timer: Timer | None) -> None:
        """From now on call this timer back, and no other. One that was may be destroyed then.

        Raises RuntimeError for a timer that nobody is left to wait for.
        """
        if timer is not None and self._failure is not None:
            raise RuntimeError("sensors are no longer heard") from self._failure
        self._timer = timer
        self._wake.trigger()

    def look(self, subscription: Subscription | None = None) -> None:
        """Return when all that has come by now, of this subscription or of any, was given to its callback; or after a
        moment; at once when stopped."""
        looked = threading.Event()
        self._looks.append((subscription, looked))
        with suppress(InvalidHandle):  # it was stopped just now
            self._wake.trigger()
            looked.wait(_MOMENT)

    def stop(self) -> None:
        """Return when no callback runs any more."""
        self._stop.set()
        self._wake.trigger()
        self._thread.join()
        self._wake.destroy()

    def _run(self) -> None:
        try:
            self._read()
        except Exception as error:
            self._failure = error
            self._broken(error)

    def _read(self) -> None:
        with ExitStack() as used:
            for handle in (self._context.handle, self._wake.handle, *(s.handle for s in self._subscriptions)):
                used.enter_context(handle)
            for subscription, wanted in self._subscriptions.items():
                try:
                    self._sampled.append(sampled := Sampled(subscription, wanted, self._wake))
                    used.callback(sampled.close)
                except Unsupported:
                    self._heard.append(subscription)
            wait_set = _rclpy.WaitSet(len(self._heard), 1, 1, 0, 0, 0, self._context.handle)
            while not self._stop.is_set():
                timer = self._timer  # which may be destroyed just now
                with suppress(InvalidHandle), timer.handle if timer else nullcontext():
                    self._wait(wait_set, timer)

    def _wait(self, wait_set: _rclpy.WaitSet, timer: Timer | None) -> None:
        """Until something comes, and hear it."""
        wait_set.clear_entities()
        wait_set.add_guard_condition(self._wake.handle)
        for subscription in self._heard:
            wait_set.add_subscription(subscription.handle)
        if timer is not None:
            wait_set.add_timer(timer.handle)
        wait_set.wait(-1)
        looks = [self._looks.popleft() for _ in range(len(self._looks))]
        ticks = timer is not None and wait_set.is_ready("timer", 0)
        for index, subscription in enumerate(self._heard):
            if wait_set.is_ready("subscription", index):
                hear(subscription)
        all_wanted = ticks or self._timer is None
        looked_for = [subscription for subscription, _ in looks]
        next_tick_ns = time.monotonic_ns() + timer.timer_period_ns if ticks else None
        for sampled in self._sampled:
            if all_wanted:
                sampled.plan(next_tick_ns)  # before what it has is collected: what comes meanwhile goes by the plan
            if all_wanted or sampled.due or None in looked_for or sampled.subscription in looked_for:
                sampled.collect()
        if ticks:
            timer.handle.call_timer()
            timer.callback()
        for _, looked in looks:
            looked.set()
