"""What live language requests do to the chunk that is computed beside them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from ..engine.engine import Engine, EngineSettings
from ..engine.observation import Observation
from ..pi05.model import Pi05
from .side_by_side import Contestant
from .workload import CAMERAS


def measure(model: Pi05, observations: Iterator[Observation], denoise_steps: int, requests: int, frames: int) -> dict:
    """Median seconds to the first chunk with none and with `requests` live requests, which are decoded by one step a
    frame, frame by frame in turn. tokens: what those said meanwhile."""
    warmup = 3
    engine = EngineSettings(
        denoise_steps=denoise_steps, cameras=CAMERAS, slots=requests + 2, max_requests=requests, steps_per_frame=1,
        max_language_tokens=warmup + frames + 2, seed=0,
    )
    alone, beside = (Contestant(Engine(model, engine), lambda: None, warmup) for _ in range(2))
    lengths = [warmup + frames + 1] * requests  # none ends before the last frame
    for number in range(warmup + frames):
        observation = next(observations)
        turn = [(alone, []), (beside, lengths if number == 0 else [])]
        for contestant, asked in turn if number % 2 else reversed(turn):
            contestant.frame(number, observation, asked, number >= warmup)
    without, with_them = (statistics.median(c.record.first_chunks) for c in (alone, beside))
    return {"requests": requests, "alone_s": without, "beside_s": with_them, "change": with_them / without - 1.0,
            "tokens": beside.record.tokens}
