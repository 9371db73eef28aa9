"""Minutes at a full pool: whether memory stays where it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from ..engine.engine import Engine, EngineSettings
from ..engine.observation import Observation
from ..engine.request import LanguageRequest
from ..machine import resident_bytes
from ..pi05.model import Pi05
from .workload import CAMERAS

SAMPLES = 40


def run(model: Pi05, observations: Iterator[Observation], *, denoise_steps: int, tokens: int, steps_per_frame: int,
        requests: int, minutes: float, say: Callable[[str], None]) -> dict:
    """Frames of mode oxygen for so long, with a new request for each, and one KV slot less than they need.

    The first quarter lets caches and the allocator settle; growth is that of the rest, between its first and its second
    half's smallest resident set.
    """
    engine = Engine(model, EngineSettings(
        denoise_steps=denoise_steps, cameras=CAMERAS, slots=max(2, requests), max_requests=requests,
        max_waiting=requests, max_language_tokens=2 * tokens, steps_per_frame=steps_per_frame, seed=0,
    ))
    began, frames, asked, full, samples = time.monotonic(), 0, 0, 0, []
    while (elapsed := time.monotonic() - began) < 60 * minutes:
        if engine.waiting < requests:
            engine.submit(LanguageRequest(asked, (), tokens, end_tokens=()))
            asked += 1
        for output in engine.frame(next(observations)):
            pass
        frames += 1
        full += output.waiting_requests > 0  # somebody waits for a slot
        if elapsed >= 60 * minutes * len(samples) / SAMPLES:
            samples.append(resident_bytes() or 0)
            say(f"minute {elapsed / 60:.1f}: {frames} frames, {output.waiting_requests} requests wait, "
                f"{samples[-1] / 1e6:.1f} MB resident")
    settled = samples[len(samples) // 4 :]
    first, second = settled[: len(settled) // 2], settled[len(settled) // 2 :]
    return {
        "minutes": minutes, "frames": frames, "requests": asked, "frames_at_full_pool": full,
        "resident_bytes": samples, "growth_bytes": min(second) - min(first) if first else None,
    }
