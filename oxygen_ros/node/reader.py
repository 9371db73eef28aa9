"""Messages and ticks that come often, heard in a thread of their own, past the executor.

rclpy's executor waits for the whole node, and gathers what to wait for anew, twice for each message: of a picture of
0.9 MB that costs three times what taking it does. This one waits for its few subscriptions and one timer alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext, suppress

from rclpy.callback_groups import CallbackGroup
from rclpy.context import Context
from rclpy.exceptions import InvalidHandle
from rclpy.guard_condition import GuardCondition
from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy
from rclpy.subscription import Subscription
from rclpy.timer import Timer


class NotByExecutor(CallbackGroup):
    """Of subscriptions and timers that an executor is to leave alone."""

    def can_execute(self, entity: object) -> bool:
        return False

    def beginning_execution(self, entity: object) -> bool:
        return False

    def ending_execution(self, entity: object) -> None:
        pass


class Reader:
    """From construction to `stop`, gives each message of raw subscriptions to their callbacks.

    broken: is given what ends that before its time: what a callback raises, too.
    """

    def __init__(self, subscriptions: Sequence[Subscription], context: Context, broken: Callable[[Exception], None]
                 ) -> None:
        self._subscriptions, self._context, self._broken = subscriptions, context, broken
        self._wake = GuardCondition(None, None, context=context)
        self._stop = threading.Event()
        self._timer: Timer | None = None
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
        handles = [subscription.handle for subscription in self._subscriptions]
        with ExitStack() as used:
            for handle in (self._context.handle, self._wake.handle, *handles):
                used.enter_context(handle)
            wait_set = _rclpy.WaitSet(len(handles), 1, 1, 0, 0, 0, self._context.handle)
            while not self._stop.is_set():
                timer = self._timer  # which may be destroyed just now
                with suppress(InvalidHandle), timer.handle if timer else nullcontext():
                    self._wait(wait_set, timer)

    def _wait(self, wait_set: _rclpy.WaitSet, timer: Timer | None) -> None:
        """Until something comes, and hear it."""
        wait_set.clear_entities()
        wait_set.add_guard_condition(self._wake.handle)
        for subscription in self._subscriptions:
            wait_set.add_subscription(subscription.handle)
        if timer is not None:
            wait_set.add_timer(timer.handle)
        wait_set.wait(-1)
        if timer is not None and wait_set.is_ready("timer", 0):
            timer.handle.call_timer()
            timer.callback()
        for index, subscription in enumerate(self._subscriptions):
            if wait_set.is_ready("subscription", index):
                taken = subscription.handle.take_message(subscription.msg_type, True)
                if taken is not None:
                    subscription.callback(taken[0])
