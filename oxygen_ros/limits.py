"""What a robot may be told to do: actions within their limits, that change no faster than they may."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .embodiment.robot import Robot
from .settings import Settings


@dataclass(frozen=True)
class Limited:
    """actions: [H, D], as they may be sent. clamped, slowed: how many values were out of their limits, too fast."""

    actions: np.ndarray
    clamped: int
    slowed: int


class Limits:
    """action_limits of the robot description, and of the settings, which may be newer; rate_limits of the settings."""

    def __init__(self, robot: Robot, settings: Settings) -> None:
        self._robot = replace(robot, action_limits={**robot.action_limits, **settings.action_limits})
        self._steps = robot.step_dt * np.array([settings.rate_limits.get(name) or np.inf for name in robot.actions])

    def apply(self, actions: np.ndarray, first: int, before: np.ndarray) -> Limited:
        """actions: [H, D], robot units, finite. first: row that will be executed first; rows before it are history.
        before: [D] command, or position, that it follows; NaN where there is none to compare with."""
        clipped = self._robot.clip(actions)
        clamped = int(np.count_nonzero(clipped != actions))
        if not np.isfinite(self._steps).any():
            return Limited(clipped, clamped, 0)
        # A robot that stands outside its limits returns into them at once: these are the firmer promise.
        last, slow = self._robot.clip(before[None])[0], clipped.copy()
        for row in slow[first:]:
            low, high = last - self._steps, last + self._steps
            row[:] = np.where(np.isnan(last), row, np.clip(row, low, high))
            last = row.astype(np.float64)
        slow = self._robot.clip(slow)
        return Limited(slow, clamped, int(np.count_nonzero(slow != clipped)))
