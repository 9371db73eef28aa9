"""How a chunk joins the one that is being executed: when it starts, what of the old one stays, how far apart they are.

Real-time chunking at run time (Black, Galliker, Levine, arXiv 2506.07339, section 4); the mathematics is pi05.rtc.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import torch

from .embodiment.pipeline import Pipeline
from .embodiment.robot import Robot
from .limits import Limits
from .motion import Motion
from .pi05.rtc import Guidance, soft_mask
from .settings import Settings

_REMEMBERED = 16  # inferences whose longest says how long the next one may take; one slow start is forgotten in time


@dataclass(frozen=True)
class Command:
    """A chunk to be executed: action i is due at start_ns + i * step_dt.

    actions: float32 [H, D], robot units, within limits. committed: how many of its first rows are the old chunk's.
    boundary_jump: largest difference, over actions and in their own units, between this chunk and what it follows, at
    the moment when it takes over: the old chunk or hold, or the joints' positions where there was none to execute.
    clamped, slowed: as in Limited.
    """

    actions: np.ndarray
    start_ns: int
    committed: int = 0
    boundary_jump: float = 0.0
    clamped: int = 0
    slowed: int = 0


@dataclass(frozen=True)
class Seam:
    """What a chunk that is being computed will join.

    old: [L + 2, D], robot units, the old chunk, relative to the new state where the robot's actions are displacements:
    the action before row 0 of the new chunk is due, the L `rows` that are left, of which row i is due with row i of the
    new chunk, and what stays behind them. Where there is no old chunk L is 0, and the other two are the action that
    leaves the robot where it is. delay: rows that inference will probably overtake. state: [state_dim], robot units.
    model_state: the same in model units. Times are ROS time.
    """

    run: int
    old: np.ndarray
    delay: int
    state: np.ndarray
    model_state: np.ndarray
    stamp_ns: int
    began_ns: int

    @property
    def rows(self) -> np.ndarray:
        return self.old[1:-1]


@dataclass(frozen=True)
class _Course:
    """The chunk that is being executed. origin: [D], positions that displacements are relative to, else 0."""

    actions: np.ndarray
    start_ns: int
    origin: np.ndarray

    def at(self, steps: np.ndarray) -> np.ndarray:
        """[n] times, in steps from the start -> [n, D], on the straight line between two actions, held at both ends."""
        steps = np.clip(steps, 0, len(self.actions) - 1)
        row = np.floor(steps).astype(int)
        after = np.minimum(row + 1, len(self.actions) - 1)
        way = (steps - row)[:, None]
        return (1 - way) * self.actions[row] + way * self.actions[after] + self.origin


class Continuity:
    """For one robot. `begin` and `finish` of one frame after the other, `hold` between two calls of them.

    settings may be replaced at any time between calls, by `use`.
    """

    def __init__(self, pipeline: Pipeline, settings: Settings) -> None:
        self._pipeline, self._robot = pipeline, pipeline.robot
        self._step_ns = round(self._robot.step_dt * 1e9)
        self._motion, self._course = Motion(), None
        self._spans: deque[int] = deque(maxlen=_REMEMBERED)
        self.use(settings)

    def use(self, settings: Settings) -> None:
        self._settings, self._limits = settings, Limits(self._robot, settings)

    def begin(self, run: int, state: np.ndarray, model_state: np.ndarray, stamp_ns: int, now_ns: int) -> Seam:
        """run: as in Motion. stamp_ns: of the observation, when row 0 of its chunk is due if the robot is moving."""
        delay = self._steps_until(now_ns + max(self._spans, default=0), stamp_ns)
        if self._motion.moving(run, now_ns):
            course, last = self._course, len(self._course.actions) - 1
            steps = (stamp_ns - course.start_ns) / self._step_ns + np.arange(-1, last + 1)
            left = steps[1:][steps[1:] <= last]
            old = course.at(np.array([steps[0], *left, last])) - self._origin(state)
        elif self._motion.resting(now_ns):
            old = self._course.actions[:1].repeat(2, 0)
        else:
            old = self._standing(_by_action(self._robot, state))[None].repeat(2, 0)
        return Seam(run, old, min(delay, len(old) - 2), state, model_state, stamp_ns, now_ns)

    def guidance(self, seam: Seam) -> Guidance | None:
        """What the chunk's denoising is given; None where nothing is to guide it."""
        settings = self._settings
        if settings.chunk_continuity != "rtc" or not len(seam.rows):
            return None
        return Guidance(
            torch.from_numpy(self._pipeline.model_actions(seam.rows, seam.model_state)),
            seam.delay,
            settings.continuity_rows or len(seam.rows),
            settings.continuity_schedule,
            settings.guidance_weight or settings.denoise_steps,
        )

    def finish(self, actions: np.ndarray, seam: Seam, now_ns: int) -> Command | None:
        """actions: [H, D], robot units, finite. now_ns: when they are sent. None where all of them are past, though the
        old chunk is not: the robot goes on with that."""
        self._spans.append(max(0, now_ns - seam.began_ns))
        if self._motion.moving(seam.run, now_ns) and self._steps_until(now_ns, seam.stamp_ns) >= len(actions):
            return None
        start_ns = self._motion.start_ns(seam.run, seam.stamp_ns, now_ns, len(actions) * self._step_ns)
        old = seam.old
        if start_ns != seam.stamp_ns:  # it has ended, if there was one
            old = self._ended(old[-1:]).repeat(2, 0)
        due = min(self._steps_until(now_ns, start_ns), len(actions))
        joined, committed, first = self._join(np.array(actions, np.float32), old[1:-1], seam.delay, due)
        done = min(due, committed)  # what has been executed of the old chunk stays as it was, whatever limits say now
        origin = self._origin(seam.state)
        limited = self._limits.apply(joined[done:], due - done, old[min(due, len(old) - 1)], origin)
        sent = np.concatenate([joined[:done], limited.actions])
        jump = _distance(sent[first:first + 1], old[min(first + 1, len(old) - 1)])
        command = Command(sent, start_ns, committed, jump, limited.clamped, limited.slowed)
        self._course = _Course(command.actions, start_ns, origin)
        return command

    def hold(self, now_ns: int, state: np.ndarray | None, horizon: int) -> Command | None:
        """A chunk [horizon, D] that stays where the last one has led to by now; where that has ended, and arms may have
        been moved by others, at `state`: [state_dim], robot units, None if unknown. None if neither is known.

        Of the command where there is one, not of the measured position: the arm does not turn back by its lag, nor a
        gripper let go.
        """
        course, robot = self._course, self._robot
        there, led = np.full(robot.action_dim, np.nan), self.led_to(now_ns, state)
        if course is not None:
            there = self._by_now(course, now_ns) - course.origin
        if state is not None and not self._motion.under_way(now_ns):
            seen = _by_action(robot, state)
            told = np.isnan(seen) | (np.isin(robot.actions, robot.grippers) & np.isfinite(there))
            there = np.where(told, there, seen)
        row = self._standing(there)
        if not np.isfinite(row).all():
            return None
        actions = np.repeat(row[None], horizon, 0).astype(np.float32)
        origin = np.zeros(robot.action_dim) if led is None else self._origin(led)
        self._course = _Course(actions, now_ns, origin)
        self._motion.rest(now_ns, horizon * self._step_ns)
        return Command(actions, now_ns)

    def led_to(self, now_ns: int, state: np.ndarray | None) -> np.ndarray | None:
        """`state`, [state_dim], where the joints are; of a robot of displacements where the chunk under way has led them
        to by now, and where the last one did if it is unknown."""
        course, robot = self._course, self._robot
        if robot.representation != "delta_position" or course is None or (
                state is not None and not self._motion.under_way(now_ns)):
            return state
        led = dict(zip(robot.actions, self._by_now(course, now_ns)))
        seen = np.full(len(robot.joints), np.nan) if state is None else state
        moved = [name in led and name not in robot.grippers for name in robot.joints]
        return np.where(moved, [led.get(name, np.nan) for name in robot.joints], seen)

    def forget(self) -> None:
        """The robot may have been moved by others since, as while the node was not active."""
        self._motion, self._course = Motion(), None

    def _join(self, actions: np.ndarray, rows: np.ndarray, delay: int, first: int) -> tuple[np.ndarray, int, int]:
        """(actions, how many rows are the old chunk's, first row that counts as the new chunk's)"""
        kind, settings = self._settings.chunk_continuity, self._settings
        overtaken = min(first, len(rows))
        if kind == "rtc" and len(rows):
            # The robot has executed the old chunk up to now, and goes on up to where the new one was meant to begin.
            committed = min(max(overtaken, delay), len(rows))
            actions[:committed] = rows[:committed]
            return actions, committed, max(first, committed)
        if kind == "blend" and len(rows):
            end = max(settings.continuity_rows or len(rows), overtaken)
            mask = soft_mask(len(actions), overtaken, end, len(rows), settings.continuity_schedule).numpy()
            faded = mask[: len(rows), None]
            actions[: len(rows)] = faded * rows + (1 - faded) * actions[: len(rows)]
            return actions, overtaken, first
        return actions, 0, first

    def _standing(self, positions: np.ndarray) -> np.ndarray:
        """The action [D] of a robot that stands still at these positions."""
        if self._robot.representation == "absolute_position":
            return positions
        return np.where([name in self._robot.grippers for name in self._robot.actions], positions, 0.0)

    def _ended(self, action: np.ndarray) -> np.ndarray:
        """The action [..., D] of a robot for which this was the last one: what is no speed or step stays."""
        positions = self._robot.representation in ("absolute_position", "delta_position")
        return action if positions else self._standing(action)

    def _origin(self, state: np.ndarray) -> np.ndarray:
        if self._robot.representation != "delta_position":
            return np.zeros(self._robot.action_dim)
        moved = [name not in self._robot.grippers for name in self._robot.actions]
        return np.where(moved, np.nan_to_num(_by_action(self._robot, state)), 0.0)

    def _by_now(self, course: _Course, now_ns: int) -> np.ndarray:
        """[D]: where it has led to."""
        return course.at(np.array([(now_ns - course.start_ns) / self._step_ns]))[0]

    def _steps_until(self, now_ns: int, start_ns: int) -> int:
        """First row that is not due before now."""
        return max(0, -(-(now_ns - start_ns) // self._step_ns))


def _distance(action: np.ndarray, there: np.ndarray) -> float:
    """Largest difference of [1 or 0, D] from [D], over what is known of that."""
    return float(np.abs(action - there)[:, np.isfinite(there)].max(initial=0.0))


def _by_action(robot: Robot, state: np.ndarray) -> np.ndarray:
    """[D]: the position of the joint of each action's name, NaN where it is no joint."""
    return np.array([state[robot.joints.index(name)] if name in robot.joints else np.nan for name in robot.actions])
