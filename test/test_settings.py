"""The one declaration of every parameter: what is read, what is refused, and which robot comes of it."""

import math

import pytest

from oxygen_ros import settings
from oxygen_ros.embodiment.errors import InputError
from oxygen_ros.embodiment.generic import from_dict
from oxygen_ros.embodiment.registry import robot
from oxygen_ros.robot_settings import describe
from oxygen_ros.settings import SettingsError, read

ARM = {
    "robot": "my_arm",
    "joints": ["j1", "j2", "finger"],
    "step_dt": 0.05,
    "delta": ["j1", "j2"],
    "flip": ["j2"],
    "grippers": ["finger"],
    "gripper.finger.closed": 0.08,
    "gripper.finger.open": 0,
    "limits.j1": [-1, 1],
    "cameras": ["top", "hand"],
    "camera.top.slot": "base_0_rgb",
    "camera.hand.rotation": 180,
    "frame_id": "base",
}
ALOHA = {"robot": "aloha", "cameras": ["cam_high"]}


def body(values, named_by_policy=None):
    return from_dict(describe(read(values), named_by_policy))


def problems(values):
    with pytest.raises(SettingsError) as error:
        describe(read(values))
    return " | ".join(error.value.problems)


def test_a_robot_of_one_s_own():
    arm = body(ARM)
    assert (arm.name, arm.joints, arm.actions, arm.step_dt) == ("my_arm", ("j1", "j2", "finger"), arm.joints, 0.05)
    assert [(c.name, c.slot, c.rotation) for c in arm.cameras] == [("top", "base_0_rgb", 0), ("hand", "hand", 180)]
    assert arm.to_model_state([0.5, 0.5, 0.02]).tolist() == pytest.approx([0.5, -0.5, 0.75])
    assert arm.to_robot_actions([[0.1, 0.1, 0.75]], [0.5, -0.5, 0.75])[0].tolist() == pytest.approx([0.6, 0.4, 0.02])
    assert arm.limits == arm.action_limits == {"j1": (-1.0, 1.0), "finger": (0.0, 0.08)}
    assert isinstance(read(ARM).limits["j1"][0], float)
    assert (arm.representation, arm.frame_id, arm.prompt) == ("absolute_position", "base", "state")
    moved = body(
        {
            **ARM,
            "actions": ["dx", "finger"],
            "delta": ["none"],
            "flip": (),
            "representation": "end_effector_delta",
            "action_limits.dx": [-1, 1],
            "prompt": "plain",
            "gripper.finger.model_closed": 1,
            "gripper.finger.model_open": -1,
        }
    )
    assert (moved.actions, moved.delta) == (("dx", "finger"), ())
    assert moved.action_limits == {"dx": (-1.0, 1.0), "finger": (0.0, 0.08)}
    assert (moved.representation, moved.prompt) == ("end_effector_delta", "plain")
    assert moved.to_model_state([0, 0, 0.02])[2] == pytest.approx(-0.5)


def test_single_fields_of_a_known_robot():
    known = robot("aloha")
    assert body(ALOHA).limits == known.limits and body(ALOHA).delta == known.delta
    assert body({"cameras": ["cam_high"]}, "aloha").name == "aloha"
    changed = body(
        {
            **ALOHA,
            "grippers": ["left_gripper"],
            "gripper.left_gripper.closed": 0.0449,
            "limits.left_waist": [-1, 1],
            "action_limits.left_waist": [-0.5, 0.5],
            "step_dt": 0.04,
            "frame_id": "world",
            "prompt": "plain",
            "delta": ["left_waist"],
        }
    )
    assert changed.limits == {**known.limits, "left_waist": (-1, 1), "left_gripper": (0.0449, 0.058)}
    assert changed.limits["right_gripper"] == known.limits["right_gripper"]
    assert (changed.step_dt, changed.frame_id, changed.prompt, changed.delta) == (
        0.04,
        "world",
        "plain",
        ("left_waist",),
    )
    bare = body({**ALOHA, "delta": ["none"], "flip": ["none"], "grippers": ["none"]})
    assert bare.delta == () and bare.state_units == {} == bare.action_units


