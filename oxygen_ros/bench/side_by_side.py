"""Engines on the same observations and requests, frame by frame in turn: a machine that drifts drifts for all."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..engine.engine import Engine
from ..engine.observation import Observation
from ..engine.outputs import Actions, FinishReason, FrameStats, Token
from ..engine.request import LanguageRequest
from .energy import Meter
from .memory import Peak

IDS_PER_FRAME = 1000


@dataclass
class Record:
    """What was measured of one mode: seconds of its own frames only, tokens, joules."""

    frames: list[float] = field(default_factory=list)
    first_chunks: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    tokens: int = 0
    completed: int = 0
    prefix_tokens: int | None = None
    peak_memory: int | None = None
    joules: float | None = 0.0


class Contestant:
    """One engine, and a clock that stands still while the others run.

    warmup: frames that it needs before those that count; the earlier ones of a longer common warm-up it sits out.
    """

    def __init__(self, engine: Engine, joules: Meter, warmup: int) -> None:
        self.record = Record()
        self.warmup = warmup
        self._engine, self._joules = engine, joules
        self._peak = Peak(engine.model.device)
        self._clock = 0.0
        self._asked: dict[int, float] = {}

    def frame(self, number: int, observation: Observation, lengths: Sequence[int], counts: bool) -> None:
        """One frame at whose beginning requests of these lengths arrive; recorded if it `counts`."""
        for index, length in enumerate(lengths):
            request = LanguageRequest(number * IDS_PER_FRAME + index, (), length, end_tokens=())
            self._engine.submit(request)
            self._asked[request.request_id] = self._clock
        record = self.record if counts else Record()
        self._peak.begin()
        joules, began = self._joules(), time.perf_counter()
        for output in self._engine.frame(observation):
            now = time.perf_counter() - began
            if isinstance(output, Actions):
                record.first_chunks.append(now)
            elif isinstance(output, Token):
                self._hear(output, now, record)
            elif isinstance(output, FrameStats):
                record.prefix_tokens = output.prefix_tokens
        elapsed = time.perf_counter() - began
        used = self._joules()
        self._clock += elapsed
        record.frames.append(elapsed)
        record.joules = None if None in (record.joules, joules, used) else record.joules + used - joules
        peak = self._peak.end()
        record.peak_memory = peak if record.peak_memory is None else max(record.peak_memory, peak)

    def _hear(self, token: Token, now: float, record: Record) -> None:
        record.tokens += token.token_id >= 0
        if token.last:
            asked = self._asked.pop(token.request_id)
            if token.finish_reason is FinishReason.LENGTH:
                record.completed += 1
                record.latencies.append(self._clock + now - asked)


def run(contestants: Sequence[Contestant], observations: Iterator[Observation], arrivals: Iterator[Sequence[int]], *,
        warmup: int, frames: int) -> Iterator[int]:
    """Yields the number of frames that every contestant has done, so that the caller may show progress or stop."""
    for number in range(warmup + frames):
        observation, lengths = next(observations), next(arrivals)
        # Nobody always comes first: what the last one left in the processor's caches is shared out.
        for turn in range(len(contestants)):
            contestant = contestants[(number + turn) % len(contestants)]
            if number >= warmup - contestant.warmup:
                contestant.frame(number, observation, lengths, number >= warmup)
        yield number + 1
