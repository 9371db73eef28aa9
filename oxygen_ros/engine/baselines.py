"""What the OxyGen paper compares with, behind the same `frame()`: tasks that share less than they could.

All run the same network code on the same kind of memory, so that what differs is caches and scheduling.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from queue import SimpleQueue

import torch

from ..pi05.model import Pi05
from .engine import Engine, EngineSettings, FrameError
from .observation import Observation
from .outputs import Actions, FinishReason, Output, Token
from .request import LanguageRequest

Spent = Counter
"""What a part of a frame adds to FrameStats, by field. Where tasks overlap in time, their seconds still add up."""


class SharedKV(Engine):
    """One prefill for all tasks of a frame, but every answer is decoded to its end inside the frame.

    No deadline is kept: that is what is compared.
    """

    def __init__(self, model: Pi05, settings: EngineSettings = EngineSettings()) -> None:
        super().__init__(model, replace(settings, steps_per_frame=None))

    def frame(self, observation: Observation, deadline: float | None = None) -> Iterator[Output]:
        return super().frame(observation)


class IsolatedSequential(SharedKV):
    """Each task encodes and prefills the observation for itself: the chunk first, then one answer after the other."""

    def __init__(self, model: Pi05, settings: EngineSettings = EngineSettings()) -> None:
        super().__init__(model, settings)
        self._acting = self._passes

    def frame(self, observation: Observation, deadline: float | None = None) -> Iterator[Output]:
        started = time.monotonic()
        yield from self._scheduler.end_cancelled()
        joining = self._scheduler.admit()
        try:
            spent = yield from self._tasks(self._act(observation, started), self._speak(observation, joining))
        except FrameError as error:
            yield from self._scheduler.reject(FinishReason.ERROR, str(error))
            raise
        yield self._stats(started, time.monotonic(), None, **spent)

    def _tasks(self, act: Generator[Actions, None, Spent], speak: Generator[Token, None, Spent]
               ) -> Generator[Output, None, Spent]:
        spent = yield from act
        spent.update((yield from speak))
        return spent

    def _act(self, observation: Observation, started: float) -> Generator[Actions, None, Spent]:
        slot = self._pool.take_slot()
        stage = "prefill"
        try:
            self._acting.prefill(observation, self._acting.see(observation), slot, wants_hidden=False)
            prefilled = time.monotonic()
            stage = "denoise"
            actions = self._acting.denoise(observation, slot)
            ready = time.monotonic()
        except Exception as error:
            raise FrameError(stage, error) from error
        finally:
            self._pool.release(slot)
        yield Actions(actions, observation.stamp_ns)
        return Spent(
            prefill=prefilled - started, denoise=ready - prefilled, first_chunk_latency=ready - started,
            prefix_tokens=slot.prefix_length,
        )

    def _speak(self, observation: Observation, joining: Sequence[LanguageRequest]) -> Generator[Token, None, Spent]:
        spent = Spent()
        for request in joining:
            began = time.monotonic()
            slot = self._pool.take_slot()
            try:
                sight = self._passes.see(observation)
                if request.prefix == "own":
                    hidden = self._passes.prefill_own(request.prompt, sight, slot)
                else:
                    hidden = self._passes.prefill(observation, sight, slot, wants_hidden=not request.prompt)
                self._scheduler.join([request], slot, observation.stamp_ns, hidden)
            except Exception as error:
                raise FrameError("prefill", error) from error
            finally:
                self._pool.release(slot)
            prefilled = time.monotonic()
            steps, tokens = yield from self._decode(None)
            spent.update(
                prefill=prefilled - began, decode=time.monotonic() - prefilled, decode_steps=steps, tokens=tokens,
                prefix_tokens=slot.prefix_length,
            )
        return spent


class IsolatedParallel(IsolatedSequential):
    """Actions and language in two workers at once, each with caches of its own. Tokens may come before the chunk.

    The workers share the machine by halves: two with all of a CPU's threads each only wait for one another.
    """

    def __init__(self, model: Pi05, settings: EngineSettings = EngineSettings()) -> None:
        super().__init__(model, settings)
        self._acting = self._make_passes()  # those of fixed shapes belong to one thread at a time
        threads = torch.get_num_threads()
        self._workers = ThreadPoolExecutor(2, "isolated", torch.set_num_threads, (max(1, threads // 2),))

    def _tasks(self, act: Generator[Actions, None, Spent], speak: Generator[Token, None, Spent]
               ) -> Generator[Output, None, Spent]:
        ready: SimpleQueue[Output | Future[Spent]] = SimpleQueue()
        workers = [self._workers.submit(_hand_over, task, ready.put) for task in (act, speak)]
        for worker in workers:
            worker.add_done_callback(ready.put)
        try:
            left = len(workers)
            while left:
                output = ready.get()
                if isinstance(output, Future):
                    left -= 1
                else:
                    yield output
        finally:
            wait(workers)
        spent = Spent()
        for worker in workers:
            spent.update(worker.result())
        return spent


def _hand_over(task: Generator[Output, None, Spent], give: Callable[[Output], None]) -> Spent:
    """Run a task to its end; give what it yields, return what it returns."""
    while True:
        try:
            give(next(task))
        except StopIteration as end:
            return end.value


MODES: dict[str, type[Engine]] = {
    "isolated_sequential": IsolatedSequential,
    "isolated_parallel": IsolatedParallel,
    "shared_kv": SharedKV,
    "oxygen": Engine,
}
