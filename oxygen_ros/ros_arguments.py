"""The ROS half of a command line (--ros-args ...), told from a command's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rclpy.utilities import remove_ros_args


class RosArgumentsError(ValueError):
    """ROS arguments, or the parameter file that they name, that ROS cannot read: one line."""


def without_ros_arguments(arguments: Sequence[str]) -> list[str]:
    """The arguments less --ros-args and what belongs to it. Raises RosArgumentsError."""
    try:
        return remove_ros_args(list(arguments))
    except (RuntimeError, ValueError) as error:  # rclpy's own class is private
        raise RosArgumentsError(f"ROS arguments: {_in_one_line(error)}") from error


@contextmanager
def starting() -> Iterator[None]:
    """Around what starts ROS, which may refuse a name or the environment. Raises RosArgumentsError."""
    try:
        yield
    except RuntimeError as error:
        raise RosArgumentsError(f"ROS does not start: {_in_one_line(error)}") from error


def parameter_files(arguments: Sequence[str]) -> list[str]:
    """The files that --params-file names."""
    given, files, ours = iter(arguments), [], False
    for argument in given:
        ours = argument == "--ros-args" or ours and argument != "--"
        if ours and argument == "--params-file" and (file := next(given, "")):
            files.append(file)
    return files


def as_arguments(parameters: Mapping[str, Any]) -> list[str]:
    """Values, as YAML would print them, for behind --ros-args."""
    return [part for name, value in parameters.items() for part in ("-p", f"{name}:={value}")]


def _in_one_line(error: Exception) -> str:
    return " ".join(re.sub(r", at /\S+:\d+", "", str(error)).split())  # less the lines of rcl's source
