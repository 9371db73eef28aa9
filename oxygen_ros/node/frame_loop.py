"""One thread that makes frames, so that inference never blocks a subscription, a service or the timer."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from ..frames import Tick


class FrameLoop:
    """Between `start` and `stop`, calls `work` once per tick.

    A tick that comes while a frame still runs is missed and counted in `misses`, not queued.
    broken: is given what `work` raised, which ends all ticks: `work` answers for what it can foresee.
    ahead: is called between frames after `offer`, with the time of the next tick.
    """

    def __init__(self, work: Callable[[Tick], None], broken: Callable[[Exception], None],
                 ahead: Callable[[float], None] = lambda next_tick: None) -> None:
        self.misses = 0
        self._work, self._broken, self._ahead = work, broken, ahead
        self._wanted = threading.Condition()
        self._tick: Tick | None = None
        self._last: Tick | None = None
        self._ended = 0.0  # time.monotonic, the last frame
        self._offered = False
        self._errand: tuple[Callable[[], None], Future[None]] | None = None
        self._started = self._busy = self._closed = False
        self._thread = threading.Thread(target=self._run, name="frames", daemon=True)
        self._thread.start()

    def run(self, errand: Callable[[], None]) -> None:
        """Do something else once in the loop's thread, between frames, to its end. Raises what it raises."""
        done: Future[None] = Future()
        with self._wanted:
            self._errand = (errand, done)
            self._wanted.notify_all()
        done.result()

    def start(self) -> None:
        with self._wanted:
            self._started = True

    def tick(self, tick: Tick) -> None:
        """Returns at once: the frame is the loop's thread's."""
        with self._wanted:
            if not self._started:  # a timer may fire once more while it is being destroyed
                return
            if self._busy or self._tick is not None:
                self.misses += 1
            else:
                self._tick = tick
                self._wanted.notify_all()

    @property
    def next_tick(self) -> float:
        """When it is due, in seconds of time.monotonic; infinite where ticks do not come as they should."""
        tick, now = self._last, time.monotonic()
        if tick is None or (not self._busy and now > self._ended + tick.period):
            return math.inf
        return tick.deadline + max(0, math.ceil((now - tick.deadline) / tick.period)) * tick.period

    def offer(self) -> None:
        """There is something that can be done ahead of the next tick."""
        with self._wanted:
            if self._started:
                self._offered = True
                self._wanted.notify_all()

    def stop(self) -> None:
        """Drop a tick that has not begun, and return when no frame runs."""
        with self._wanted:
            self._started = self._offered = False
            self._tick = self._last = None
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
                self._wanted.wait_for(lambda: self._closed or self._errand or self._tick or self._offered)
                if self._closed:
                    return
                if errand := self._errand:
                    self._errand = None
                    _run_errand(*errand)
                    continue
                tick, self._tick, self._offered = self._tick, None, False
                if tick is not None:
                    self._last, self._busy = tick, True
            if tick is None:
                self._do(lambda: self._ahead(self.next_tick))
                continue
            self._do(lambda: self._work(tick))
            with self._wanted:
                self._busy, self._ended = False, time.monotonic()
                self._wanted.notify_all()

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
