import numpy as np
import pytest

from oxygen_ros.embodiment.errors import InputError
from oxygen_ros.embodiment.generic import from_dict
from oxygen_ros.embodiment.robot import Camera

ARM = {
    "name": "arm",
    "step_dt": 0.05,
    "frame_id": "base",
    "cameras": ["top", {"name": "hand", "slot": "left_wrist_0_rgb", "required": True, "rotation": 180}],
    "joints": ["j1", "j2", "finger"],
    "delta": ["j1", "j2"],
    "flip": ["j2"],
    "grippers": {"finger": {"closed": 0.08, "open": 0.01}},
    "limits": {"j1": [-1, 1]},
}


def test_a_whole_description():
    arm = from_dict(ARM)
    assert arm.cameras == (Camera("top", "top"), Camera("hand", "left_wrist_0_rgb", True, 180))
    assert (arm.joints, arm.actions, arm.step_dt, arm.frame_id) == (("j1", "j2", "finger"),) * 2 + (0.05, "base")
    assert arm.limits == arm.action_limits == {"j1": (-1, 1), "finger": (0.01, 0.08)}
    state = arm.to_model_state(np.array([0.5, 0.25, 0.045]))  # half open, of a gripper whose open is the smaller number
    np.testing.assert_allclose(state, [0.5, -0.25, 0.5], atol=1e-12)
    np.testing.assert_allclose(
        arm.to_robot_actions(np.array([[0.1, 0.1, 1.0, 7.0]]), state), [[0.6, 0.15, 0.01]], atol=1e-12
    )


def test_an_owner_s_grippers_of_another_data_set():
    arm = from_dict(
        {**ARM, "grippers": {"finger": {"closed": 0.0, "open": 0.04, "model_closed": 1.0, "model_open": -1.0}}}
    )
    np.testing.assert_allclose(arm.to_model_state(np.array([0, 0, 0.01])), [0, 0, 0.5], atol=1e-12)


def test_limits_are_of_what_has_the_name():
    tool = {**ARM, "actions": ["j1", "j2", "claw"], "grippers": {"claw": {"closed": 1, "open": -1}}}
    assert from_dict(tool).limits == {"j1": (-1, 1)}
    assert from_dict(tool).action_limits == {"j1": (-1, 1), "claw": (-1, 1)}
    assert from_dict({**tool, "representation": "velocity"}).action_limits == {"claw": (-1, 1)}
    narrow = {**ARM, "limits": {"j1": [-1, 1], "finger": [0.02, 0.07]}, "representation": "delta_position"}
    assert from_dict(narrow).action_limits == {"finger": (0.02, 0.07)}
    given = {**tool, "action_limits": {"j2": [-3, 3], "claw": [0, 1]}}
    assert from_dict(given).action_limits == {"j1": (-1, 1), "j2": (-3, 3), "claw": (0, 1)}
    assert from_dict({**given, "representation": "velocity"}).action_limits == {"j2": (-3, 3), "claw": (0, 1)}


@pytest.mark.parametrize(
    "change, words",
    [
        ({"colour": "red"}, ("unknown key colour", "name, cameras")),
        ({"cameras": []}, ("cameras", "at least one")),
        ({"cameras": [{"name": "top", "topic": "/x"}]}, ("cameras[0]", "unknown key topic", "rotation")),
        ({"cameras": [{"slot": "top"}]}, ("cameras[0]", "no name")),
        ({"cameras": [{"name": "top", "rotation": 45}]}, ("cameras[0].rotation", "45", "0, 90, 180, 270")),
        ({"cameras": [{"name": "top", "required": "yes"}]}, ("cameras[0].required", "'yes'")),
        ({"cameras": ["top", {"name": "low", "slot": "top"}]}, ("camera slots", "top more than once")),
        ({"joints": ["j1", "j1", "finger"]}, ("joints", "j1 more than once")),
        ({"joints": "j1 j2"}, ("joints", "'j1 j2'", "list")),
        ({"delta": ["j9"]}, ("delta", "j9", "finger, j1, j2")),
        ({"flip": ["j9"]}, ("flip", "j9")),
        ({"grippers": {"claw": {"closed": 0, "open": 1}}}, ("grippers", "claw")),
        ({"grippers": {"finger": {"closed": 0}}}, ("gripper.finger", "no open")),
        ({"grippers": {"finger": {"closed": 0, "open": "wide"}}}, ("gripper.finger.open", "'wide'", "number")),
        ({"grippers": {"finger": {"closed": 1, "open": 1}}}, ("gripper.finger", "closed equal to open")),
        (
            {"grippers": {"finger": {"closed": 0, "open": 1, "convention": "magic"}}},
            ("gripper.finger.convention", "magic", "aloha_finger"),
        ),
        ({"limits": {"j1": [1, -1]}}, ("limits.j1", "lower first")),
        ({"limits": {"j1": 3}}, ("limits.j1", "3", "[lowest, highest]")),
        ({"limits": {"j1": [float("nan"), 1]}}, ("limits.j1", "nan")),
        ({"step_dt": 0}, ("step_dt", "0.0001 to 1000")),
        ({"step_dt": 1e-10}, ("step_dt", "1e-10", "0.0001 to 1000")),
        ({"step_dt": "20ms"}, ("step_dt", "'20ms'")),
        ({"representation": "torque"}, ("representation", "'torque'", "velocity")),
        ({"prompt": "chat"}, ("prompt", "'chat'", "plain")),
        ({"frame_id": 3}, ("frame_id", "3")),
    ],
)
def test_wrong_keys_name_key_found_and_expected(change, words):
    with pytest.raises(InputError) as error:
        from_dict({**ARM, **change})
    for word in words:
        assert word in str(error.value)


def test_missing_keys_are_listed():
    with pytest.raises(InputError, match="no cameras, joints, step_dt"):
        from_dict({"name": "arm"})
    with pytest.raises(InputError, match="mapping"):
        from_dict("aloha")
