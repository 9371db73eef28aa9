import numpy as np
import pytest

from oxygen_ros.embodiment.aloha import FINGER_CLOSED, FINGER_OPEN, FingerAction, FingerState, MotorAction
from oxygen_ros.embodiment.errors import InputError
from oxygen_ros.embodiment.normalization import Normalizer, Statistics
from oxygen_ros.embodiment.registry import ROBOTS, robot

RECORDED = {"aloha_pi05": "aloha_openpi", "libero_pi05": "libero", "droid_pi05": "droid"}


@pytest.mark.parametrize("case, name", RECORDED.items())
def test_openpi_s_transforms(recorded, case, name):
    case, known = recorded["robots"][case], robot(name)
    state = known.to_model_state(np.concatenate(list(case["raw_state"].values())))
    np.testing.assert_allclose(state, case["state_after_robot_transform"], rtol=0, atol=1e-9)

    statistics = {feature: Statistics(**measures) for feature, measures in case["norm_stats"].items()}
    normalized = Normalizer("openpi_quantile", statistics["state"], known.state_dim, "state").normalize(state)
    np.testing.assert_allclose(normalized, case["state_normalized_padded"][: known.state_dim], rtol=0, atol=1e-9)

    normalizer = Normalizer("openpi_quantile", statistics["actions"], known.action_dim, "actions")
    actions = known.to_robot_actions(normalizer.unnormalize(np.array(case["model_actions"])), state)
    np.testing.assert_allclose(actions, case["final_actions"], rtol=0, atol=1e-9)
    assert [slot for slot, given in case["image_mask"].items() if not given] == ["right_wrist_0_rgb"]
    assert [camera.slot for camera in known.cameras][:2] == ["base_0_rgb", "left_wrist_0_rgb"]


def between(limits, names):
    """[9, D] from all at their lowest to all at their highest."""
    ends = np.array([limits.get(name, (-1.0, 1.0)) for name in names])
    return ends[:, 0] + np.linspace(0, 1, 9)[:, None] * (ends[:, 1] - ends[:, 0])


@pytest.mark.parametrize("name", ROBOTS)
def test_state_and_actions_come_back(name):
    known = robot(name)
    for state in between(known.limits, known.joints):
        model_state = known.to_model_state(state)
        np.testing.assert_allclose(known.to_robot_state(model_state), state, rtol=0, atol=1e-5)
        actions = between(known.action_limits, known.actions)
        back = known.to_robot_actions(known.to_model_actions(actions, model_state), model_state)
        np.testing.assert_allclose(back, actions, rtol=0, atol=1e-5)


def test_aloha_signs():
    model = robot("aloha").to_model_state(np.ones(14))
    arm = [i for i in range(14) if i not in (6, 13)]
    assert model[arm].tolist() == [-1.0 if i in (1, 2, 8, 9) else 1.0 for i in arm]


@pytest.mark.parametrize("closed, open_", [(FINGER_CLOSED, FINGER_OPEN), (0.0449, 0.058), (0.9, -0.4)])
def test_gripper_range_and_direction_are_data(closed, open_):
    grippers = {
        f"{side}_gripper": {"closed": closed, "open": open_, "convention": "aloha_finger"} for side in ("left", "right")
    }
    ours, openpi = robot("aloha", {"grippers": grippers}), robot("aloha_openpi")
    for g in (0.0, 0.5, 1.0):
        state, normal = np.zeros(14), np.zeros(14)
        state[[6, 13]], normal[[6, 13]] = closed + g * (open_ - closed), g
        np.testing.assert_allclose(ours.to_model_state(state), openpi.to_model_state(normal), rtol=0, atol=1e-12)
        np.testing.assert_allclose(ours.to_robot_state(ours.to_model_state(state)), state, rtol=0, atol=1e-5)
        # Holding still: the pose that is read, given as an action, is commanded back.
        model = ours.to_model_state(state)
        np.testing.assert_allclose(
            ours.to_robot_actions(ours.to_model_actions(state, model), model), state, rtol=0, atol=1e-5
        )


