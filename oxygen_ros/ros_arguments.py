"""The ROS half of a command line (--ros-args ...), for commands that have options of their own too."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rclpy.utilities import remove_ros_args


class RosArgumentsError(ValueError):
    """ROS arguments, or the parameter file that they name, that ROS cannot read: one line."""


def without_ros_arguments(arguments: Sequence[str]) -> list[str]:
    """The arguments less --ros-args and what belongs to it. Raises RosArgumentsError."""
    try:
        return remove_ros_args(list(arguments))
    except (RuntimeError, ValueError) as error:  # rclpy's own class is private; it names its source lines too
        raise RosArgumentsError("ROS arguments: " + re.sub(r", at /\S+:\d+", "", str(error))) from error
