"""Starts the oxygen node on a robot and, unless autostart is false, takes it to active.

    ros2 launch oxygen_ros robot.launch.py params_file:=my_robot.yaml namespace:=left

The transitions are asked for by event handlers: launch_ros's own autostart came after Jazzy. One that
fails is an error in the launch's output; the node stays up, so `ros2 lifecycle set` can try again.
A node that ends before it is configured ends the launch, which otherwise would wait for it for ever.
Later it does not: a launch that includes this one may have a robot's drivers to keep up.
"""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, EmitEvent, OpaqueFunction
from launch.actions import RegisterEventHandler, UnregisterEventHandler
from launch.conditions import IfCondition
from launch.event_handlers import OnProcessExit
from launch.events import matches_action
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode
from launch_ros.event_handlers import OnStateTransition
from launch_ros.events.lifecycle import ChangeState
from launch_ros.parameter_descriptions import ParameterValue
from lifecycle_msgs.msg import Transition

PARAMS_FILE = str(Path(get_package_share_directory("oxygen_ros"), "config", "aloha.yaml"))


def generate_launch_description() -> LaunchDescription:
    use_sim_time = ParameterValue(LaunchConfiguration("use_sim_time"), value_type=bool)
    node = LifecycleNode(
        package="oxygen_ros",
        executable="oxygen-node",
        name=LaunchConfiguration("name"),
        namespace=LaunchConfiguration("namespace"),
        parameters=[LaunchConfiguration("params_file"), {"use_sim_time": use_sim_time}],
        ros_arguments=["--log-level", LaunchConfiguration("log_level")],
        output="both",
    )
    autostart = IfCondition(LaunchConfiguration("autostart"))
    configure = EmitEvent(event=request(node, Transition.TRANSITION_CONFIGURE), condition=autostart)
    activate = EmitEvent(event=request(node, Transition.TRANSITION_ACTIVATE))
    stillborn = OnProcessExit(target_action=node, on_exit=[OpaqueFunction(function=give_up)])
    configured = OnStateTransition(
        target_lifecycle_node=node,
        start_state="configuring",
        goal_state="inactive",
        entities=[UnregisterEventHandler(stillborn), activate],
    )
    return LaunchDescription(
        [
            DeclareLaunchArgument("params_file", default_value=PARAMS_FILE, description="ROS parameters of the node"),
            DeclareLaunchArgument("namespace", default_value="", description="namespace of the node and its topics"),
            DeclareLaunchArgument("name", default_value="oxygen", description="name of the node"),
            DeclareLaunchArgument("autostart", default_value="true", description="configure and activate the node"),
            DeclareLaunchArgument("log_level", default_value="info", description="debug, info, warn, error or fatal"),
            DeclareLaunchArgument("use_sim_time", default_value="false", description="take time from /clock"),
            OpaqueFunction(function=require_params_file),
            RegisterEventHandler(stillborn, condition=autostart),
            RegisterEventHandler(configured, condition=autostart),
            node,
            configure,
        ]
    )


def request(node: LifecycleNode, transition: int) -> ChangeState:
    return ChangeState(lifecycle_node_matcher=matches_action(node), transition_id=transition)


def require_params_file(context: LaunchContext) -> None:
    """End the launch where there is no such file: launch_ros only warns, and the node would run on defaults."""
    path = LaunchConfiguration("params_file").perform(context)
    if not Path(path).is_file():
        raise FileNotFoundError(f"params_file: there is no file '{path}'")


def give_up(context: LaunchContext) -> None:
    if not context.is_shutdown:
        raise RuntimeError("oxygen-node ended before it was configured")
