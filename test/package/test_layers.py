"""Who may import whom, and who may know ROS (architecture.md, README "How it is built")."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "oxygen_ros"
ROOMS = {
    "pi05": set(),
    "embodiment": set(),
    "checkpoint": {"pi05"},
    "engine": {"pi05"},
    "sim": {"embodiment"},
    "bench": {"engine", "pi05", "embodiment"},
    "replay": {"engine", "embodiment", "checkpoint"},
    "node": {"engine", "embodiment", "checkpoint"},
    "soak": {"node", "replay"},
}
LIVE = {
    "bench/cameras.py", "bench/metered_node.py", "bench/node_cost.py", "bench/slow_node.py", "replay/live.py",
    "replay/player.py",
}
"""The halves of rooms without ROS that speak to a node."""
ROS = {"rclpy", "std_msgs", "sensor_msgs", "builtin_interfaces", "diagnostic_msgs", "lifecycle_msgs", "trajectory_msgs"}
WITH_ROS = {"node", "soak", "demo.py", "ros_arguments.py"}


def imports(file):
    """(rooms of this package, or None for its top, packages of others) that a module imports."""
    here, rooms, others = file.relative_to(ROOT).parts[:-1], set(), set()
    for statement in ast.walk(ast.parse(file.read_text())):
        if isinstance(statement, ast.Import):
            others |= {alias.name.partition(".")[0] for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            others.add(statement.module.partition(".")[0])
        elif isinstance(statement, ast.ImportFrom):
            base = [*here[: len(here) - statement.level + 1], *(statement.module or "").split(".")]
            base = [part for part in base if part]
            places = [base] if base else [[alias.name] for alias in statement.names]
            rooms |= {place[0] for place in places if place[0] in ROOMS}
    return rooms, others


MODULES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_it_may(room):
    files = [file for file in MODULES if file.relative_to(ROOT).parts[0] == room]
    assert files
    for file in files:
        name = str(file.relative_to(ROOT))
        allowed = ROOMS[room] | {room} | ({"node"} if name in LIVE else set())
        assert imports(file)[0] <= allowed, name


def test_ros_stays_where_it_is_said_to_be():
    for file in MODULES:
        name, (_, others) = file.relative_to(ROOT), imports(file)
        if others & ROS:
            assert name.parts[0] in WITH_ROS or str(name) in LIVE, (str(name), others & ROS)


BLOCKED = "rclpy", "std_msgs", "sensor_msgs", "builtin_interfaces", "oxygen_ros.msg"


@pytest.mark.parametrize(
    "module", ["replay.main", "replay.bag", "frames", "policy", "bench.main", "checkpoint.convert"])
def test_imported_without_ros(module):
    block = "".join(f"sys.modules[{name!r}] = None; " for name in BLOCKED)
    subprocess.run([sys.executable, "-c", f"import sys; {block}import oxygen_ros.{module}"], check=True, timeout=60)
