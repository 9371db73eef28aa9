"""Plays a recording to the oxygen node, records what it says, and evaluates that beside offline replay.

    ros2 launch oxygen_ros replay.launch.py bag:=/path/to/bag params_file:=my_robot.yaml out:=out/replay_live

The node runs with use_sim_time; oxygen-replay-live plays the bag with its own time, takes the node to active at the
bag's first moment, and writes said.mcap and the report. When it ends the launch ends, with an error where it failed.
"""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, EmitEvent, OpaqueFunction, RegisterEventHandler
from launch.event_handlers import OnProcessExit
from launch.events import Shutdown
from launch.events.process import ProcessExited
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode, Node

PARAMS_FILE = str(Path(get_package_share_directory("oxygen_ros"), "config", "aloha.yaml"))


def generate_launch_description() -> LaunchDescription:
    node = LifecycleNode(
        package="oxygen_ros",
        executable="oxygen-node",
        name="oxygen",
        namespace="",
        parameters=[LaunchConfiguration("params_file"), {"use_sim_time": True}],
        output="both",
    )
    replay = Node(
        package="oxygen_ros",
        executable="oxygen-replay-live",
        arguments=[
            LaunchConfiguration("bag"),
            "--config", LaunchConfiguration("params_file"),
            "--out", LaunchConfiguration("out"),
            "--rate", LaunchConfiguration("rate"),
            "--start", LaunchConfiguration("start"),
            "--commands", LaunchConfiguration("commands"),
        ],
        output="both",
    )
    return LaunchDescription(
        [
            DeclareLaunchArgument("bag", description="recording: a file, or the folder that rosbag2 made"),
            DeclareLaunchArgument("params_file", default_value=PARAMS_FILE, description="ROS parameters of the node"),
            DeclareLaunchArgument("out", default_value="out/replay_live", description="folder to write to"),
            DeclareLaunchArgument("rate", default_value="1.0", description="times real time"),
            DeclareLaunchArgument("start", default_value="0.0", description="seconds of the recording to leave out"),
            DeclareLaunchArgument("commands", default_value="joint_commands", description="topic of recorded commands"),
            RegisterEventHandler(OnProcessExit(target_action=replay, on_exit=finish)),
            RegisterEventHandler(OnProcessExit(target_action=node, on_exit=[OpaqueFunction(function=give_up)])),
            node,
            replay,
        ]
    )


def finish(event: ProcessExited, context: LaunchContext) -> list:
    if event.returncode and not context.is_shutdown:
        raise RuntimeError(f"oxygen-replay-live ended with {event.returncode}")
    return [EmitEvent(event=Shutdown(reason="the recording was played"))]


def give_up(context: LaunchContext) -> None:
    if not context.is_shutdown:
        raise RuntimeError("oxygen-node ended before the recording did")
