"""Numbers about one rollout: how far its actions are from the recorded ones, how it moves, what it cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..embodiment.robot import Robot
from .commands import Commands
from .rollout import Moment, Rollout

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class Executed:
    """What a robot that follows each chunk until the next one does: rows as they are due.

    times_ns [N], values [N, D] as the commands have them, first [N]: whether the row is the first of a chunk,
    jumps [chunks - 1, D]: at the seams, NaN where the chunk before had ended.
    """

    times_ns: np.ndarray
    values: np.ndarray
    first: np.ndarray
    jumps: np.ndarray


class Errors:
    """Absolute and squared differences, summed by horizon step and dimension; NaN is not compared."""

    def __init__(self, horizon: int, dims: int) -> None:
        self.absolute, self.squared, self.count = (np.zeros((horizon, dims)) for _ in range(3))

    def add(self, differences: np.ndarray) -> None:
        """[H, D]"""
        there = np.isfinite(differences)
        known = np.where(there, differences, 0.0)
        self.absolute += abs(known)
        self.squared += known**2
        self.count += there

    def summary(self, spread: np.ndarray) -> dict[str, Any]:
        """spread [D]: of the actions, to normalise by; where it is 0 nothing is."""
        by_dim = self._means(self.absolute.sum(0), self.squared.sum(0), self.count.sum(0))
        by_step = self._means(self.absolute.sum(1), self.squared.sum(1), self.count.sum(1))
        normal = np.divide(by_dim["mae"], spread, out=np.full(len(spread), np.nan), where=spread > 0)
        total = self._means(self.absolute.sum(), self.squared.sum(), self.count.sum())
        return {**total, "normalised_mae": _mean(normal), "per_dimension": {**by_dim, "normalised_mae": normal},
                "per_step": by_step}

    def _means(self, absolute: Any, squared: Any, count: Any) -> dict[str, Any]:
        with np.errstate(invalid="ignore", divide="ignore"):
            return {"mae": absolute / count, "rmse": np.sqrt(squared / count), "count": count}


def compared(robot: Robot, moment: Moment) -> np.ndarray:
    """The actions of a chunk as commands would say them, [H, D]."""
    if robot.representation == "delta_position":
        return moment.actions + hold(robot, moment)
    return moment.actions


def hold(robot: Robot, moment: Moment) -> np.ndarray:
    """[D]: what keeps the robot where it was seen; NaN of an action that is no joint."""
    if robot.representation == "velocity":
        return np.zeros(robot.action_dim)
    here = {} if moment.state is None else dict(zip(robot.joints, moment.state))
    return np.array([here.get(name, np.nan) for name in robot.actions])


def accuracy(rollout: Rollout, robot: Robot, commands: Commands) -> dict[str, Any]:
    """The policy beside two that see nothing: `hold_position` stays where it is, `mean_action` is the recording's own
    mean, the best that never changes."""
    step_ns = round(robot.step_dt * 1e9)
    chunks = [m for m in rollout.moments if m.actions is not None]
    horizon = max((len(m.actions) for m in chunks), default=1)
    kinds = {name: Errors(horizon, robot.action_dim) for name in ("policy", "hold_position", "mean_action")}
    mean = commands.mean()
    for moment in chunks:
        told = commands.at(moment.start_ns + step_ns * np.arange(horizon), step_ns)
        given = {"policy": compared(robot, moment), "hold_position": hold(robot, moment), "mean_action": mean}
        for name, actions in given.items():
            kinds[name].add(actions - told)
    spread = action_range(robot, commands)
    return {name: errors.summary(spread) for name, errors in kinds.items()}


def action_range(robot: Robot, commands: Commands) -> np.ndarray:
    """[D]: of the declared limits, where there are none of the recorded commands."""
    limits = [robot.action_limits.get(name) for name in robot.actions]
    return np.array([high_low[1] - high_low[0] if high_low else recorded
                     for high_low, recorded in zip(limits, commands.spread())])


def moment_errors(rollout: Rollout, robot: Robot, commands: Commands) -> np.ndarray:
    """[moments]: the mean normalised difference of each chunk, NaN without one."""
    step_ns, spread = round(robot.step_dt * 1e9), action_range(robot, commands)
    spread = np.where(spread > 0, spread, np.nan)
    return np.array([
        np.nan if m.actions is None else _mean(abs(
            compared(robot, m) - commands.at(m.start_ns + step_ns * np.arange(len(m.actions)), step_ns)) / spread)
        for m in rollout.moments
    ])


def executed(rollout: Rollout, robot: Robot) -> Executed:
    step_ns = round(robot.step_dt * 1e9)
    chunks = sorted((m for m in (*rollout.moments, *rollout.holds) if m.actions is not None), key=lambda m: m.sent_ns)
    firsts = [max(0, -(-(m.sent_ns - m.start_ns) // step_ns)) for m in chunks]
    times, values, starts, jumps = [], [], [], []
    for i, (moment, first) in enumerate(zip(chunks, firsts)):
        actions, end = compared(robot, moment), len(moment.actions)
        if i + 1 < len(chunks):
            following, row = chunks[i + 1], firsts[i + 1]
            joins_ns = following.start_ns + row * step_ns
            old = (joins_ns - moment.start_ns) // step_ns
            end = min(end, max(first, -(-(joins_ns - moment.start_ns) // step_ns)))
            there = 0 <= old < len(actions) and row < len(following.actions)
            jumps.append(abs(compared(robot, following)[row] - actions[old]) if there
                         else np.full(robot.action_dim, np.nan))
        rows = range(first, end)
        times += [moment.start_ns + r * step_ns for r in rows]
        values += [actions[r] for r in rows]
        starts += [r == first for r in rows]
    dims = robot.action_dim
    return Executed(np.array(times, np.int64), np.reshape(values, (-1, dims)), np.array(starts, bool),
                    np.reshape(jumps, (-1, dims)))


def motion(done: Executed, robot: Robot, commands: Commands | None) -> dict[str, Any]:
    """Seams and smoothness, in robot units. acceleration is the root mean square of second differences over time
    squared; `recorded` is that of the commands at the same moments."""
    jumps = done.jumps[np.isfinite(done.jumps).all(-1)] if len(done.jumps) else done.jumps
    steps = abs(np.diff(done.values, axis=0)) if len(done.values) > 1 else np.zeros((0, robot.action_dim))
    within = steps[~done.first[1:]] if len(done.first) > 1 else steps
    told = None if commands is None else commands.at(done.times_ns, round(robot.step_dt * 1e9))
    return {
        "chunk_boundary_jump": {
            "count": len(jumps), "mean": _mean(jumps), "max": _largest(jumps),
            "per_dimension": {"mean": _over(jumps, np.mean), "max": _over(jumps, np.max)},
            "mean_over_mean_step": _ratio(_mean(jumps), _mean(within)),
        },
        "smoothness": {
            "acceleration": _acceleration(done.times_ns, done.values, robot.step_dt),
            "recorded": None if told is None else _acceleration(done.times_ns, told, robot.step_dt),
        },
    }


def _acceleration(times_ns: np.ndarray, values: np.ndarray, step: float) -> list[float | None] | None:
    if len(values) < 3:
        return None
    second = np.diff(values, 2, axis=0) / step**2
    even = (abs(np.diff(times_ns) / 1e9 - step) < 0.5 * step)  # not over a gap
    second = second[even[1:] & even[:-1]]
    return [None if not np.isfinite(c).any() else float(np.sqrt(np.nanmean(c**2))) for c in second.T]


def timing(rollout: Rollout) -> dict[str, Any]:
    """What it cost here, and how often there was nothing to compute from."""
    moments = rollout.moments
    chunks = [m for m in moments if m.actions is not None]
    stats = [m.stats for m in moments if m.stats is not None]
    ticks = len(moments)
    waited = max((s.stale_inputs for s in stats), default=0)
    used = {topic: len({m.used[topic] for m in chunks if topic in m.used}) for topic in rollout.received}
    return {
        "ticks": ticks,
        "chunks": len(chunks),
        "skipped_frame_rate": (ticks - len(chunks)) / ticks,
        "stale_input_rate": waited / ticks,
        "failed_frame_rate": sum(m.stats is None for m in moments) / ticks,
        "left_out_ticks": rollout.left_out,
        "deadline_misses": rollout.misses,
        "deadline_miss_rate": rollout.misses / (ticks + rollout.misses),
        "first_chunk_latency_s": percentiles([m.stats.first_chunk_latency for m in chunks if m.stats]),
        "frame_s": percentiles([s.total for s in stats]),
        "observation_age_s": percentiles([(m.tick_ns - min(m.used.values())) / 1e9 for m in chunks if m.used]),
        "messages": {topic: {"received": n, "used": used[topic]} for topic, n in rollout.received.items()},
        "seconds": rollout.seconds,
        "times_real_time": ticks * rollout.period_ns / 1e9 / rollout.seconds if rollout.seconds else None,
    }


def percentiles(values: Sequence[float]) -> dict[str, float] | None:
    if not len(values):
        return None
    return {**{f"p{p}": float(np.percentile(values, p)) for p in PERCENTILES}, "max": float(max(values))}


def plain(value: Any) -> Any:
    """For JSON: arrays as lists, numbers as Python's, and null for what is not a finite number."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, np.ndarray, Iterator)):
        return [plain(inner) for inner in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return (int(value) if value.is_integer() and abs(value) > 1e15 else value) if np.isfinite(value) else None
    return value


def _mean(values: np.ndarray) -> float:
    known = np.asarray(values)[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")


def _largest(values: np.ndarray) -> float:
    return float(np.max(values)) if len(values) else float("nan")


def _over(values: np.ndarray, what: Any) -> list[float] | None:
    return what(values, axis=0).tolist() if len(values) else None


def _ratio(a: float, b: float) -> float:
    return a / b if b else float("nan")
