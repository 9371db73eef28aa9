"""The commands of the package, and the one way in which all of them start.

A command may be started by an interpreter that lacks what it needs (a workstation without ROS, a
robot's system Python without torch), or holds it built for another one. It then says so in one line instead of a
traceback.
"""

import importlib
import sys
import traceback
from pathlib import Path

# Name -> module:function. setup.py and CMakeLists.txt read this table; it has no second copy.
COMMANDS = {
    "oxygen-bench": "oxygen_ros.bench.main:main",
    "oxygen-convert": "oxygen_ros.checkpoint.convert:main",
    "oxygen-demo": "oxygen_ros.demo:main",
    "oxygen-node": "oxygen_ros.node.main:main",
    "oxygen-play": "oxygen_ros.replay.player:main",
    "oxygen-record-sim": "oxygen_ros.sim.record:main",
    "oxygen-replay": "oxygen_ros.replay.main:main",
    "oxygen-replay-live": "oxygen_ros.replay.live:main",
    "oxygen-soak": "oxygen_ros.soak.main:main",
    "oxygen-verify": "oxygen_ros.checkpoint.verify:main",
}

ROS = "use an interpreter with ROS 2 (source its setup.bash; in a clone: make setup, then ./run {command})"
SIM = "in a clone: make test, then ./run {command}; elsewhere: pip install the package's [sim] extra"

# Where `pip install NAME` is not the way to get what is imported as NAME.
REMEDIES = {
    "ament_index_python": ROS,
    "builtin_interfaces": ROS,
    "diagnostic_msgs": ROS,
    "geometry_msgs": ROS,
    "lifecycle_msgs": ROS,
    "rcl_interfaces": ROS,
    "rclpy": ROS,
    "rosgraph_msgs": ROS,
    "sensor_msgs": ROS,
    "std_msgs": ROS,
    "trajectory_msgs": ROS,
    "visualization_msgs": ROS,
    "oxygen_ros.msg": "its messages are not built, or not sourced: colcon build, then source install/setup.bash"
    " (in a clone: make setup, then ./run {command})",
    "gym_aloha": SIM,
    "mujoco": SIM,
    "torch": "install the torch (2.5 or later) that suits this machine: {python} -m pip install torch",
    "PIL": "{python} -m pip install pillow",
    "yaml": "{python} -m pip install pyyaml",
}


def main() -> int:
    """Run the command that this process was started as; return its exit code."""
    command = Path(sys.argv[0]).name
    module, function = COMMANDS[command].split(":")
    try:
        return getattr(importlib.import_module(module), function)()
    except ModuleNotFoundError as error:
        missing = missing_package(error)
        if missing is None:
            raise
        print(explain(command, missing), file=sys.stderr)
        return 1
    except (ImportError, OSError, AttributeError, SystemError) as error:
        broken = broken_package(error)
        if broken is None:
            raise
        print(f"{command}: {sys.executable} cannot import its Python package '{broken}': {_in_short(error)}; "
              "install one that was built for this interpreter", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        # The command itself answers Ctrl-C; this is for one that comes while it is still loading.
        return 130


def missing_package(error: ModuleNotFoundError) -> "str | None":
    """Return the package whose absence `error` reports; None if it is a module of our own, so a bug."""
    name = error.name or ""
    if name == "oxygen_ros.msg":
        return name
    package = name.partition(".")[0]
    return None if package in ("", "oxygen_ros") else package


def broken_package(error: Exception) -> "str | None":
    """Return the package that is there but cannot be imported; None if it is a module of our own, so a bug.

    One that loads its libraries itself raises OSError, one that was built for another numpy AttributeError.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if isinstance(error, ImportError):
        module = error.name or frames[-1].f_globals["__name__"]
    else:
        imported = (frame for frame in reversed(frames) if frame.f_code.co_name == "<module>")
        module = next((frame.f_globals["__name__"] for frame in imported), "oxygen_ros")
    package = module.partition(".")[0]
    return None if package == "oxygen_ros" else package


def _in_short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else text[:300] + " ..."


def explain(command: str, missing: str) -> str:
    """Return the line that names the interpreter, what it lacks, and the remedy."""
    remedy = REMEDIES.get(missing, "{python} -m pip install " + missing)
    remedy = remedy.format(command=command, python=sys.executable)
    return f"{command}: {sys.executable} has no Python package '{missing}'; {remedy}"
