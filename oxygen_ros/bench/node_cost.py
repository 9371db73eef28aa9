"""What the node costs beside its engine: CPU, time from picture to chunk, and how long others wait for it.

The node, the cameras and we are processes of their own, on the embedded policy; its engine is small, so that what the
node adds is not lost in it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from bisect import bisect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from lifecycle_msgs.srv import GetState
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
from rcl_interfaces.srv import GetParameters, SetParameters
from rclpy.node import Node
from sensor_msgs.msg import Image

from ..children import child_process, keep_to_ourselves
from ..msg import ActionChunk, FrameStats, Instruction
from ..node import qos
from ..node.lifecycle_client import LifecycleClient, wait_until
from ..node.spinner import spinning
from ..places import resolve
from ..ros_arguments import as_arguments
from ..stamps import nanoseconds
from . import metered_node

NODE = "/oxygen"
RATE, CAMERA_RATE, CAMERAS = 10.0, 30.0, ("cam_high", "cam_left_wrist", "cam_right_wrist")
SETTLE = 3.0  # s
SLOW = 2.0  # s of one slowed inference
PATIENCE = 60.0  # s
PARAMETERS = {
    "policy": resolve("package://oxygen_ros/resource/pi05_aloha_tiny"), "robot": "aloha", "control_rate": RATE,
    "cameras": f"[{', '.join(CAMERAS)}]", "threads": 1, "chunk_lifespan": 10.0,
}


class NodeCostError(OSError):
    """The node did not do its part; the message says which."""


@dataclass(frozen=True)
class Heard:
    """A chunk, when it came to our process, and when rclpy called us, in ROS seconds."""

    chunk: ActionChunk
    came: float
    called: float


class Listener(Node):
    """Hears chunks, statistics, diagnostics and one camera."""

    def __init__(self) -> None:
        super().__init__("oxygen_bench")
        self.chunks: list[Heard] = []
        self.stats: list[FrameStats] = []
        self.ways: list[float] = []  # s from a picture's stamp to its receipt
        self.rates: list[float] = []  # pictures per second that the node hears of a camera
        self.instruction = self.create_publisher(Instruction, "instruction", qos.INSTRUCTION_LATCHED)
        self.create_subscription(ActionChunk, f"{NODE}/action_chunk", self._chunk, qos.action_chunk(0.0, 0.0))
        self.create_subscription(FrameStats, f"{NODE}/frame_stats", self.stats.append, qos.FRAME_STATS)
        self.create_subscription(DiagnosticArray, "/diagnostics", self._diagnostics, qos.DIAGNOSTICS)

    def watch_a_camera(self) -> object:
        return self.create_subscription(Image, f"{CAMERAS[0]}/image_raw", self._picture, qos.SENSOR)

    def _picture(self, message: Image) -> None:
        self.ways.append(self._now() - nanoseconds(message.header.stamp) / 1e9)

    def _diagnostics(self, message: DiagnosticArray) -> None:
        self.rates += [float(pair.value) for status in message.status for pair in status.values
                       if pair.key.endswith("/image_raw rate (Hz)")]

    def _chunk(self, chunk: ActionChunk, info) -> None:
        self.chunks.append(Heard(chunk, info["received_timestamp"] / 1e9, self._now()))

    def _now(self) -> float:
        return self.get_clock().now().nanoseconds / 1e9


def measure(seconds: float) -> dict:
    """Numbers for `--json`. Raises NodeCostError."""
    keep_to_ourselves()
    # Otherwise most of the pictures would be lost on their way, and cost nothing.
    os.environ.setdefault("FASTDDS_DEFAULT_PROFILES_FILE", str(resolve("package://oxygen_ros/config/fast_dds.xml")))
    with tempfile.TemporaryDirectory() as folder, spinning(Listener) as listener:
        return {"cameras": "3 x 640x480 rgb8 at 30 Hz", "control_rate_hz": RATE,
                **_cost(listener, Path(folder), seconds), "slowed_inference": _waiting(listener, Path(folder), seconds)}


def table(result: dict) -> str:
    wait = result["slowed_inference"]
    rows = [
        ("pictures heard of each camera; chunks",
         f"{result['pictures_per_camera_hz']:.1f}, {result['chunk_rate_hz']:.1f} Hz"),
        ("cameras alone, node's CPU", f"{result['idle_cpu']:.1%} of a core"),
        ("frames too, node's CPU beyond the engine's", f"{result['cpu_beyond_engine']:.1%} of a core"),
        ("engine's own first chunk, p50", _ms(result["engine_first_chunk_s"])),
        ("added by the node from tick to chunk, p50", _ms(result["added_s"])),
        ("  tick to frame, p50", _ms(result["tick_way_s"])),
        ("  pictures to model input, p50; p90", f"{_ms(result['preprocess_s'])}; {_ms(result['preprocess_p90_s'])}"),
        ("  engine's waits for other threads of the node, p50", _ms(result["engine_waits_s"])),
        ("  actions to a chunk at another process, p50", _ms(result["chunk_way_s"])),
        ("engine's wait for a core of this machine, p50 (not counted)", _ms(result["engine_queued_s"])),
        ("chunk to a callback of rclpy there, p50 (not counted)", _ms(result["callback_way_s"])),
        ("a picture's way from process to process, p50", _ms(result["picture_way_s"])),
        ("newest picture to chunk, p50, the wait for the tick too", _ms(result["picture_to_chunk_s"])),
        *((f"{name}, inference slowed to {SLOW:g} s: p50, worst", f"{_ms(w['p50'])}, {_ms(w['worst'])}")
          for name, w in wait.items()),
    ]
    return "\n".join(f"  {name:<62}{value:>18}" for name, value in rows)


def _cost(listener: Listener, folder: Path, seconds: float) -> dict:
    meter = folder / "meter"
    with _running(listener, ["oxygen_ros.bench.metered_node", str(meter)], folder, seconds) as node:
        idle, _ = _cpu(node.pid, seconds)
        _act(listener)
        time.sleep(SETTLE)
        for heard in (listener.chunks, listener.stats, listener.rates):
            heard.clear()
        busy, span = _cpu(node.pid, seconds)
        chunks, stats = list(listener.chunks), {s.sequence: s for s in listener.stats}
        pictures = _p50(listener.rates)
        watched = listener.watch_a_camera()
        time.sleep(SETTLE)
        listener.destroy_subscription(watched)
    frames = metered_node.frames(meter)
    ready = [frame.ready for frame in frames]
    made = [_Made(heard, stats[heard.chunk.sequence], frames[bisect(ready, heard.came) - 1])
            for heard in chunks if heard.chunk.sequence in stats]
    engine = sum(f.whole for f in frames if span[0] <= f.ready < span[1]) / (span[1] - span[0])
    return {
        "idle_cpu": idle,
        "cpu": busy,
        "cpu_beyond_engine": busy - engine,
        "engine_first_chunk_s": _p50([m.frame.chunk for m in made]),
        "added_s": _p50([m.tick_way + m.stats.preprocess + m.engine_waits + m.chunk_way for m in made]),
        "tick_way_s": _p50([m.tick_way for m in made]),
        "preprocess_s": _p50([m.stats.preprocess for m in made]),
        "preprocess_p90_s": float(np.quantile([m.stats.preprocess for m in made], 0.9)),
        "engine_waits_s": _p50([m.engine_waits for m in made]),
        "engine_queued_s": _p50([m.frame.queued for m in made]),
        "chunk_way_s": _p50([m.chunk_way for m in made]),
        "callback_way_s": _p50([m.heard.called - m.heard.came for m in made]),
        "picture_way_s": _p50(listener.ways),
        "picture_to_chunk_s": _p50([m.heard.came - nanoseconds(m.heard.chunk.header.stamp) / 1e9 for m in made]),
        "chunk_rate_hz": len(chunks) / seconds,
        "pictures_per_camera_hz": pictures,
    }


@dataclass(frozen=True)
class _Made:
    """A chunk as we heard it, and what was measured on the way to it. Spans in seconds."""

    heard: Heard
    stats: FrameStats
    frame: metered_node.Frame

    @property
    def tick_way(self) -> float:
        """From the timer to the beginning of the frame; slack counts from the timer on, to a period later."""
        return 1 / RATE - self.stats.slack - self.stats.total

    @property
    def engine_waits(self) -> float:
        """For Python, which one thread runs at a time; cores are everybody's."""
        return self.stats.prefill + self.stats.denoise - self.frame.chunk - self.frame.queued

    @property
    def chunk_way(self) -> float:
        return self.heard.came - self.frame.ready


