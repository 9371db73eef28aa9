"""Chunks as trajectories that joint_trajectory_controller takes."""

import numpy as np
import pytest
from controller import Controller, Crashed, Rejected

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


def played(controller: Controller, arrivals: dict[float, object], end: float, lag: float = 0.0) -> np.ndarray:
    """[n, joints]: what is commanded for each tenth of a step from START to `end` steps later; `arrivals` are messages
    by the step in which they arrive. The joints follow with a lag of so many steps."""
    commanded, arrivals = [controller.update(START)[0]], dict(arrivals)
    for tenth in range(round(end * 10)):
        now = START + tenth * STEP // 10
        for at in [at for at in arrivals if START + round(at * STEP) <= now]:
            controller.receive(arrivals.pop(at), now)
        behind = commanded[max(0, len(commanded) - 1 - round(lag * 10))]
        commanded.append(controller.update(now, behind)[0])
    return np.array(commanded)


def controller(joints=("a", "b", "claw"), **parameters) -> Controller:
    return Controller(list(joints), period=STEP / 10 / 1e9, **parameters)


def test_points_that_are_past_are_left_out():
    for sent, left in ((0, 5), (0.5, 4), (1, 4), (3, 2)):
        message = joint_trajectory(arm(), chunk(sent))
        assert len(message.points) == left
        controller().receive(message, START + round(sent * STEP))
        controller().receive(message, START + round((sent + 1) * STEP))
    for sent in (3.1, 3.9, 4, 400):  # what may arrive when it is over would be rejected, as an empty one would
        assert joint_trajectory(arm(), chunk(sent)) is None
    late = joint_trajectory(arm(), chunk(3))
    with pytest.raises(Rejected, match="ends in the past"):
        controller().receive(late, START + 5 * STEP)


def test_the_controller_is_where_the_chunk_says_it_should_be():
    commanded = played(controller(("claw", "b", "a")), {1.5: joint_trajectory(arm(), chunk(1.5))}, 9)
    for at, expected in ((2, 2.0), (2.5, 2.5), (4, 4.0), (9, 4.0)):
        np.testing.assert_allclose(commanded[round(at * 10)], [0.5, -expected, expected], atol=1e-6)
    np.testing.assert_allclose(commanded[:16], 0)  # nothing moves before


@pytest.mark.parametrize("velocities", [False, True])
@pytest.mark.parametrize("delivery", [0.0, 0.2, 0.6, 1.3])
def test_one_chunk_after_the_other_is_one_motion(velocities, delivery):
    """In steps: each chunk goes on with the ramp of the last one, is sent 0.4 after it was due, and takes `delivery`.

    The controller is one that goes on from its own command; one that begins anew at the measured position steps back.
    """
    def ramp(due: int):
        actions = np.repeat(np.arange(due, due + 5.0)[:, None], 3, 1).astype(np.float32)
        sent = START + due * STEP + STEP * 2 // 5 * (due > 0)
        return joint_trajectory(arm(), Chunk(actions, 1, 1, START, START + due * STEP, sent, None, None), velocities)

    arrivals = {due + 0.4 * (due > 0) + delivery: ramp(due) for due in (0, 1, 2, 3, 4)}
    commanded = played(controller(interpolate_from_desired_state=True), arrivals, 8, lag=0.5)
    assert (np.diff(commanded, axis=0) >= -1e-9).all()
    settled = slice(round(10 * delivery) + 11, 70 if velocities else 80)  # cubics slow down to the end
    expected = np.minimum(np.arange(len(commanded)) / 10, 8.0)
    # It takes its last command for one that was due an update earlier, and may run ahead by that much for a moment.
    np.testing.assert_allclose(commanded[settled, 0], expected[settled], atol=0.1)
    np.testing.assert_allclose(commanded[80, 0], 8.0, atol=1e-6)
    if delivery < 0.6:  # else the first point is past on arrival, and no controller begins at the joints
        assert np.diff(played(controller(), arrivals, 8, lag=0.5), axis=0).min() < -0.01


