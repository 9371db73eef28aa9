"""Nav2's lifecycle manager and its end of a bond, as far as a node can tell; and bond's message, where there is no ROS.

Read in nav2_lifecycle_manager/src/lifecycle_manager.cpp (ros-navigation/navigation2, branch jazzy) and
bondcpp/src/bond.cpp and bond/BondSM.sm (ros/bond_core, branch ros2).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

from robot import Robot

from oxygen_ros.node.lifecycle_client import wait_until

_STATUS = """\
std_msgs/Header header
string id
string instance_id
bool active
float32 heartbeat_timeout
float32 heartbeat_period
"""
_CMAKE = """\
cmake_minimum_required(VERSION 3.16)
project(bond)
find_package(ament_cmake REQUIRED)
find_package(rosidl_default_generators REQUIRED)
find_package(std_msgs REQUIRED)
rosidl_generate_interfaces(bond msg/Status.msg DEPENDENCIES std_msgs)
ament_package()
"""
_PACKAGE = """\
<package format="3">
  <name>bond</name> <version>0.0.0</version> <description>bond/msg/Status</description>
  <maintainer email="maintainers@users.noreply.a-seed-7efa82aa.example">oxygen_ros maintainers</maintainer>
  <license>Apache-2.0</license>
  <buildtool_depend>ament_cmake</buildtool_depend>
  <buildtool_depend>rosidl_default_generators</buildtool_depend>
  <depend>std_msgs</depend>
  <member_of_group>rosidl_interface_packages</member_of_group>
  <export> <build_type>ament_cmake</build_type> </export>
</package>
"""


def build_bond(folder: Path) -> dict[str, str]:
    """bond/msg/Status, built in the folder; returns what must come first in these search paths to find it."""
    files = {"msg/Status.msg": _STATUS, "CMakeLists.txt": _CMAKE, "package.xml": _PACKAGE}
    for name, text in files.items():
        (folder / "bond" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "bond" / name).write_text(text)
    installed = folder / "install"
    options = ["-GNinja", f"-DPython3_EXECUTABLE={sys.executable}", "-DBUILD_TESTING=OFF",
               f"-DCMAKE_INSTALL_RPATH={installed}/lib"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    made = subprocess.run(["colcon", "build", "--merge-install", "--cmake-args", *options], cwd=folder, env=environment,
                          capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    modules, = installed.glob("lib/python3*/site-packages")
    return {"PYTHONPATH": str(modules), "AMENT_PREFIX_PATH": str(installed), "LD_LIBRARY_PATH": f"{installed}/lib"}


class Sister:
    """bond::Bond in a process beside: waiting, alive, dying, dead. Times in seconds."""

    CONNECT, DISCONNECT, PERIOD, DEAD_PERIOD = 10.0, 2.0, 0.1, 0.05

    def __init__(self, robot: Robot, name: str, heartbeat_timeout: float) -> None:
        from bond.msg import Status

        self._kind, self._node, self._id, self._timeout = Status, robot.node, name, heartbeat_timeout
        self.instance, self.state, self.left_by_other = str(uuid.uuid4()), "waiting", False
        self.heard: list[Status] = []
        self._publisher = robot.node.create_publisher(Status, "bond", 5)
        self._subscription = robot.node.create_subscription(Status, "bond", self._hear, 100)
        self._until = time.monotonic() + self.CONNECT
        self._next = 0.0
        self._timer = robot.node.create_timer(0.02, self._tick)

    def leave(self) -> None:
        """breakBond."""
        if self.state == "alive":
            self.state, self._until = "dying", time.monotonic() + self.DISCONNECT
        elif self.state == "waiting":
            self.state = "dead"
        self.say(False)

    def close(self) -> None:
        """As its destructor."""
        if self.state != "dead":
            self.leave()
            wait_until(lambda: self.state == "dead", 0.1)
        self._node.destroy_timer(self._timer)
        self._node.destroy_subscription(self._subscription)
        self._node.destroy_publisher(self._publisher)

    def say(self, active: bool, name: str | None = None) -> None:
        self._publisher.publish(self._kind(id=name or self._id, instance_id=self.instance, active=active,
                                           heartbeat_timeout=self._timeout, heartbeat_period=self.PERIOD))

    def _hear(self, status) -> None:
        if status.id != self._id or status.instance_id == self.instance:
            return
        self.heard.append(status)
        if status.active:
            if self.state in ("waiting", "alive"):
                # (The timeout runs from the second heartbeat on.)
                self._until = time.monotonic() + self._timeout if self.state == "alive" else float("inf")
                self.state = "alive"
        elif self.state == "dying":
            self.state = "dead"
        elif self.state != "dead":
            self.state, self.left_by_other = "dead", True
            self.say(False)

    def _tick(self) -> None:
        now = time.monotonic()
        if now >= self._until:  # to connect, for a heartbeat, or to disconnect
            self.state = "dead"
        if now >= self._next and self.state != "dead":
            self._next = now + (self.DEAD_PERIOD if self.state == "dying" else self.PERIOD)
            self.say(self.state != "dying")


class Manager:
    """lifecycle_manager with one node; what it does at each of its commands. bond_timeout: s."""

    def __init__(self, robot: Robot, name: str, bond_timeout: float = 4.0) -> None:
        self._robot, self._name, self._timeout = robot, name, bond_timeout
        self.bond: Sister | None = None

    def startup(self) -> bool:
        return self._robot.lifecycle.change("configure") and self.resume()

    def resume(self) -> bool:
        if not (self._robot.lifecycle.change("activate") and self._robot.lifecycle.state() == "active"):
            return False
        if self.bond is None:
            self.bond = Sister(self._robot, self._name, self._timeout)
            # (Nav2 waits for half of the timeout; here a busy machine is no fault of the node.)
            return wait_until(lambda: self.bond.state != "waiting", Sister.CONNECT) and self.bond.state == "alive"
        return True

    def pause(self) -> bool:
        done = self._robot.lifecycle.change("deactivate") and self._robot.lifecycle.state() == "inactive"
        if done:
            self.let_go()
        return done

    def let_go(self) -> None:
        if self.bond is not None:
            self.bond.close()
            self.bond = None

    def node_is_down(self) -> bool:
        """checkBondConnections, five times a second: whether everything is to be brought down."""
        return self.bond is not None and self.bond.state == "dead"
