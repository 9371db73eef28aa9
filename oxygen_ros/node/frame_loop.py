"""One thread that makes frames, so that inference never blocks a subscription, a service or the timer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from ..frames import Tick

_SPARE = 0.003  # s before the next tick at which `ahead` is to be done


class FrameLoop:
    """Between `start` and `stop`, calls `work` once per tick.

    A tick that comes while a frame still runs is missed and counted in `misses`, not queued.
    broken: is given what `work` raised, which ends all ticks: `work` answers for what it can foresee.
    ahead: is called shortly before the next tick, so early that it is done in time, where there is time.
    """

    def __init__(self, work: Callable[[Tick], None], broken: Callable[[Exception], None],
                 ahead: Callable[[], None] = lambda: None) -> None:
        self.misses = 0
        self._work, self._broken, self._ahead = work, broken, ahead
        self._ahead_due: float | None = None  # time.monotonic
        self._ahead_takes = 0.0  # s, the last time
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
            self._started, self._tick, self._ahead_due = False, None, None
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
                wanted = self._wanted.wait_for(
                    lambda: self._closed or self._errand or self._tick is not None, self._until_ahead())
                if self._closed:
                    return
                if errand := self._errand:
                    self._errand = None
                    _run_errand(*errand)
                    continue
                if wanted:
                    tick, self._tick, self._busy = self._tick, None, True
                elif self._ahead_due is None:  # stopped meanwhile
                    continue
            if wanted:
                self._do(lambda: self._work(tick))
                with self._wanted:
                    self._busy = False
                    self._ahead_due = tick.deadline - self._ahead_takes - _SPARE if self._started else None
                    self._wanted.notify_all()
            else:
                self._ahead_due, began = None, time.monotonic()
                self._do(self._ahead)
                self._ahead_takes = time.monotonic() - began

    def _until_ahead(self) -> float | None:
        """Seconds to wait at most; None for as long as it takes."""
        return None if self._ahead_due is None else max(0.0, self._ahead_due - time.monotonic())

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            with self._wanted:
                self._started = False
            self._broken(error)


def _run_errand(errand: Callable[[], None], done: Future[None]) -> None:
    try:
        done.set_result(errand())
    except BaseException as error:
        done.set_exception(error)