def _waiting(listener: Listener, folder: Path, seconds: float) -> dict:
    """How long services and a STOP wait while every inference takes SLOW seconds of work."""
    with _running(listener, ["oxygen_ros.bench.slow_node", str(SLOW)], folder, seconds):
        _act(listener)
        before = len(listener.chunks)
        if not wait_until(lambda: len(listener.chunks) > before, PATIENCE):
            raise NodeCostError("the slowed node makes no chunks")
        times = {**_service_waits(listener, max(seconds, 3 * SLOW)), "STOP to hold": _stop_waits(listener)}
    return {
        name: {"p50": _p50(spans), "worst": max(spans), "calls": len(spans)} for name, spans in times.items() if spans
    }


def _service_waits(listener: Listener, seconds: float) -> dict[str, list[float]]:
    """Seconds of each call, over so many seconds, by service."""
    value = ParameterValue(type=ParameterType.PARAMETER_DOUBLE, double_value=0.5)
    calls = {
        "get_state": (GetState, GetState.Request()),
        "get_parameters": (GetParameters, GetParameters.Request(names=["control_rate"])),
        "set_parameters": (SetParameters, SetParameters.Request(
            parameters=[Parameter(name="joint_state_max_age", value=value)])),
    }
    clients = {name: listener.create_client(kind, f"{NODE}/{name}") for name, (kind, _) in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, (_, request) in calls.items():
            began = time.monotonic()
            future = clients[name].call_async(request)
            if not wait_until(future.done, PATIENCE, step=0.0005):
                raise NodeCostError(f"{name} was not answered")
            times[name].append(time.monotonic() - began)
        time.sleep(0.05)
    for client in clients.values():
        listener.destroy_client(client)
    return times


def _stop_waits(listener: Listener) -> list[float]:
    """Seconds from each of three STOPs to the chunk that holds."""
    times = []
    for _ in range(3):
        before, began = len(listener.chunks), time.monotonic()
        listener.instruction.publish(Instruction(task=Instruction.STOP))
        if wait_until(lambda: len(listener.chunks) > before, 2 * SLOW, step=0.0005):
            times.append(time.monotonic() - began)
        before = len(listener.chunks)
        _act(listener)
        wait_until(lambda: len(listener.chunks) > before, PATIENCE)
    return times


@contextmanager
def _running(listener: Listener, module: list[str], folder: Path, seconds: float) -> Iterator:
    """An active node and its cameras. Raises NodeCostError.

    Where a picture falls between two ticks decides what can be done ahead: within `seconds` it is everywhere once.
    """
    python = [sys.executable, "-m"]
    log = folder / "node.log"
    with child_process([*python, *module, "--ros-args", *as_arguments(PARAMETERS)], log) as node:
        lifecycle = LifecycleClient(listener, NODE, alive=lambda: node.poll() is None)
        for transition in ("configure", "activate"):
            if not lifecycle.change(transition):
                raise NodeCostError(f"{transition} failed: {log.read_text()[-500:]}")
        rate = CAMERA_RATE - 1 / seconds
        with child_process([*python, "oxygen_ros.bench.cameras", "--rate", str(rate)], folder / "cameras.log"):
            time.sleep(SETTLE)
            yield node


def _act(listener: Listener) -> None:
    listener.instruction.publish(Instruction(text="transfer the cube"))


def _cpu(pid: int, seconds: float) -> tuple[float, tuple[float, float]]:
    """Cores that a process keeps busy over the next `seconds`, and that span, in `time.time`."""
    began, before = time.time(), _ticks(pid)
    time.sleep(seconds)
    ended, after = time.time(), _ticks(pid)
    return (after - before) / os.sysconf("SC_CLK_TCK") / (ended - began), (began, ended)


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])  # user and system time


def _p50(values: list[float]) -> float:
    if not values:
        raise NodeCostError("nothing was measured: the node made no chunks")
    return float(np.median(values))


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"
