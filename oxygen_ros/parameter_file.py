"""ROS 2 parameter files: the settings in one, and what ROS reads in one without a word."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from .embodiment.errors import on_one_line
from .settings import Settings, SettingsError, read


def load_settings(path: str | Path) -> Settings:
    """Settings from a ROS 2 parameter file whose values are under a `/**` (or any single node's) `ros__parameters`.

    Raises SettingsError.
    """
    try:
        text = Path(path).read_text()
        content, doubled = yaml.safe_load(text), _given_twice(text)
    except (OSError, UnicodeDecodeError, RecursionError, yaml.YAMLError) as error:
        raise SettingsError([f"{path} cannot be read: {_in_short(error)}"]) from error
    if doubled:
        raise SettingsError([f"{path} gives {line}; leave one of them" for line in doubled])
    nodes = content if isinstance(content, dict) else {}
    found = [node["ros__parameters"] for node in nodes.values() if isinstance(node, dict) and "ros__parameters" in node]
    if len(found) != 1 or not isinstance(found[0], dict):
        raise SettingsError(
            [f"{path} needs one node name with ros__parameters under it, such as /**; found {len(found)}"]
        )
    return read(dict(_flatten(found[0])))


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
                      for line in _given_twice(text, lambda key: _matches(key, name))]
        if keys and not any(_matches(key, name) for key in keys):
            lines.append(f"parameter file {file} holds nothing for {name}, its keys are {', '.join(keys)}; make one of "
                         f"them {name} or /** and start again, or configure again to go on without it")
    return lines


def _given_twice(text: str, concerns: Callable[[str], bool] = bool) -> list[str]:
    """What a parameter file says more than once, with the lines where: a reader takes one of them without a word.

    concerns: told the name of a node, as /left/oxygen, whether its parameters count. Raises yaml.YAMLError."""
    lines: dict[str, list[int]] = {}
    for path, line in _leaves(yaml.compose(text, yaml.SafeLoader)):
        lines.setdefault(path, []).append(line)
    found = []
    for path, where in lines.items():
        node, _, name = path.partition(".ros__parameters.")
        if len(where) > 1 and name and concerns("/" + node.replace(".", "/").strip("/")):
            found.append(f"{name} in lines {' and '.join(map(str, where))}")
    return found


def _leaves(node: yaml.Node | None, prefix: str = "", line: int = 1) -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _leaves(value, f"{prefix}.{key.value}".strip("."), key.start_mark.line + 1)
    else:
        yield prefix, line


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


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _in_short(error: Exception) -> str:
    """Why a parameter file cannot be read, on one line."""
    if isinstance(error, OSError):
        return error.strerror
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return on_one_line(" ".join(str(error).split()))
