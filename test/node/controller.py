"""ros2_control's joint_trajectory_controller, as far as what a node publishes can tell: what it takes and commands.

Each rule names where it was read: joint_trajectory_controller.cpp or trajectory.cpp of ros-controls/ros2_controllers,
branch jazzy, 2026. Left out: accelerations and effort, wrapped joints, speed scaling, tolerances, actions.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from trajectory_msgs.msg import JointTrajectory


class Rejected(Exception):
    """validate_trajectory_msg does not take it; the message says why."""


class Crashed(Exception):
    """The process of the controller reads memory that is not its own, and the robot is without one."""


@dataclass
class Point:
    time: int
    positions: np.ndarray | None
    velocities: np.ndarray | None


def _ns(stamp) -> int:
    return stamp.sec * 10**9 + stamp.nanosec


class Controller:
    """One with the parameters of these names. Times are ns.

    positions: of the joints, as its state interfaces tell them; `update` may be told others.
    """

    def __init__(self, joints: list[str], positions=None, *, period: float = 0.005, **parameters: bool) -> None:
        self.joints, self._period = joints, round(period * 1e9)
        self._partial = parameters.pop("allow_partial_joints_goal", False)
        self._integrates = parameters.pop("allow_integration_in_goal_trajectories", False)
        self._ends_moving = parameters.pop("allow_nonzero_velocity_at_trajectory_end", False)
        self._from_desired = parameters.pop("interpolate_from_desired_state", False)
        assert not parameters
        held = np.zeros(len(joints)) if positions is None else np.array(positions, float)
        self._commanded = Point(0, held, np.zeros(len(joints)))
        self._new: JointTrajectory | None = None
        self.points: list[Point] = []
        self._start: int | None = None  # of the trajectory, once it has been sampled
        self._segment = 0

    def receive(self, message: JointTrajectory, now: int) -> None:
        """topic_callback. Raises Rejected."""
        self._validate(message, now)
        self._new = message

    def update(self, now: int, positions=None, velocities=None) -> tuple[np.ndarray, np.ndarray]:
        """update: positions and velocities that are commanded until the next one. The joints follow exactly, unless
        told otherwise. Raises Crashed."""
        if self._new is not None:  # a new trajectory takes the old one's place as it is
            self._take(self._new)
            self._new = None
        if not self.points:  # it holds where it was when it became active
            self._commanded.time = now
            return self._commanded.positions, self._commanded.velocities
        if self._start is None:
            self._commanded.time = self._commanded.time or now
            self._before = self._commanded
            if not self._from_desired:
                here = self._commanded.positions if positions is None else np.array(positions, float)
                moving = np.zeros(len(here)) if velocities is None else np.array(velocities, float)
                self._before = Point(now, here, moving)
        self._sample(now)
        sampled = self._sample(now + self._period, advance=False)
        if sampled is not None:
            self._commanded = Point(now, *sampled)
        return self._commanded.positions, self._commanded.velocities

    def _validate(self, message: JointTrajectory, now: int) -> None:
        names, points = list(message.joint_names), message.points
        if not self._partial and len(names) != len(self.joints):
            raise Rejected("joints don't match the controller's")
        if not names:
            raise Rejected("empty joint names")
        if not points:
            raise Rejected("empty trajectory")
        if strangers := set(names) - set(self.joints):
            raise Rejected(f"{sorted(strangers)} don't match the controller's joints")
        if not self._ends_moving and any(abs(v) > np.finfo(np.float32).eps for v in points[-1].velocities):
            raise Rejected("velocity of last point is not zero")
        start = _ns(message.header.stamp)
        if start and start + _ns(points[-1].time_from_start) < now:
            raise Rejected("non-zero start time that ends in the past")
        for old, new in itertools.pairwise(points):
            if _ns(new.time_from_start) <= _ns(old.time_from_start):
                raise Rejected("time is not strictly increasing")
        for point in points:
            assert not len(point.accelerations), "accelerations are not modelled here"
            if self._integrates and not len(point.positions) and not len(point.velocities):
                raise Rejected("a point with neither position nor velocity")
            for values, may_be_empty in ((point.positions, self._integrates), (point.velocities, True)):
                if len(values) != len(names) and not (may_be_empty and not len(values)):
                    raise Rejected("mismatch between joint names and values")
            if len(point.effort):
                raise Rejected("effort for a controller that commands none")

    def _take(self, message: JointTrajectory) -> None:
        """fill_partial_goal and sort_to_local_joint_order: joints that are not named stay where they are commanded."""
        order = [self.joints.index(name) for name in message.joint_names]

        def filled(values, others: np.ndarray) -> np.ndarray | None:
            if not len(values):
                return None
            whole = others.copy()
            whole[order] = values
            return whole

        rest = np.zeros(len(self.joints))
        self._stamp = _ns(message.header.stamp)
        self.points = [
            Point(_ns(p.time_from_start), filled(p.positions, self._commanded.positions), filled(p.velocities, rest))
            for p in message.points
        ]
        self._start, self._segment = None, 0

    def _sample(self, at: int, advance: bool = True) -> tuple[np.ndarray, np.ndarray] | None:
        """Trajectory::sample: from where the joints were to the first point, then from point to point, then the last.

        Points that are past already when it is sampled first are never looked at.
        """
        if self._start is None:
            self._start = self._stamp or at  # zero starts now
            for point in self.points:
                point.time += self._start
        if at < self._before.time:
            return None
        if at < self.points[0].time:
            return _between(self._before, self.points[0], at)
        for i in range(self._segment, len(self.points) - 1):
            if self.points[i].time <= at < self.points[i + 1].time:
                if advance:
                    self._segment = i
                return _between(self.points[i], self.points[i + 1], at)
        self._segment = len(self.points) - 1
        last = self.points[-1]
        if last.positions is None and len(self.points) > 1 and self.points[-2].positions is not None:
            _deduce(self.points[-2], last)
        if last.positions is None:
            return None
        return last.positions, np.zeros_like(last.positions) if last.velocities is None else last.velocities


def _deduce(first: Point, second: Point) -> None:
    """deduce_from_derivatives: where a point has no positions, its velocities lead there from the one before."""
    if second.positions is None:
        if first.positions is None:
            raise Crashed("a point's positions are to follow from those of a point that was past before it had any")
        start = np.zeros_like(second.velocities) if first.velocities is None else first.velocities
        second.positions = first.positions + (start + second.velocities) / 2 * (second.time - first.time) / 1e9


def _between(first: Point, second: Point, at: int) -> tuple[np.ndarray, np.ndarray]:
    """interpolate_between_points: a cubic where both have velocities, else a straight line."""
    _deduce(first, second)
    span, way = (second.time - first.time) / 1e9, second.positions - first.positions
    x = (at - first.time) / (second.time - first.time)
    if first.velocities is None or second.velocities is None:
        return first.positions + x * way, way / span
    # Hermite's: how far the ends' speeds lead away from the straight line.
    early, late = first.velocities * span - way, way - second.velocities * span
    bend = x * (1 - x) * ((1 - x) * early + x * late)
    slope = (1 - 2 * x) * ((1 - x) * early + x * late) + x * (1 - x) * (late - early)
    return first.positions + x * way + bend, (way + slope) / span