def test_aloha_finger_and_motor_are_one_gripper():
    angles = np.linspace(-0.6, 1.5, 50) - 0.5476  # radians above pi's closed angle, the model's action
    fingers, motors = FingerAction().to_robot(angles), MotorAction().to_robot(angles)
    np.testing.assert_allclose(motors * (1.4910 + 0.6213) - 0.6213, angles + 0.5476, rtol=0, atol=1e-12)
    np.testing.assert_allclose(FingerState().to_model(fingers) * (1.6296 - 0.5476), angles, rtol=0, atol=1e-9)
    assert (np.diff(fingers) > 0).all()
    # An angle beyond the dead centre opens no further, and does not close again.
    assert FingerAction().to_robot(np.array([2.0]))[0] == pytest.approx(1.0, abs=1e-12)


@pytest.mark.filterwarnings("error")
def test_an_aloha_gripper_that_reads_less_than_closed_is_closed():
    """Zeros of a driver that has not heard its motors yet, or of one that was calibrated a little off."""
    known, states = robot("aloha"), np.zeros((7, 14))
    states[:, 6] = [-1.0, -1e-9, 0.0, 1e-9, 0.014, FINGER_CLOSED, FINGER_OPEN]
    model = known.to_model_state(states)[:, 6]
    np.testing.assert_allclose(model[:4], model[4], rtol=0, atol=1e-6)
    assert model[4] < model[5] < model[6]


def test_deltas_are_added_to_the_joints_and_not_to_the_grippers():
    known, state = robot("aloha"), np.linspace(-1, 1, 14)
    state[[6, 13]] = 0.03
    model_state = known.to_model_state(state)
    still = np.zeros((3, 32))
    actions = known.to_robot_actions(still, model_state)
    assert actions.shape == (3, 14)
    np.testing.assert_allclose(
        np.delete(actions, [6, 13], axis=1), np.tile(np.delete(state, [6, 13]), (3, 1)), atol=1e-12
    )
    assert (actions[:, [6, 13]] == known.action_units["left_gripper"].to_robot(0.0)).all()

    still[:, 1] = 0.25  # a joint that counts the other way
    assert known.to_robot_actions(still, model_state)[0, 1] == pytest.approx(state[1] - 0.25)


def test_outside_the_declared_range_by_more_than_5_percent_is_named():
    known, state = robot("aloha"), np.zeros(14)
    span = FINGER_OPEN - FINGER_CLOSED
    state[6], state[13] = FINGER_OPEN + 0.049 * span, FINGER_CLOSED - 0.051 * span
    (line,) = known.range_warnings(state)
    assert line.startswith("right_gripper") and "0.01844 to 0.058" in line
    state[13], state[1] = FINGER_CLOSED, -3.0
    (line,) = known.range_warnings(state)
    assert line.startswith("left_shoulder = -3")


def test_clip():
    droid = robot("droid")
    actions = np.float32([[2, -2, 0.5, 0, 0, 0, 0, 1.5]])
    assert droid.clip(actions).tolist() == [[1, -1, 0.5, 0, 0, 0, 0, 1]] and droid.clip(actions).dtype == np.float32
    libero = robot("libero")
    assert (libero.clip(np.full((1, 7), 9.0)) == 9).all()
    # 0.058 and 0.01844 as float32 lie beyond, or short of, what was declared: never beyond.
    for far in (9, -9):
        finger = robot("aloha").clip(np.full((1, 14), far, np.float32))[0, 6]
        assert 0.01844 <= float(finger) <= 0.058


def test_wrong_width_names_the_joints():
    with pytest.raises(InputError, match="8 dimensions .*panda_joint1"):
        robot("droid").to_model_state(np.zeros(7))


def test_unknown_robot_lists_the_known():
    with pytest.raises(InputError, match="'spot', expected one of aloha, aloha_openpi, droid, libero"):
        robot("spot")
