"""An executor in a thread of its own, ended between two callbacks; and a node that is spun while a block runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import rclpy
from rclpy.exceptions import InvalidHandle
from rclpy.executors import Executor, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

_PATIENCE = 5.0  # s without a callback that works
_PAUSE = 0.01  # s after one that does not

AnyNode = TypeVar("AnyNode", bound=Node)


class Spinner:
    """Spins from construction to `stop`.

    (`Executor.shutdown` from another thread takes away what a callback just then needs to end: InvalidHandle.)
    Whoever destroys a publisher or subscription in another thread may do so while the executor gathers what to wait
    for; rclpy minds that of the entities, but not of their events (InvalidHandle). The executor then gathers again.

    failed: called in the spinning thread when a callback raised, before the exception goes its way.
    dropped: is given what a callback raised instead, and the spinning goes on, while anything else still works.
    """

    def __init__(self, executor: Executor, failed: Callable[[], None] = lambda: None,
                 dropped: Callable[[Exception], None] | None = None) -> None:
        self._executor, self._failed, self._dropped = executor, failed, dropped
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._spin, name="executor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Return when no callback runs any more, with the executor shut down."""
        self._stop.set()
        self._executor.wake()
        self._thread.join()
        self._executor.shutdown()

    def _spin(self) -> None:
        worked = time.monotonic()
        while not self._stop.is_set():
            try:
                self._executor.spin_once(timeout_sec=1.0)
                worked = time.monotonic()
            except Exception as error:
                destroyed = isinstance(error, InvalidHandle)
                if not (destroyed or self._dropped) or time.monotonic() - worked > _PATIENCE:
                    self._failed()
                    raise
                if not destroyed:
                    self._dropped(error)
                self._stop.wait(_PAUSE)


@contextmanager
def spinning(make: Callable[[], AnyNode]) -> Iterator[AnyNode]:
    """rclpy from beginning to end, with one node that is spun in between. Signals stay the caller's."""
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    try:
        node, executor = make(), SingleThreadedExecutor()
        executor.add_node(node)
        spinner = Spinner(executor)
        try:
            yield node
        finally:
            spinner.stop()
            node.destroy_node()
    finally:
        rclpy.shutdown()
