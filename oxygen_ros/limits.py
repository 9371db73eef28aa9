"""What a robot may be told to do: actions within their limits, that change no faster than they may."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .embodiment.robot import Robot
from .settings import Settings, SettingsError

_ROUNDED = 1e-6  # what float32 leaves of a number is not slowed


@dataclass(frozen=True)
class Limited:
    """actions: [H, D], as they may be sent. clamped, slowed: how many values were out of their limits, too fast."""

    actions: np.ndarray
    clamped: int
    slowed: int


class Limits:
    """action_limits of the robot description, and of the settings, which may be newer; limits of the joint too, where
    an action is its position, or a displacement that leads to one; rate_limits of the settings. Raises SettingsError
    where nothing is within both."""

    def __init__(self, robot: Robot, settings: Settings) -> None:
        self._robot = replace(robot, action_limits=_ranges(robot, settings))
        displaced = robot.limits if robot.representation == "delta_position" else {}
        anywhere = (-np.inf, np.inf)
        self._reach = np.array([
            anywhere if name in robot.grippers else displaced.get(name, anywhere) for name in robot.actions]).T
        self._steps = robot.step_dt * np.array([settings.rate_limits.get(name) or np.inf for name in robot.actions])

    def apply(self, actions: np.ndarray, first: int, before: np.ndarray, origin: np.ndarray | float = 0.0) -> Limited:
        """actions: [H, D], robot units, finite. first: row that will be executed first; rows before it are history.
        before: [D] command, or position, that it follows; NaN where there is none to compare with.
        origin: [D] positions that displacements start from.

        What starts outside the limits returns into them no faster than it may change."""
        clipped = self._robot.clip(np.clip(actions, *(self._reach - origin).astype(np.float32)))
        clamped = int(np.count_nonzero(clipped != actions))
        if not np.isfinite(self._steps).any():
            return Limited(clipped, clamped, 0)
        last, slow = before, clipped.copy()
        for row in slow[first:]:
            low, high = last - self._steps, last + self._steps
            row[:] = np.where(np.isnan(last), row, np.clip(row, low, high))
            last = row.astype(np.float64)
        return Limited(slow, clamped, int(np.count_nonzero(~np.isclose(slow, clipped, _ROUNDED, _ROUNDED))))


def _ranges(robot: Robot, settings: Settings) -> dict[str, tuple[float, float]]:
    """Lowest and highest of each action that has limits."""
    ranges, problems = {**robot.action_limits, **settings.action_limits}, []
    for name in ranges.keys() & robot.limits.keys():
        if robot.representation == "absolute_position" or name in robot.grippers:
            (low, high), (lowest, highest) = ranges[name], robot.limits[name]
            ranges[name] = max(low, lowest), min(high, highest)
            if max(low, lowest) > min(high, highest):
                problems.append(f"parameter action_limits.{name} is [{low:g}, {high:g}], expected some of "
                                f"limits.{name}, [{lowest:g}, {highest:g}]: no position is within both")
    if problems:
        raise SettingsError(sorted(problems))
    return ranges