def test_a_known_robot_whose_joints_have_other_names():
    names = [f"{side}/{n}" for side in "lr" for n in range(7)]
    renamed, known = body({**ALOHA, "joints": names, "limits.l/0": [-1, 1]}), robot("aloha")
    assert renamed.joints == tuple(names) == renamed.actions and renamed.delta == (*names[:6], *names[7:13])
    assert renamed.limits["l/0"] == (-1, 1) and renamed.limits["r/6"] == known.limits["right_gripper"]
    assert renamed.to_model_state([0.03] * 14).tolist() == known.to_model_state([0.03] * 14).tolist()
    libero = body({"robot": "libero", "cameras": ["image", "wrist_image"], "actions": list("abcdefg")})
    assert libero.actions == tuple("abcdefg") and libero.joints == robot("libero").joints
    swapped = [*known.joints[7:], *known.joints[:7]]
    assert "right_waist, right_shoulder" in problems({**ALOHA, "joints": swapped})
    assert "14 (left_waist, left_shoulder" in problems({**ALOHA, "joints": ["a", "b"]})
    assert "set joints" in problems({**ALOHA, "actions": names})


def test_cameras_of_a_known_robot():
    own = body({**ALOHA, "cameras": ["head", "cam_right_wrist"], "camera.head.slot": "base_0_rgb"})
    assert {c.name: c.slot for c in own.cameras} == {"head": "base_0_rgb", "cam_right_wrist": "right_wrist_0_rgb"}
    assert "lists head, expected some of aloha's: cam_high" in problems({**ALOHA, "cameras": ["head"]})
    assert "lacks cam_high, which aloha requires" in problems({**ALOHA, "cameras": ["cam_left_wrist"]})
    assert "cameras is empty, expected some of aloha's: cam_high" in problems({"robot": "aloha"})
    assert "cameras is empty" in problems({**{k: v for k, v in ARM.items() if "camera" not in k}})


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"gripperz": 1}, ("gripperz", "not known", "grippers")),
        ({"step": 0.1}, ("step", "not known")),
        ({"control_rat": 3.0}, ("control_rat", "control_rate")),
        ({"camera.side.topic": "x"}, ("camera.side.topic", "cameras (top, hand)")),
        ({"camera.top.topik": "x"}, ("camera.top.topik", "camera.top.topic")),
        ({"gripper.thumb.open": 1.0}, ("gripper.thumb.open", "grippers (finger)")),
        ({"gripper.finger.opened": 1.0}, ("gripper.finger.opened", "not known")),
        ({"limits.j9": [0.0, 1.0]}, ("limits.j9", "joints (j1, j2, finger)", "robot or joints")),
        ({"limits.j1": [0.0]}, ("limits.j1", "[0.0]", "2 numbers")),
        ({"limits.j1": 3.0}, ("limits.j1", "3.0", "2 numbers")),
        ({"limits.j1": ["a", "b"]}, ("limits.j1", "2 numbers")),
        ({"limits.j1": [0.0, math.inf]}, ("limits.j1", "inf", "finite")),
        ({"joints": "j1"}, ("joints", "'j1'", "list of names")),
        ({"joints": ["j1", "j1"]}, ("joints", "each name once")),
        ({"delta": [1, 2]}, ("delta", "[1, 2]", "list of names")),
        ({"step_dt": -0.1}, ("step_dt", "-0.1", "at least 0")),
        ({"step_dt": 1e10}, ("step_dt", "at most 1000")),
        ({"step_dt": "fast"}, ("step_dt", "'fast'", "a number")),
        ({"step_dt": math.nan}, ("step_dt", "nan", "at least 0")),
        ({"gripper.finger.closed": math.inf}, ("gripper.finger.closed", "inf", "finite")),
        ({"gripper.finger.closed": True}, ("gripper.finger.closed", "True", "number")),
        ({"gripper.finger.convention": "magic"}, ("gripper.finger.convention", "'magic'", "linear, aloha_finger")),
        ({"representation": "torque"}, ("representation", "'torque'", "absolute_position, delta_position")),
        ({"prompt": "chat"}, ("prompt", "'chat'", "state, plain")),
        ({"identity_statistics": 1}, ("identity_statistics", "1", "true or false")),
        ({"camera.hand.topic": "top/image_raw"}, ("camera.hand.topic", "'top/image_raw', which camera top has", "own")),
        ({"camera.top.frozen_after": 1}, ("camera.top.frozen_after is 1", "0 or at least 2")),
        ({"camera.top.rotation": 45}, ("camera.top.rotation", "45", "0, 90, 180, 270")),
        ({"continuity_rows": 10**9}, ("continuity_rows", "1000000000", "at most 1000")),
        ({"language.stop": ["END", ""]}, ("language.stop", "''", "not blank", "newline")),
        ({"language.stop": [" \t"]}, ("language.stop", "' \\t'", "not blank")),
        ({"language.ask_prompt": "Question: {instruction}"}, ("language.ask_prompt", "'Question: {inst", "{text}")),
        ({"instruction": "  \n"}, ("parameter instruction", "'  \\n'", "what the robot should do")),
        ({"robot": "alhoa", "joints": ()}, ("robot", "'alhoa'", "aloha", "your own")),
        ({"robot": "", "joints": ()}, ("robot is empty", "aloha", "your own")),
    ],
)
def test_what_is_wrong_is_named_with_what_was_expected(changes, words):
    values = {key: value for key, value in {**ARM, **changes}.items() if value != ()}
    if "joints" in changes and changes["joints"] == ():
        values = {"robot": changes["robot"], "cameras": ["top"]}
    for word in words:
        assert word in problems(values)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"step_dt": 0.0}, ("no step_dt",)),
        ({"grippers": ["finger", "j1"]}, ("gripper.j1", "no closed, open")),
        ({"gripper.finger.closed": 0.0}, ("gripper.finger", "closed equal to open")),
        ({"delta": ["j7"]}, ("delta", "j7", "j1, j2")),
        ({"camera.hand.slot": "base_0_rgb"}, ("camera slots", "base_0_rgb more than once")),
    ],
)
def test_a_description_that_makes_no_robot(changes, words):
    with pytest.raises(InputError) as error:
        body({**ARM, **changes})
    for word in words:
        assert word in str(error.value)


