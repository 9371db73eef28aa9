"""Flow matching: times, their embedding, and the Euler steps from noise (t = 1) to actions (t = 0)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor


def time_embedding(times: Tensor, width: int, min_period: float, max_period: float) -> Tensor:
    """Sines, then cosines, of 2 pi t / period over width / 2 geometrically spaced periods, both ends included.

    times [...] -> [..., width] in float64: the highest frequency is 2 pi / min_period = 1571 rad per unit of t,
    where float32 angles would be visible in the actions.
    """
    fraction = torch.linspace(0.0, 1.0, width // 2, dtype=torch.float64, device=times.device)
    period = min_period * (max_period / min_period) ** fraction
    angle = 2.0 * math.pi * times.double()[..., None] / period
    return torch.cat((angle.sin(), angle.cos()), dim=-1)


def flow_times(steps: int, accumulated: bool = False) -> list[float]:
    """The flow time of each of `steps` Euler steps.

    Exact (1 - i / n, as LeRobot computes it), or `accumulated` in float32 as openpi's loop does. The actions
    differ by about 1e-4.
    """
    if steps < 1:
        raise ValueError(f"denoise steps must be at least 1, not {steps}")
    if not accumulated:
        return [float(torch.tensor(1.0 - i / steps, dtype=torch.float32)) for i in range(steps)]
    delta = torch.tensor(-1.0 / steps, dtype=torch.float32)
    time, times = torch.tensor(1.0, dtype=torch.float32), []
    while time >= -delta / 2:
        times.append(float(time))
        time = time + delta
    return times


def euler(
    noise: Tensor,
    steps: int,
    velocity: Callable[[Tensor, int], Tensor],
    guide: Callable[[Tensor, Tensor, float], Tensor] | None = None,
) -> Tensor:
    """Integrate `velocity(x, step)` from noise [H, A] to actions [H, A]; the host never waits for the device.

    guide is given x, its velocity and the flow time, and returns the velocity to take.
    """
    x = noise
    for step in range(steps):
        v = velocity(x, step)
        if guide is not None:
            v = guide(x, v, 1.0 - step / steps)
        x = torch.add(x, v, alpha=-1.0 / steps)
    return x
