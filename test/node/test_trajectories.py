"""Chunks as trajectories that joint_trajectory_controller takes."""

import numpy as np
import pytest
from controller import Controller, Rejected

from oxygen_ros.commander import Chunk
from oxygen_ros.embodiment.errors import InputError
from oxygen_ros.embodiment.generic import from_dict
from oxygen_ros.embodiment.registry import robot
from oxygen_ros.node.messages import joint_trajectory, trajectory_joints

STEP = 100_000_000
START = 50 * 10**9
ARM = {"name": "arm", "joints": ["a", "b", "claw"], "cameras": ["top"], "step_dt": 0.1,
       "grippers": {"claw": {"closed": 0, "open": 1}}}


def arm(**changes):
    return from_dict({**ARM, **changes})


def chunk(sent: float, state=None):
    """Five actions from START on, sent so many steps later."""
    actions = np.stack([np.arange(5.0), -np.arange(5.0), np.full(5, 0.5)], 1).astype(np.float32)
    return Chunk(actions, 1, 1, START, START, START + round(sent * STEP), None, state)


def test_points_that_are_past_are_left_out():
    for sent, left in ((0, 5), (0.5, 4), (1, 4), (3.9, 1), (4, 1)):
        message = joint_trajectory(arm(), chunk(sent))
        assert len(message.points) == left
        Controller(["a", "b", "claw"]).receive(message, START + round(sent * STEP))
    for sent in (4.1, 400):
        assert joint_trajectory(arm(), chunk(sent)) is None  # an empty one would be rejected
    late = joint_trajectory(arm(), chunk(3))
    with pytest.raises(Rejected, match="ends in the past"):
        Controller(["a", "b", "claw"]).receive(late, START + 5 * STEP)


def test_the_controller_is_where_the_chunk_says_it_should_be():
    controller = Controller(["claw", "b", "a"])
    controller.receive(joint_trajectory(arm(), chunk(1.5)), START + STEP * 3 // 2)
    for at, expected in ((2, 2.0), (2.5, 2.5), (4, 4.0), (9, 4.0)):
        np.testing.assert_allclose(controller.command(START + round(at * STEP)), [0.5, -expected, expected], atol=1e-6)


def test_velocities_beside_positions_end_at_rest():
    message = joint_trajectory(arm(), chunk(1), velocities=True)
    controller = Controller(["a", "b", "claw"])
    controller.receive(message, START + STEP)
    np.testing.assert_allclose(controller.velocities, [[10, -10, 0]] * 3 + [[0, 0, 0]], atol=1e-6)


def test_velocities_are_not_called_positions():
    message = joint_trajectory(arm(representation="velocity"), chunk(2))
    assert list(message.joint_names) == ["a", "b"]  # a gripper's action is a position
    assert not any(point.positions for point in message.points)
    with pytest.raises(Rejected, match="without positions"):
        Controller(["a", "b"]).receive(message, START + 2 * STEP)
    controller = Controller(["a", "b"], integrates=True)
    controller.receive(message, START + 2 * STEP)
    np.testing.assert_allclose(controller.velocities, [[2, -2], [3, -3], [4, -4], [0, 0]], atol=1e-6)
    assert trajectory_joints(robot("droid")) == [f"panda_joint{i}" for i in range(1, 8)]


def test_displacements_are_told_as_positions():
    displaced = arm(representation="delta_position")
    message = joint_trajectory(displaced, chunk(4, state=np.array([10.0, 20.0, 0.1])))
    np.testing.assert_allclose(message.points[0].positions, [14, 16, 0.5], atol=1e-6)
    assert joint_trajectory(displaced, chunk(0, state=None)) is None
    with pytest.raises(InputError, match="displacements of wheel"):
        trajectory_joints(arm(actions=["a", "wheel"], grippers={}, representation="delta_position"))


def test_what_moves_a_hand_is_no_joint_trajectory():
    with pytest.raises(InputError, match="end_effector_delta.*action_chunk"):
        trajectory_joints(robot("libero"))