def test_every_problem_is_told_at_once():
    with pytest.raises(SettingsError) as error:
        read({"a": 1, "seed": "x", "control_rate": 0.0})
    assert len(error.value.problems) == 3


def test_values_of_a_wrong_type_declare_nothing():
    for wrong in ("cam", 3, [1], None, {"a": 1}):
        names = {
            d.name for d in settings.declarations(dict.fromkeys(("cameras", "grippers", "joints", "robot"), wrong))
        }
        assert not any(name.startswith(("camera.", "gripper.", "limits.")) for name in names)
    assert not any(d.name.startswith("gripper.") for d in settings.declarations({"grippers": ["none"]}))
    assert {"limits.panda_joint1", "action_limits.gripper"} <= {
        d.name for d in settings.declarations({"robot": "droid"})
    }


def test_stop_texts_that_are_fine():
    assert read({"language.stop": ["\n", " ;", "\n\n"]}).language.stop == ("\n", " ;", "\n\n")


def test_every_default_is_a_value_without_a_problem():
    names = dict.fromkeys(("cameras", "grippers", "joints", "actions"), ["x"])
    for declaration in settings.declarations(names):
        assert declaration.problem_with(declaration.default) is None
        assert declaration.description.endswith(".")
        if declaration.live and isinstance(declaration.default, (int, float)):
            assert declaration.high is not None, f"{declaration.name} may be absurdly large, on a running robot"
    assert math.isnan(read(names).gripper["x"].closed)
