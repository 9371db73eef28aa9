"""A robot and its operator for the tests: publishes the sample bag's messages, hears everything the node says."""

from __future__ import annotations

import itertools
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from lifecycle_msgs.srv import ChangeState
from rcl_interfaces.msg import Log
from rcl_interfaces.srv import SetParameters
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage, JointState
from std_msgs.msg import String

from oxygen_ros.msg import ActionChunk, FrameStats, Instruction, LanguageToken
from oxygen_ros.node.lifecycle_client import LifecycleClient, wait_until
from oxygen_ros.node.oxygen_node import OxygenNode
from oxygen_ros.node.spinner import Spinner
from oxygen_ros.replay.bag import open_bag

ROOT = Path(__file__).parents[2]
BAG = ROOT / "resource" / "aloha_transfer_cube.mcap"
POLICY = ROOT / "resource" / "pi05_aloha_tiny"
CONFIG = ROOT / "config" / "aloha.yaml"
CAMERAS = ("cam_high", "cam_left_wrist", "cam_right_wrist")
JOINTS = "joint_states"
TOPIC = {**{name: f"{name}/image_raw/compressed" for name in CAMERAS}, JOINTS: JOINTS}
SETTINGS = {
    "policy": str(POLICY), "robot": "aloha", "cameras": list(CAMERAS), "control_rate": 5.0,
    "fixed_noise": True, "seed": 7,
    "language.temperature": 0.0, "threads": 1,  # other processes on the machine stall a second one
    **{f"camera.{name}.transport": "compressed" for name in CAMERAS},
}
PATIENCE = 20.0  # s; for what takes a moment on an idle machine


def recorded(topic: str, count: int) -> list[bytes]:
    """The first messages of a topic of the sample bag, serialised."""
    return [m.data for m in itertools.islice(open_bag(BAG).messages(["/" + topic]), count)]


