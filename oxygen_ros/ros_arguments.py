"""The ROS half of a command line (--ros-args ...): told from a command's own, and whom its parameter files are for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from rclpy.utilities import remove_ros_args

from .settings import given_twice


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


def misread(files: Sequence[str], name: str) -> list[str]:
    """A line for each parameter file that holds nothing for the node of this full name, and for each parameter that one
    of them gives twice: ROS does not say so."""
    lines = []
    for file in files:
        keys: list[str] = []
        with suppress(OSError, UnicodeDecodeError, yaml.YAMLError):  # ROS could read it
            text = Path(file).read_text()
            keys = list(_node_names(yaml.safe_load(text)))
            lines += [f"parameter file {file} gives {line}, of which ROS took one; leave one of them and start again, "
                      "or configure again to go on with it"
                      for line in given_twice(text, lambda key: _matches(key, name))]
        if keys and not any(_matches(key, name) for key in keys):
            lines.append(f"parameter file {file} holds nothing for {name}, its keys are {', '.join(keys)}; make one of "
                         f"them {name} or /** and start again, or configure again to go on without it")
    return lines


def _in_one_line(error: Exception) -> str:
    return " ".join(re.sub(r", at /\S+:\d+", "", str(error)).split())  # less the lines of rcl's source


def _node_names(tree: Any, prefix: str = "") -> Iterator[str]:
    for key, value in tree.items() if isinstance(tree, Mapping) else ():
        if key == "ros__parameters":
            yield prefix
        else:
            yield from _node_names(value, f"{prefix}/{str(key).strip('/')}")


def _matches(key: str, name: str) -> bool:
    """As rcl does: * stands for one part of a name, ** for any number of them."""
    pattern = re.escape(key).replace(r"/\*\*", "(/[^/]+)*").replace(r"/\*", "/[^/]+")
    return re.fullmatch(pattern, name) is not None