def test_velocities_beside_positions_end_at_rest():
    message = joint_trajectory(arm(), chunk(1), velocities=True)
    np.testing.assert_allclose([p.velocities for p in message.points], [[10, -10, 0]] * 3 + [[0, 0, 0]], atol=1e-6)
    taken = controller()
    taken.receive(message, START + STEP)
    for at, speed in ((2, 10), (3, 10), (4, 0), (7, 0)):
        _, velocities = taken.update(START + at * STEP - STEP // 10)
        np.testing.assert_allclose(velocities, [speed, -speed, 0], atol=1e-6)


@pytest.mark.parametrize("delivery", [0.0, 0.3, 2.2])
def test_velocities_are_not_called_positions(delivery):
    message = joint_trajectory(arm(representation="velocity"), chunk(1.5))
    assert list(message.joint_names) == ["a", "b"]  # a gripper's action is a position
    assert not any(point.positions for point in message.points)
    with pytest.raises(Rejected, match="mismatch"):
        controller(("a", "b")).receive(message, START + 2 * STEP)
    integrating = controller(("a", "b"), allow_integration_in_goal_trajectories=True)
    commanded = played(integrating, {1.5 + delivery: message}, 9)
    begun = round(10 * (1.5 + delivery))
    speeds = np.diff(commanded[:, 0]) / (STEP / 10 / 1e9)
    np.testing.assert_allclose(speeds[begun: begun + 5].mean(), 1.0, atol=1e-5)  # from rest to the 2 of row 2
    np.testing.assert_allclose(speeds[begun + 5: begun + 35: 10], [2.05, 3.05, 3.8], atol=1e-5)
    np.testing.assert_allclose(commanded[-1], [0.85, -0.85], atol=1e-5)
    assert trajectory_joints(robot("droid")) == [f"panda_joint{i}" for i in range(1, 8)]


def test_stamped_velocities_would_end_the_controller_s_process():
    message = joint_trajectory(arm(representation="velocity"), chunk(1.5))
    message.header.stamp.sec = START // 10**9
    with pytest.raises(Crashed):
        played(controller(("a", "b"), allow_integration_in_goal_trajectories=True), {1.0: message}, 9)


@pytest.mark.parametrize("reason, spoil", [
    ("joints don't match", lambda m: m.joint_names.pop()),
    ("don't match the controller's joints", lambda m: m.joint_names.__setitem__(0, "z")),
    ("empty trajectory", lambda m: setattr(m, "points", [])),
    ("not strictly increasing", lambda m: setattr(m.points[1], "time_from_start", m.points[0].time_from_start)),
    ("not strictly increasing", lambda m: m.points.reverse()),
    ("last point is not zero", lambda m: setattr(m.points[-1], "velocities", [1e-6, 0.0, 0.0])),
    ("mismatch", lambda m: m.points[2].positions.pop()),
    ("mismatch", lambda m: setattr(m.points[2], "velocities", [0.0])),
    ("effort", lambda m: setattr(m.points[0], "effort", [0.0] * 3)),
])
def test_the_controller_refuses(reason, spoil):
    message = joint_trajectory(arm(), chunk(0))
    controller().receive(message, START)
    spoil(message)
    with pytest.raises(Rejected, match=reason):
        controller().receive(message, START)


def test_the_controller_lets_what_it_is_told_to():
    message = joint_trajectory(arm(), chunk(0), velocities=True)
    message.points[-1].velocities[0] = 1.0
    controller(allow_nonzero_velocity_at_trajectory_end=True).receive(message, START)
    more = controller(("a", "b", "claw", "neck"), allow_partial_joints_goal=True)
    more.receive(joint_trajectory(arm(), chunk(0)), START)
    np.testing.assert_allclose(more.update(START + STEP)[0], [1.1, -1.1, 0.5, 0], atol=1e-6)


def test_displacements_are_told_as_positions():
    displaced = arm(representation="delta_position")
    message = joint_trajectory(displaced, chunk(3, state=np.array([10.0, 20.0, 0.1])))
    np.testing.assert_allclose(message.points[0].positions, [13, 17, 0.5], atol=1e-6)
    assert joint_trajectory(displaced, chunk(0, state=None)) is None
    with pytest.raises(InputError, match="displacements of wheel"):
        trajectory_joints(arm(actions=["a", "wheel"], grippers={}, representation="delta_position"))


def test_what_moves_a_hand_is_no_joint_trajectory():
    with pytest.raises(InputError, match="end_effector_delta.*action_chunk"):
        trajectory_joints(robot("libero"))
