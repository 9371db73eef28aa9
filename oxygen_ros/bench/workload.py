"""What a robot sees and is told, as far as it costs time: cameras, prompt length, language requests per frame."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch

from ..engine.observation import Observation
from ..pi05.config import Pi05Config

CAMERAS = 3
"""Camera places of pi0.5; what a robot lacks of them, openpi computes and masks."""

Arrival = Literal["uniform", "bursty", "poisson", "mixed"]
ARRIVALS: tuple[Arrival, ...] = ("uniform", "bursty", "poisson", "mixed")
BURST = 4


@dataclass(frozen=True)
class Workload:
    """cameras: those that are there. state_numbers: how many the prompt holds (pi05.md section 9.5)."""

    cameras: int
    state_numbers: int
    task_tokens: int = 20

    @property
    def prompt_tokens(self) -> int:
        """The task, and for each state number up to three digits and a space: two tokens on average."""
        return self.task_tokens + 2 * self.state_numbers

    def observations(self, config: Pi05Config, seed: int) -> Iterator[Observation]:
        """New pictures, prompt and noise for every frame, the same for the same seed."""
        generator = torch.Generator().manual_seed(seed)
        size = config.vision.image_size
        length = min(self.prompt_tokens, config.max_token_len)
        stamp = 0
        while True:
            stamp += 1
            yield Observation(
                images=torch.randint(256, (self.cameras, size, size, 3), dtype=torch.uint8, generator=generator),
                tokens=torch.randint(4, config.vocab_size, (length,), generator=generator),
                stamp_ns=stamp,
                noise=torch.randn(config.action_horizon, config.action_dim, generator=generator),
            )


WORKLOADS = {
    "libero": Workload(cameras=2, state_numbers=0),
    "droid": Workload(cameras=2, state_numbers=8),
    "aloha": Workload(cameras=3, state_numbers=14),
}


def arrivals(pattern: Arrival, tokens: int, seed: int) -> Iterator[list[int]]:
    """The requests that arrive at each frame, as how many tokens each decodes; the same for the same seed.

    One a frame on average, of `tokens` tokens on average: uniform has exactly one; bursty has BURST at once, then
    none; poisson draws how many; mixed has one of a length from 1 to 2 `tokens` - 1. No tokens: no requests.
    """
    rng = random.Random(seed)
    frame = 0
    while True:
        if not tokens:
            yield []
        elif pattern == "uniform":
            yield [tokens]
        elif pattern == "bursty":
            yield [tokens] * (BURST if frame % BURST == 0 else 0)
        elif pattern == "poisson":
            yield [tokens] * _poisson(rng)
        elif pattern == "mixed":
            yield [rng.randint(1, 2 * tokens - 1)]
        else:
            raise ValueError(f"arrival {pattern!r} is unknown, expected one of {', '.join(ARRIVALS)}")
        frame += 1


def _poisson(rng: random.Random) -> int:
    """A draw with mean 1 (Knuth's product of uniforms)."""
    count, product = -1, 1.0
    while product > math.exp(-1.0):
        product *= rng.random()
        count += 1
    return count
