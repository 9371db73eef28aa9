"""Real-time chunking: the next chunk is denoised towards what the robot still has to execute of the last one.

Black, Galliker, Levine, "Real-Time Execution of Action Chunking Flow Policies", arXiv 2506.07339, with the Jacobian
taken as the identity, as LeRobot computes it: no backward pass, the same number of velocity evaluations. Only sampling
changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Schedule = Literal["linear", "exp", "ones", "zeros"]


@dataclass(frozen=True)
class Guidance:
    """What to join, and how firmly.

    leftover: [L, <= A] normalised actions of the last chunk that are not executed yet; row 0 is due together with row 0
    of the new chunk. Rows and dims that it lacks: rows are free, dims are guided towards 0, as padding is.
    delay: control steps that inference will take. Those rows are overtaken before the new chunk can be used: they are
    held firmly, and the robot executes the old ones.
    end: first row that is free. From `delay` to `end` the pull fades by `schedule`.
    max_weight: bound of the guidance weight; more than the number of denoise steps overshoots.
    """

    leftover: Tensor
    delay: int
    end: int
    schedule: Schedule = "linear"
    max_weight: float = 10.0

    def __post_init__(self) -> None:
        if self.delay < 0 or self.end < 0:
            raise ValueError(f"delay {self.delay} and end {self.end} count rows, they cannot be negative")
        if self.max_weight <= 0:
            raise ValueError(f"max_weight is {self.max_weight}, expected more than 0")

    def guide(self, x: Tensor, velocity: Tensor, time: float) -> Tensor:
        """The velocity at x [H, A] and flow time `time`, turned towards the leftover."""
        return velocity - guidance_weight(time, self.max_weight) * self.error(x, velocity, time)

    def error(self, x: Tensor, velocity: Tensor, time: float) -> Tensor:
        """What the clean chunk that x and its velocity foretell lacks of the leftover, as far as rows are held."""
        target = torch.zeros_like(x)
        rows = min(len(self.leftover), len(x))
        target[:rows, : self.leftover.shape[1]] = self.leftover[:rows].to(x)
        mask = soft_mask(len(x), self.delay, self.end, rows, self.schedule).to(x)
        return mask[:, None] * (target - (x - time * velocity))


def soft_mask(horizon: int, delay: int, end: int, leftover: int, schedule: Schedule) -> Tensor:
    """How firmly each row is held: [horizon], 1 before `delay`, 0 from `end` on.

    `end` is cut to the leftover's rows, then `delay` to `end`. Inside the ramp neither 1 nor 0 is reached.
    """
    end = min(end, leftover, horizon)
    delay = min(delay, end)
    ramp = (end - torch.arange(delay, end, dtype=torch.float64)) / (end - delay + 1)
    if schedule == "exp":
        ramp = ramp * torch.expm1(ramp) / math.expm1(1.0)
    elif schedule in ("ones", "zeros"):
        ramp = torch.full_like(ramp, float(schedule == "ones"))
    elif schedule != "linear":
        raise ValueError(f"schedule is {schedule!r}, expected linear, exp, ones or zeros")
    mask = torch.zeros(horizon, dtype=torch.float64)
    mask[:delay] = 1.0
    mask[delay:end] = ramp
    return mask.float()


def guidance_weight(time: float, max_weight: float) -> float:
    """(t^2 + tau^2) / (t tau) with tau = 1 - t, at most `max_weight`; never below 2 unless that is."""
    tau = 1.0 - time
    return max_weight if tau == 0.0 else min(max_weight, (time**2 + tau**2) / (time * tau))


def trained_times(times: list[float], horizon: int, delay: int) -> Tensor:
    """One flow time per action row: [steps, horizon], 0 (clean) for the rows that are already committed.

    For weights trained that way: Black, Ren, Equi, Levine, "Training-Time Action Conditioning", arXiv 2512.05964.
    """
    if not 0 <= delay < horizon:
        raise ValueError(f"delay is {delay}, expected 0 to {horizon - 1}")
    rows = torch.tensor(times, dtype=torch.float64)[:, None].repeat(1, horizon)
    rows[:, :delay] = 0.0
    return rows
