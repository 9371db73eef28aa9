"""robot.launch.py under the real launch: the node comes up active, in its namespace, with its parameters."""

import inspect
import re
import time
from pathlib import Path

import pytest
from launching import LAUNCH_PATH, ROOT, needs_launch
from lifecycle_msgs.msg import State
from rcl_interfaces.srv import GetParameters

pytestmark = needs_launch


def test_it_is_active_where_and_as_the_arguments_say(launch):
    robot = launch("namespace:=left", "name:=policy", "use_sim_time:=true")
    robot.wait_for(lambda: robot.state("/left/policy") == State.PRIMARY_STATE_ACTIVE)
    request = GetParameters.Request(names=["use_sim_time", "robot"])
    values = robot.call(GetParameters, "/left/policy/get_parameters", request).values
    assert values[0].bool_value is True
    assert values[1].string_value == "aloha"  # of config/aloha.yaml, the default params_file
    robot.interrupt()
    assert "process has finished cleanly" in robot.output and "escalating" not in robot.output


def test_without_autostart_it_waits_unconfigured(launch):
    robot = launch("autostart:=false")
    assert robot.state("/oxygen") == State.PRIMARY_STATE_UNCONFIGURED
    time.sleep(1)
    assert robot.state("/oxygen") == State.PRIMARY_STATE_UNCONFIGURED


def test_a_failed_configuration_is_an_error_in_the_output(launch, tmp_path):
    good = (ROOT / "config" / "aloha.yaml").read_text()
    params = tmp_path / "params.yaml"
    params.write_text(re.sub(r"policy: .*", "policy: /no/such/policy", good))
    robot = launch(f"params_file:={params}")
    robot.wait_for(lambda: "Failed to make transition 'TRANSITION_CONFIGURE'" in robot.output)
    robot.wait_for(lambda: "/no/such/policy" in robot.output)
    assert robot.state("/oxygen") == State.PRIMARY_STATE_UNCONFIGURED


def test_a_missing_params_file_ends_the_launch(launch, tmp_path):
    robot = launch(f"params_file:={tmp_path}/nothing.yaml")
    assert robot.end() == 1
    assert f"params_file: there is no file '{tmp_path}/nothing.yaml'" in robot.output


def test_a_node_that_cannot_start_ends_the_launch(launch, tmp_path):
    params = tmp_path / "params.yaml"
    params.write_text("/**: [")
    robot = launch(f"params_file:={params}")
    assert robot.end() == 1
    assert "oxygen-node ended before it was configured" in robot.output


def test_a_params_file_for_another_node_is_named(launch, tmp_path):
    params = tmp_path / "params.yaml"
    params.write_text((ROOT / "config" / "aloha.yaml").read_text().replace("/**:", "/right/oxygen:"))
    robot = launch(f"params_file:={params}", "namespace:=left")
    robot.wait_for(lambda: "Failed to make transition 'TRANSITION_CONFIGURE'" in robot.output)
    assert re.search(r"ERROR.*/left/oxygen.*params\.yaml", robot.output), robot.output


def test_remaps_of_a_launch_that_includes_it(launch, tmp_path):
    outer = tmp_path / "outer.launch.py"
    outer.write_text(f"""
from launch import LaunchDescription
from launch.actions import GroupAction, IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch_ros.actions import PushRosNamespace, SetRemap

def generate_launch_description():
    robot = IncludeLaunchDescription(PythonLaunchDescriptionSource({str(ROOT / "launch" / "robot.launch.py")!r}))
    remaps = [SetRemap("joint_states", "/body/joint_states"), SetRemap("~/action_chunk", "commands")]
    return LaunchDescription([GroupAction([PushRosNamespace("left"), *remaps, robot])])
""")
    robot = launch(file=outer)
    robot.wait_for(lambda: robot.state("/left/oxygen") == State.PRIMARY_STATE_ACTIVE)
    robot.wait_for(lambda: robot.node.count_subscribers("/body/joint_states") == 1)
    assert robot.node.count_publishers("/left/commands") == 1
    assert not robot.node.count_subscribers("/left/joint_states")
    assert not robot.node.count_publishers("/left/oxygen/action_chunk")


PARAMETERS = ROOT / "config" / "aloha.yaml"
OUTER = """
from launch import LaunchDescription
from launch_ros.actions import LifecycleNode, LifecycleTransition

def generate_launch_description():
    return LaunchDescription([
        LifecycleNode(package="oxygen_ros", executable="oxygen-node", name="oxygen", namespace="left",
                      parameters=[{parameters!r}], output="screen"{autostart}),
        {then}
    ])
"""


def test_launch_ros_s_own_autostart(launch, tmp_path, monkeypatch):
    """From Kilted on."""
    for folder in reversed(LAUNCH_PATH):
        monkeypatch.syspath_prepend(folder)
    from launch_ros.actions import LifecycleNode, Node

    if not any("autostart" in inspect.signature(kind.__init__).parameters for kind in (LifecycleNode, Node)):
        pytest.skip("this launch_ros has no autostart")
    outer = tmp_path / "outer.launch.py"
    outer.write_text(OUTER.format(parameters=str(PARAMETERS), autostart=", autostart=True", then=""))
    robot = launch(file=outer)
    robot.wait_for(lambda: robot.state("/left/oxygen") == State.PRIMARY_STATE_ACTIVE)


def test_launch_ros_s_transitions(launch, tmp_path):
    """Which are what its autostart is made of."""
    transition = 'LifecycleTransition(lifecycle_node_names=["/left/oxygen"], transition_ids=[1, 3])'
    outer = tmp_path / "outer.launch.py"
    outer.write_text(OUTER.format(parameters=str(PARAMETERS), autostart="", then=transition))
    robot = launch(file=outer)
    robot.wait_for(lambda: robot.state("/left/oxygen") == State.PRIMARY_STATE_ACTIVE)


def test_interrupted_while_it_starts(launch):
    """(launch_ros itself may then complain of its client, which it takes away while it waits for the service.)"""
    robot = launch()
    robot.wait_for(lambda: "process started" in robot.output)
    (pid,) = re.findall(r"process started with pid \[(\d+)\]", robot.output)
    robot.interrupt()
    assert not Path(f"/proc/{pid}").exists() and "escalating" not in robot.output
