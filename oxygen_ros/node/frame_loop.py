"""One thread that makes frames, so that inference never blocks a subscription, a service or the timer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from ..frames import Tick


class FrameLoop:
    """Between `start` and `stop`, calls `work` once per tick.

    A tick that comes while a frame still runs is missed and counted in `misses`, not queued.
    broken: is given what `work` raised, which ends all ticks: `work` answers for what it can foresee.
    """

    def __init__(self, work: Callable[[Tick], None], broken: Callable[[Exception], None]) -> None:
        self.misses = 0
        self._work, self._broken = work, broken
        self._wanted = threading.Condition()
        self._tick: Tick | None = None
        self._errand: tuple[Callable[[], None], Future[None]] | None = None
        self._started = self._busy = self._closed = False
        self._thread = threading.Thread(target=self._run, name="frames", daemon=True)
        self._thread.start()

    def run(self, errand: Callable[[], None]) -> None:
        """Do something else once in the loop's thread, between frames; return when it is done. Raises what it raises."""
        done: Future[None] = Future()
        with self._wanted:
            self._errand = (errand, done)
            self._wanted.notify_all()
        done.result()

    def start(self) -> None:
        with self._wanted:
            self._started = True

    def tick(self, tick: Tick) -> None:
        with self._wanted:
            if not self._started:  # a timer may fire once more while it is being destroyed
                return
            if self._busy or self._tick is not None:
                self.misses += 1
            else:
                self._tick = tick
                self._wanted.notify_all()

    def stop(self) -> None:
        """Drop a tick that has not begun, and return when no frame runs."""
        with self._wanted:
            self._started, self._tick = False, None
            self._wanted.wait_for(lambda: not self._busy)

    def close(self) -> None:
        """End the thread after the frame in flight."""
        with self._wanted:
            self._started, self._closed, self._tick = False, True, None
            self._wanted.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wanted:
                self._wanted.wait_for(lambda: self._closed or self._errand or self._tick is not None)
                if self._closed:
                    return
                if errand := self._errand:
                    self._errand = None
                    _run_errand(*errand)
                    continue
                tick, self._tick, self._busy = self._tick, None, True
            try:
                self._work(tick)
            except Exception as error:
                with self._wanted:
                    self._started = False
                self._broken(error)
            finally:
                with self._wanted:
                    self._busy = False
                    self._wanted.notify_all()


def _run_errand(errand: Callable[[], None], done: Future[None]) -> None:
    try:
        done.set_result(errand())
    except BaseException as error:
        done.set_exception(error)
