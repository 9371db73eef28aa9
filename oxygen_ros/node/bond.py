"""The bond by which Nav2's lifecycle manager notices that a node has died, or is no longer active.

Both ends publish heartbeats on `bond`; which of them belong together the node's name says, an end's own id tells it
from the other. An end that leaves says so until the other one has too. (Rules: bondcpp of ros/bond_core, branch ros2;
as in Nav2's own nodes, silence of the manager changes nothing. bondpy starts a thread for each heartbeat it hears, and
declares a parameter that is not ours.)
"""

from __future__ import annotations

import os
import threading
import uuid

from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleNodeMixin
from rclpy.serialization import deserialize_message
from rclpy.timer import Timer

from ..settings import SettingsError
from . import qos
from .endpoints import Endpoints
from .lifecycle_client import wait_until
from .reader import NotByExecutor

_SILENCE = 4.0  # s; what Nav2's nodes say of how long they would wait for the other end
_FAREWELLS, _PAUSE = 3, 0.05  # how often it is said that an end leaves, and seconds in between


def status_type() -> type:
    """bond/msg/Status. Raises SettingsError where that package is not installed."""
    try:
        from bond.msg import Status
    except ImportError as error:
        package = f"ros-{os.environ.get('ROS_DISTRO', '<distro>')}-bond"
        raise SettingsError([f"parameter bond_heartbeat_period needs the ROS package bond, which is not there "
                             f"({error}): apt install {package}, or 0.0 for no bond"]) from error
    return Status


class Bond:
    """Held between `form` and `part`. Heartbeats are the executor's, which no inference keeps waiting: one that hangs
    is noticed, too.

    What the other end says is looked up at each. Every bond of the robot is on the one topic, 200 messages a second
    beside ten nodes of Nav2: an executor that woke for each took 7 % of a core.
    """

    def __init__(self, node: LifecycleNodeMixin, endpoints: Endpoints, period: float) -> None:
        """period: seconds between heartbeats. Raises SettingsError."""
        self._node, self._period, self._kind = node, period, status_type()
        self._id, self._own = node.get_name(), str(uuid.uuid4())
        self._count, self._held = 0, False
        self._other, self._left = "", False
        self._turn = threading.Lock()  # the executor's or a transition's: no heartbeat may follow a farewell
        self._timer: Timer | None = None
        self._publisher = endpoints.lasting_publisher(self._kind, "bond", qos.BOND)
        self._subscription = endpoints.subscription(self._kind, "bond", self._hear, qos.BONDS, group=NotByExecutor())

    def form(self) -> None:
        """Begin heartbeats, as a new end that no former bond is taken for."""
        with self._turn:
            self._listen()  # to what was said before
            self._count += 1
            self._other, self._left, self._held = "", False, True
            self._say(True)
        # A steady clock: simulated time may stand still while all is well.
        self._timer = self._node.create_timer(self._period, self._beat, clock=Clock(clock_type=ClockType.STEADY_TIME))

    def part(self) -> None:
        """Returns when the other end has answered, or will not."""
        if self._timer is not None:
            self._node.destroy_timer(self._timer)
            self._timer = None
        with self._turn:
            self._listen()
            held, self._held = self._held, False
        for _ in range(_FAREWELLS if held else 0):
            self._say(False)
            if not self._other or wait_until(self._has_left, _PAUSE):
                break

    def _beat(self) -> None:
        with self._turn:
            self._listen()
            if self._held:
                self._say(True)

    def _has_left(self) -> bool:
        with self._turn:
            self._listen()
            return self._left

    def _listen(self) -> None:
        while (taken := self._subscription.handle.take_message(self._kind, True)) is not None:
            self._subscription.callback(taken[0])

    def _say(self, active: bool) -> None:
        status = self._kind(id=self._id, instance_id=self._instance, active=active, heartbeat_timeout=_SILENCE,
                            heartbeat_period=self._period)
        status.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(status)

    @property
    def _instance(self) -> str:
        return f"{self._own}-{self._count}"

    def _hear(self, serialized: bytes) -> None:
        if self._id.encode() not in serialized:  # most are of other nodes' bonds
            return
        status = deserialize_message(serialized, self._kind)
        if status.id != self._id or status.instance_id.startswith(self._own):
            return
        if status.active:
            if self._held and not self._other:
                self._node.get_logger().info("bond formed")
            self._other = status.instance_id
        elif status.instance_id == self._other:  # not a late word of an end that was there before
            self._left = True
            if self._held:
                self._held = False
                self._say(False)
                self._node.get_logger().warning("bond broken by the other end; there is none until the next activate")
