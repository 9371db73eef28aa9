"""A consumer of JointTrajectory that follows the rules of ros2_control's joint_trajectory_controller (Jazzy).

A stamp of zero starts now; a trajectory whose last point is past is rejected; of others, points that are past are
passed over; times increase strictly; a last point that has velocities is at rest. Positions are commanded on the
straight line between points, and from where the joints are to the first one. Velocities without positions are taken
as with allow_integration_in_goal_trajectories.
"""

from __future__ import annotations

import numpy as np
from trajectory_msgs.msg import JointTrajectory


class Rejected(Exception):
    """The controller does not take a trajectory; the message says why."""


def _ns(stamp) -> int:
    return stamp.sec * 10**9 + stamp.nanosec


class Controller:
    def __init__(self, joints: list[str], integrates: bool = False) -> None:
        self._joints, self._integrates = joints, integrates
        self.times, self.points = np.empty(0), np.empty((0, len(joints)))
        self.velocities: np.ndarray | None = None
        self._before = (0, np.zeros(len(joints)))

    def receive(self, message: JointTrajectory, now_ns: int) -> None:
        """Raises Rejected."""
        order = self._order(message)
        if not message.points:
            raise Rejected("empty trajectory")
        start = _ns(message.header.stamp) or now_ns
        times = np.array([start + _ns(point.time_from_start) for point in message.points])
        if times[-1] < now_ns:
            raise Rejected("non-zero start time that ends in the past")
        if (np.diff(times) <= 0).any():
            raise Rejected("times are not strictly increasing")
        kinds = {(bool(p.positions), bool(p.velocities)) for p in message.points}
        if len(kinds) > 1 or kinds & {(False, False)} or (kinds == {(False, True)} and not self._integrates):
            raise Rejected("points without positions")
        for point in message.points:
            if any(len(values) not in (0, len(order)) for values in (point.positions, point.velocities)):
                raise Rejected("mismatch between joint names and values")
        if message.points[-1].velocities and np.abs(message.points[-1].velocities).max() > 1e-9:
            raise Rejected("velocity of last trajectory point is not zero")
        if message.points[0].velocities:
            self.velocities = np.array([p.velocities for p in message.points])[:, order]
        if message.points[0].positions:
            self._before = (now_ns, self.command(now_ns))
            self.times, self.points = times, np.array([p.positions for p in message.points])[:, order]

    def command(self, now_ns: int) -> np.ndarray:
        """[joints] positions."""
        if not len(self.times):
            return self._before[1]
        if now_ns < self.times[0]:
            times, points = np.array([self._before[0], self.times[0]]), np.stack([self._before[1], self.points[0]])
        else:
            times, points = self.times, self.points
        return np.array([np.interp(now_ns, times, column) for column in points.T])

    def _order(self, message: JointTrajectory) -> list[int]:
        names = list(message.joint_names)
        if sorted(names) != sorted(self._joints):
            raise Rejected(f"joints {names}, expected {self._joints}")
        return [names.index(name) for name in self._joints]
