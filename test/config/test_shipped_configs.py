"""Every file of config/ as the replay reads it, and as rcl and a node do."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from oxygen_ros.embodiment.generic import from_dict
from oxygen_ros.parameter_file import load_settings
from oxygen_ros.robot_settings import describe
from oxygen_ros.settings import SettingsError

FOLDER = Path(__file__).resolve().parents[2] / "config"
FILES = sorted(FOLDER.glob("*.yaml"))
ROBOTS = {"aloha": "aloha", "libero": "libero", "droid": "droid", "generic": "my_arm"}


def body(path):
    return from_dict(describe(load_settings(path)))


def uncommented(path):
    """The file with every commented key taken in: what a reader would write."""
    return re.sub(r"^( *)# (?=( *)[a-z_]+: ?\S|( *)[a-z_]+:$)", r"\1", path.read_text(), flags=re.M)


def test_all_are_here():
    assert {path.stem for path in FILES} == set(ROBOTS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_robot_of_each_file_is_there_and_back(path):
    robot = body(path)
    assert robot.name == ROBOTS[path.stem] and list(yaml.safe_load(path.read_text())) == ["/**"]
    generator = np.random.default_rng(0)
    for _ in range(200):
        limits = [robot.limits.get(name, (-1.0, 1.0)) for name in robot.joints]
        state = generator.uniform(*np.array(limits).T)
        model = robot.to_model_state(state)
        np.testing.assert_allclose(robot.to_robot_state(model), state, rtol=0, atol=1e-9)
        limits = [robot.action_limits.get(name, (-1.0, 1.0)) for name in robot.actions]
        actions = generator.uniform(*np.array(limits).T, (5, robot.action_dim))
        again = robot.to_robot_actions(robot.to_model_actions(actions, model), model)
        np.testing.assert_allclose(again, actions, rtol=0, atol=1e-9)
        assert robot.range_warnings(state) == []


@pytest.mark.parametrize("path", [path for path in FILES if path.stem != "generic"], ids=lambda path: path.stem)
def test_what_is_commented_out_is_right_too(path, tmp_path):  # generic.yaml's alternatives exclude each other
    (tmp_path / path.name).write_text(uncommented(path))
    assert uncommented(path) != path.read_text()
    assert body(tmp_path / path.name).state_dim == body(path).state_dim


def test_the_worked_example():
    arm = body(FOLDER / "generic.yaml")
    state = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.0425])
    model = arm.to_model_state(state)
    np.testing.assert_allclose(model, [0.1, 0.2, -0.3, 0.4, 0.5, 0.6, 0.5], atol=1e-12)
    moved = arm.to_robot_actions(np.full((1, 32), 0.1), model)
    np.testing.assert_allclose(moved, [[0.2, 0.3, 0.2, 0.5, 0.6, 0.7, 0.0085]], atol=1e-12)
    assert [(c.name, c.slot, c.rotation) for c in arm.cameras] == [
        ("overview", "base_0_rgb", 0),
        ("hand", "left_wrist_0_rgb", 180),
    ]
    (warning,) = arm.range_warnings(np.array([0, 0, 0, 0, 0, 0, 0.09]))
    assert warning.startswith("gripper = 0.09 lies outside")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_node_reads_what_the_replay_reads(path):
    rclpy = pytest.importorskip("rclpy")
    from oxygen_ros.node.parameters import Parameters

    context = rclpy.Context()
    rclpy.init(args=["test", "--ros-args", "--params-file", str(path), "-r", "__ns:=/left"], context=context)
    try:
        node = rclpy.create_node("vla", context=context, automatically_declare_parameters_from_overrides=True)
        assert repr(Parameters(node).read()) == repr(load_settings(path))  # as text: what is unset is NaN
        node.destroy_node()
    finally:
        rclpy.shutdown(context=context)


def test_an_empty_list_leaves_it_to_the_robot_and_a_list_of_numbers_can_be_set(tmp_path):
    rclpy = pytest.importorskip("rclpy")
    from rclpy.parameter import Parameter

    from oxygen_ros.node.parameters import EmptyListsAllowed, Parameters

    file, context = tmp_path / "x.yaml", rclpy.Context()
    file.write_text("/**: {ros__parameters: {robot: aloha, cameras: [cam_high], delta: [], flip: [none], policy: []}}")
    rclpy.init(args=["test", "--ros-args", "--params-file", str(file)], context=context)
    try:
        node = EmptyListsAllowed("vla", context=context, automatically_declare_parameters_from_overrides=True)
        parameters = Parameters(node)
        with pytest.raises(SettingsError, match=r"^parameter policy is \(\), expected a text$"):
            parameters.read()
        message = Parameter("limits.left_waist", value=[-1.0, 1.0]).to_parameter_msg()
        node.set_parameters([Parameter("policy", value="here"), Parameter.from_parameter_msg(message)])
        read = parameters.read()
        assert (read.delta, read.flip, read.limits) == ((), ("none",), {"left_waist": (-1.0, 1.0)})
        (refused,) = node.set_parameters([Parameter("limits.left_waist", value=[1.0])])
        assert not refused.successful and "a list of 2 numbers" in refused.reason
        node.destroy_node()
    finally:
        rclpy.shutdown(context=context)


def test_names_that_leave_the_lists_leave_no_strangers():
    rclpy = pytest.importorskip("rclpy")
    from rclpy.parameter import Parameter

    from oxygen_ros.node.parameters import Parameters

    context = rclpy.Context()
    rclpy.init(args=["test", "--ros-args", "--params-file", str(FOLDER / "generic.yaml")], context=context)
    try:
        node = rclpy.create_node("vla", context=context, automatically_declare_parameters_from_overrides=True)
        parameters = Parameters(node)
        node.set_parameters([Parameter("joints", value=["a", "b"]), Parameter("cameras", value=["overview", "side"])])
        with pytest.raises(SettingsError) as error:
            parameters.read()
        told = " ".join(error.value.problems)
        assert "camera.hand.topic" in told and "limits.base" in told  # given in the file, and now about nothing
        assert "limits.gripper" not in told and "camera.hand.max_age" in told
        node.set_parameters([Parameter("cameras", value=["overview", "hand", "side"])])
        with pytest.raises(SettingsError) as error:
            parameters.read()
        assert "camera.hand" not in " ".join(error.value.problems)
        assert node.get_parameter("camera.side.max_age").value == 0.5
        node.set_parameters([Parameter("camera.side.topic", value="x")])
        node.set_parameters([Parameter("cameras", value=["overview", "hand"])])
        with pytest.raises(SettingsError) as error:
            parameters.read()
        assert "camera.side.topic" in str(error.value) and "camera.side.max_age" not in str(error.value)
        node.destroy_node()
    finally:
        rclpy.shutdown(context=context)
