"""An executor in a thread of its own, ended between two callbacks."""

from __future__ import annotations

import threading
from collections.abc import Callable

from rclpy.executors import Executor


class Spinner:
    """Spins from construction to `stop`.

    (`Executor.shutdown` from another thread takes away what a callback just then needs to end: InvalidHandle.)
    failed: called in the spinning thread when a callback raised, before the exception goes its way.
    """

    def __init__(self, executor: Executor, failed: Callable[[], None] = lambda: None) -> None:
        self._executor, self._failed = executor, failed
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
        try:
            while not self._stop.is_set():
                self._executor.spin_once(timeout_sec=1.0)
        except Exception:
            self._failed()
            raise
