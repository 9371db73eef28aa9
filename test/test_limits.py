"""What may be sent: within limits, within rates, and counted."""

import numpy as np
import pytest

from oxygen_ros.embodiment.generic import from_dict
from oxygen_ros.limits import Limits
from oxygen_ros.settings import SettingsError, read

ARM = {"robot": "arm", "joints": ["a", "b"], "cameras": ["top"], "step_dt": 0.1}
NOWHERE = np.array([np.nan, np.nan])


def limits(**settings):
    arm = {"name": "arm", "joints": ["a", "b"], "cameras": ["top"], "step_dt": 0.1, "limits": {"a": [-1, 1]}}
    return Limits(from_dict(arm), read({**ARM, **settings}))


def test_values_out_of_their_limits_are_clamped_and_counted():
    found = limits().apply(np.float32([[2, 9], [-2, -9], [0.5, 0]]), 0, NOWHERE)
    assert found.actions.tolist() == [[1, 9], [-1, -9], [0.5, 0]] and found.actions.dtype == np.float32
    assert (found.clamped, found.slowed) == (2, 0)
    newer = limits(**{"action_limits.a": [-0.25, 0.5]}).apply(np.float32([[2, 9], [-2, -9], [0.5, 0]]), 0, NOWHERE)
    assert newer.actions[:, 0].tolist() == [0.5, -0.25, 0.5] and newer.clamped == 2


def test_values_that_change_too_fast_are_slowed_from_what_they_follow():
    slow = limits(**{"rate_limits.a": 2.0})  # 0.2 a step
    found = slow.apply(np.float32([[0.9, 5], [0.9, -5], [0.9, 5], [0.1, 0]]), 0, np.array([0.0, 0.0]))
    np.testing.assert_allclose(found.actions[:, 0], [0.2, 0.4, 0.6, 0.4], atol=1e-6)
    assert found.actions[:, 1].tolist() == [5, -5, 5, 0]
    assert (found.clamped, found.slowed) == (0, 4)
    # Where there is nothing to compare with, the first row may be anywhere.
    found = slow.apply(np.float32([[0.9, 0], [0.0, 0]]), 0, NOWHERE)
    np.testing.assert_allclose(found.actions[:, 0], [0.9, 0.7], atol=1e-6)
    assert found.slowed == 1


def test_rows_that_are_history_are_left_as_they_are():
    found = limits(**{"rate_limits.a": 2.0}).apply(np.float32([[-0.9, 0], [0.9, 0], [0.9, 0]]), 1, np.array([0.5, 0]))
    np.testing.assert_allclose(found.actions[:, 0], [-0.9, 0.7, 0.9], atol=1e-6)
    assert found.slowed == 1


def test_a_robot_outside_its_limits_returns_into_them_no_faster_than_it_may():
    found = limits(**{"rate_limits.a": 10.0}).apply(np.float32([[0, 0]] * 4), 0, np.array([3.0, 0.0]))
    np.testing.assert_allclose(found.actions[:, 0], [2, 1, 0, 0], atol=1e-6)
    assert (found.clamped, found.slowed) == (0, 2)
    found = limits(**{"rate_limits.a": 1.0}).apply(np.float32([[-3, 0]] * 30), 0, np.array([-2.05, 0.0]))
    np.testing.assert_allclose(found.actions[:10, 0], np.arange(-1.95, -1.0, 0.1), atol=1e-5)
    assert (found.actions[10:, 0] == -1).all() and found.slowed == 10
    assert limits().apply(np.float32([[3, 0]]), 0, np.array([3.0, 0.0])).actions[0, 0] == 1  # no rate, no ramp


def test_positions_stay_within_the_limits_of_the_joint_and_of_the_action():
    wide = limits(**{"action_limits.a": [-0.5, 3.0]}).apply(np.float32([[2, 9], [-2, -9]]), 0, NOWHERE)
    assert wide.actions[:, 0].tolist() == [1, -0.5]
    with pytest.raises(SettingsError, match=r"action_limits.a is \[2, 3\], expected some of limits.a, \[-1, 1\]"):
        limits(**{"action_limits.a": [2.0, 3.0]})
    speeds = {"name": "arm", "joints": ["a"], "cameras": ["top"], "step_dt": 0.1, "limits": {"a": [-1, 1]},
              "representation": "velocity"}
    # Its limits are of positions, these actions are radians a second.
    found = Limits(from_dict(speeds), read({**ARM, "joints": ["a"], "action_limits.a": [2.0, 3.0]}))
    assert found.apply(np.float32([[9]]), 0, NOWHERE[:1]).actions[0, 0] == 3


def test_displacements_lead_to_positions_within_the_limits_of_the_joint():
    moves = {"name": "arm", "joints": ["a", "claw"], "cameras": ["top"], "step_dt": 0.1, "limits": {"a": [-1, 1]},
             "grippers": {"claw": {"closed": 0, "open": 1}}, "representation": "delta_position"}
    settings = {**ARM, "joints": ["a", "claw"], "action_limits.a": [-0.5, 0.5]}
    found = Limits(from_dict(moves), read(settings)).apply(
        np.float32([[0.4, 0.5], [0.1, 2], [-0.9, 0.5]]), 0, NOWHERE, np.array([0.75, 0.0]))
    np.testing.assert_allclose(found.actions, [[0.25, 0.5], [0.1, 1], [-0.5, 0.5]], atol=1e-6)
    assert found.clamped == 3
    # From outside no farther at a time than a displacement may be.
    found = Limits(from_dict(moves), read(settings)).apply(np.float32([[0, 0]]), 0, NOWHERE, np.array([-3.0, 0.0]))
    assert found.actions[0, 0] == 0.5


@pytest.mark.parametrize("name, value, said", [
    ("action_limits.a", [1, -1], "the lower number first"),
    ("action_limits.a", [1, 1], "the lower number first"),
    ("rate_limits.a", -1.0, "at least 0"),
    ("rate_limits.a", [1.0, 2.0], "a number"),
    ("rate_limits.wheel", 1.0, "none of the actions (a, b)"),
])
def test_limits_that_make_no_sense(name, value, said):
    with pytest.raises(SettingsError, match=name.replace(".", r"\.")) as error:
        read({**ARM, name: value})
    assert said in str(error.value)