def stamped(serialized: bytes, stamp_ns: int) -> bytes:
    return serialized[:4] + struct.pack("<iI", stamp_ns // 10**9, stamp_ns % 10**9) + serialized[12:]


class Heard:
    """Everything the node said, in the order of arrival."""

    def __init__(self) -> None:
        self.chunks: list[ActionChunk] = []
        self.tokens: list[LanguageToken] = []
        self.memory: list[LanguageToken] = []
        self.utterances: list[str] = []
        self.stats: list[FrameStats] = []
        self.log: list[Log] = []
        self.diagnostics: list[DiagnosticArray] = []

    def lines(self, level: bytes = Log.WARN) -> list[str]:
        least = int.from_bytes(level, "little") if isinstance(level, bytes) else level
        return [line.msg for line in list(self.log) if line.level >= least]

    def said(self, *parts: str, level: bytes = Log.WARN) -> bool:
        """Whether one log line holds all the parts."""
        return any(all(part in line for part in parts) for line in self.lines(level))

    def reported(self, status: str, *parts: str, level: bytes | None = None, last: int = 0) -> bool:
        """Whether /diagnostics has had this status with all the parts in its text, at this level.

        last: in so many of its messages; 0 is any."""
        return any(
            s.name.endswith(f": {status}") and all(part in s.message for part in parts) and level in (None, s.level)
            for array in list(self.diagnostics)[-last:] for s in array.status
        )

    def text(self, request_id: int) -> str:
        return "".join(t.text for t in list(self.tokens) if t.request_id == request_id)

    def last(self, request_id: int) -> LanguageToken | None:
        return next((t for t in list(self.tokens) if t.request_id == request_id and t.last), None)


class Robot:
    """One participant on one domain. node: full name of the node that it listens to."""

    def __init__(self, domain: int, node: str = "/oxygen", topics: dict[str, str] = TOPIC,
                 instruction: str = "/instruction", name: str = "robot") -> None:
        self.domain, self.target, self.heard = domain, node, Heard()
        self.context = Context()
        rclpy.init(context=self.context, domain_id=domain)
        self.node = rclpy.create_node(name, context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        best, reliable = ReliabilityPolicy.BEST_EFFORT, ReliabilityPolicy.RELIABLE
        latched = QoSProfile(depth=100, reliability=reliable, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self.sensors = {
            name: self.node.create_publisher(JointState if name == JOINTS else CompressedImage, topic,
                                             QoSProfile(depth=5, reliability=best))
            for name, topic in topics.items()
        }
        self.instruction = self.node.create_publisher(Instruction, instruction, 10)
        heard, listen = self.heard, self.node.create_subscription
        listen(ActionChunk, f"{node}/action_chunk", heard.chunks.append, 10)
        listen(LanguageToken, f"{node}/language_tokens", heard.tokens.append, 1000)
        listen(LanguageToken, f"{node}/memory", heard.memory.append, latched)
        listen(String, f"{node}/utterance", lambda m: heard.utterances.append(m.data), latched)
        listen(FrameStats, f"{node}/frame_stats", heard.stats.append, QoSProfile(depth=10, reliability=best))
        listen(DiagnosticArray, "/diagnostics", heard.diagnostics.append, 10)
        listen(Log, "/rosout", heard.log.append, latched)
        self.lifecycle = LifecycleClient(self.node, node)
        self._change = self.node.create_client(ChangeState, f"{node}/change_state")
        self.messages = {name: recorded(TOPIC[name], 12) for name in topics}
        self.reset()
        self._pumping = threading.Event()
        self._closed = False
        self._spinner = Spinner(self.executor)
        self._pump_thread = threading.Thread(target=self._pump)
        self._pump_thread.start()

    def reset(self) -> None:
        """The sensors of a healthy robot, and nothing heard yet."""
        self.off: set[str] = set()
        self.still: int | None = None  # the one message that is sent again and again, restamped
        self.offset_ns: dict[str, int] = {}
        self.instead: dict[str, Callable[[int], bytes]] = {}  # name -> message for a stamp
        self.sent: dict[str, dict[int, int]] = {name: {} for name in self.sensors}  # name -> stamp -> index of message
        for kept in vars(self.heard).values():
            kept.clear()

    def now(self) -> int:
        return self.node.get_clock().now().nanoseconds

    def publish(self, index: int, stamp_ns: int | None = None) -> int:
        """One message of each sensor; returns their stamp."""
        stamp_ns = self.now() if stamp_ns is None else stamp_ns
        for name, publisher in self.sensors.items():
            if name in self.off:
                continue
            moved = stamp_ns + self.offset_ns.get(name, 0)
            make = self.instead.get(name)
            self.sent[name][moved] = index % 12
            publisher.publish(make(moved) if make else stamped(self.messages[name][index % 12], moved))
        return stamp_ns

    def _pump(self) -> None:
        for index in itertools.count():
            self._pumping.wait()
            if self._closed:
                return
            self.publish(index if self.still is None else self.still)
            time.sleep(1 / 25)

    @contextmanager
    def running(self) -> Iterator[None]:
        """All sensors at 25 Hz."""
        self._pumping.set()
        try:
            yield
        finally:
            self._pumping.clear()

    def tell(self, text: str = "", task: int = Instruction.ACT, id: int = 0, **fields) -> None:
        self.instruction.publish(Instruction(task=task, id=id, text=text, **fields))

    def wait_for(self, condition: Callable[[], object], what: str, timeout: float = PATIENCE) -> None:
        if not wait_until(lambda: bool(condition()), timeout):
            lines = "\n".join(self.heard.lines(Log.INFO)[-20:])
            last = [f"{s.name}: {s.message}" for array in self.heard.diagnostics[-1:] for s in array.status]
            raise AssertionError(f"never: {what}\nlog: {lines}\ndiagnostics: {last}\n{self.heard.stats[-1:]}")

    def wait_for_chunks(self, count: int = 1, since: int | None = None) -> list[ActionChunk]:
        """`count` chunks more than there are (or than `since`, a number of them)."""
        begin = len(self.heard.chunks) if since is None else since
        self.wait_for(lambda: len(self.heard.chunks) >= begin + count, f"{count} chunks")
        return self.heard.chunks[begin:]

    def wait_for_topics(self) -> None:
        """Until node and robot hear each other."""
        heard_by_node = [*self.sensors.values(), self.instruction]
        self.wait_for(lambda: all(p.get_subscription_count() for p in heard_by_node), "subscriptions of the node")
        self.wait_for(lambda: all(self.node.count_publishers(f"{self.target}/{t}") for t in (
            "action_chunk", "language_tokens", "frame_stats", "memory", "utterance")), "publishers of the node")

    def bring_up(self, instruction: str | None = "transfer the cube") -> None:
        """configure, activate, and the first chunk."""
        assert self.lifecycle.change("configure"), self.heard.lines()
        self.wait_for_topics()
        assert self.lifecycle.change("activate")
        if instruction:
            self.tell(instruction)
            with self.running():
                self.wait_for_chunks()

    def begin(self, transition: int):
        """Ask for a transition by its number; returns the future of the answer."""
        request = ChangeState.Request()
        request.transition.id = transition
        assert self._change.wait_for_service(timeout_sec=PATIENCE)
        return self._change.call_async(request)

    def call(self, kind: type, service: str, request, timeout: float = PATIENCE):
        client = self.node.create_client(kind, f"{self.target}/{service}")
        assert client.wait_for_service(timeout_sec=timeout), f"no service {service}"
        future = client.call_async(request)
        assert wait_until(future.done, timeout), f"no answer of {service}"
        self.node.destroy_client(client)
        return future.result()

    def set_parameter(self, name: str, value) -> None:
        request = SetParameters.Request(parameters=[Parameter(name, value=value).to_parameter_msg()])
        result = self.call(SetParameters, "set_parameters", request).results[0]
        assert result.successful, result.reason

    def close(self) -> None:
        self._closed = True
        self._pumping.set()
        self._pump_thread.join()
        self._spinner.stop()
        self.node.destroy_node()
        self.context.shutdown()


class InProcess:
    """The node in this process, spun by a thread of its own, so that a test can look inside or slow it down.

    name: one that no other node of this process ever has, because rcl gives a second one no way to /rosout.
    """

    def __init__(self, domain: int, name: str, settings: dict | None = None) -> None:
        self.context = Context()
        rclpy.init(context=self.context, domain_id=domain)
        overrides = [Parameter(name, value=value) for name, value in {**SETTINGS, **(settings or {})}.items()]
        self.node = OxygenNode(name, context=self.context, parameter_overrides=overrides)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self._spinner = Spinner(self.executor)

    @property
    def engine(self):
        return self.node.session.policy.engine

    def close(self) -> None:
        self.node.shut_down()
        self._spinner.stop()
        self.node.destroy_node()
        self.context.shutdown()


class Process:
    """A command of the package in a process of its own; `log` is what it printed, stderr included.

    first: a folder that goes before all others where Python looks for packages.
    """

    def __init__(self, domain: int, log: Path, module: str, *arguments: object, first: Path | None = None) -> None:
        environment = {**os.environ, "ROS_DOMAIN_ID": str(domain), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
        if first:
            environment["PYTHONPATH"] = f"{first}:{os.environ.get('PYTHONPATH', '')}"
        self._log = log
        with log.open("w") as file:
            self.child = subprocess.Popen([sys.executable, "-u", "-m", module, *map(str, arguments)], stdout=file,
                                          stderr=subprocess.STDOUT, env=environment, start_new_session=True)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def signal(self, number: int) -> None:
        self.child.send_signal(number)

    def wait(self, timeout: float = PATIENCE) -> int:
        return self.child.wait(timeout)

    def close(self) -> None:
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGKILL)
            self.child.wait()


def node_process(domain: int, log: Path, *arguments: object, settings: dict | None = None, first: Path | None = None
                 ) -> Process:
    """`oxygen-node` with these parameters and ROS arguments."""
    chosen = {**SETTINGS, **(settings or {})}
    values = [part for name, value in chosen.items() for part in ("-p", f"{name}:={_yaml(value)}")]
    return Process(domain, log, "oxygen_ros.node.main", "--ros-args", *values, *arguments, first=first)


def _yaml(value) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


