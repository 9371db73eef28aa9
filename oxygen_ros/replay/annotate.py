"""An evaluation as a recording: what the robot saw and was told, and beside it what the policy would have done.

RViz and Foxglove play it; topics of a policy are under its side's name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from mcap.writer import Writer
from rosbags.typesys.store import Typestore

from ..curves import colour, curves
from .decoding import full_type, ros2_types
from .evaluate import Evaluation, Side
from .measures import executed
from .rollout import Rollout
from .sources import Sources
from .storage import Topic

_SCENE = ("/tf", "/tf_static", "/robot_description")
_REPRESENTATIONS = ("absolute_position", "delta_position", "velocity", "end_effector_delta")  # as in ActionChunk.msg
_LINE_STRIP, _WARN = 4, 30  # visualization_msgs/Marker, rcl_interfaces/Log


def write_recording(done: Evaluation, path: Path) -> None:
    """The file appears when it is whole."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            writer = _Recording(file)
            _copy(done, writer)
            for side, rollout, frames in zip(done.sides, done.rollouts, done.result["sides"].values()):
                _side(side, rollout, [f["normalised_mae"] for f in frames["frames"]], writer)
            writer.close()
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


class _Recording:
    """Messages by their fields; what is not given is zero."""

    def __init__(self, file: Any) -> None:
        self._types: Typestore = ros2_types()
        self._writer = Writer(file)
        self._writer.start(profile="ros2", library="oxygen_ros.replay")
        self._channels: dict[str, int] = {}

    def write(self, topic: str, kind: str, time_ns: int, **fields: Any) -> None:
        if topic not in self._channels:
            definition, _ = self._types.generate_msgdef(kind, ros_version=2)
            self._open(topic, kind, "ros2msg", definition, {"topic_type_hash": self._types.hash_rihs01(kind)})
        self._add(topic, time_ns, bytes(self._types.serialize_cdr(self.make(kind, **fields), kind)))

    def copy(self, topic: Topic, time_ns: int, data: bytes) -> None:
        """A message of a bag, as it was."""
        if topic.name not in self._channels:
            kind, definition = full_type(topic.type), topic.definition
            if not definition and kind in self._types.fielddefs:
                definition, _ = self._types.generate_msgdef(kind, ros_version=2)
            about = {"offered_qos_profiles": topic.offered_qos, "topic_type_hash": topic.type_hash}
            self._open(topic.name, kind, topic.schema if topic.definition else "ros2msg", definition, about)
        self._add(topic.name, time_ns, data)

    def make(self, kind: str, **fields: Any) -> Any:
        known = self._types.fielddefs[kind][1]
        return self._types.types[kind](**{name: fields.get(name, self._zero(what)) for name, what in known})

    def close(self) -> None:
        self._writer.finish()

    def _zero(self, what: Any) -> Any:
        node, inner = what
        if node.name == "NAME":
            return self.make(inner)
        if node.name == "BASE":
            return "" if inner[0] == "string" else False if inner[0] == "bool" else 0
        (of, item), length = inner
        if of.name == "NAME" or item[0] == "string":
            return [self._zero((of, item)) for _ in range(length if node.name == "ARRAY" else 0)]
        return np.zeros(length if node.name == "ARRAY" else 0, item[0])

    def _open(self, topic: str, kind: str, schema: str, definition: str, about: dict[str, str]) -> None:
        number = self._writer.register_schema(kind, schema, definition.encode())
        self._channels[topic] = self._writer.register_channel(topic, "cdr", number, {k: v for k, v in about.items() if v})

    def _add(self, topic: str, time_ns: int, data: bytes) -> None:
        self._writer.add_message(self._channels[topic], time_ns, data, time_ns)

    def stamp(self, time_ns: int) -> Any:
        return self.make("builtin_interfaces/msg/Time", sec=int(time_ns // 10**9), nanosec=int(time_ns % 10**9))

    def duration(self, time_ns: int) -> Any:
        return self.make("builtin_interfaces/msg/Duration", sec=int(time_ns // 10**9), nanosec=int(time_ns % 10**9))

    def header(self, time_ns: int, frame_id: str) -> Any:
        return self.make("std_msgs/msg/Header", stamp=self.stamp(time_ns), frame_id=frame_id)


def _copy(done: Evaluation, writer: _Recording) -> None:
    rollout = done.rollouts[0]
    end_ns = rollout.moments[-1].tick_ns
    wanted = {topic for sources in done.sources for topic in _topics(sources)} | set(_SCENE)
    said_before = {sources.instruction.topic for sources in done.sources if sources.instruction} | set(_SCENE)
    for message in done.bag.messages([name for name in done.bag.topics if name in wanted]):
        if message.received_ns <= end_ns and (message.received_ns >= rollout.start_ns or message.topic in said_before):
            writer.copy(done.bag.topics[message.topic], max(message.received_ns, rollout.start_ns), message.data)


def _topics(sources: Sources) -> Iterator[str]:
    yield from sources.inputs
    yield from (source.topic for source in (sources.commands, sources.text) if source)


def _side(side: Side, rollout: Rollout, errors: list[float | None], writer: _Recording) -> None:
    robot, here = side.policy.robot, f"/{side.name}"
    for moment, error in zip(rollout.moments, errors):
        now_ns = moment.tick_ns
        if moment.stats:
            writer.write(f"{here}/frame_stats", "oxygen_ros/msg/FrameStats", now_ns, **asdict(moment.stats))
        if error is not None:
            writer.write(f"{here}/normalised_error", "std_msgs/msg/Float64", now_ns, data=float(error))
        for reason in moment.reasons:
            writer.write(f"{here}/log", "rcl_interfaces/msg/Log", now_ns, stamp=writer.stamp(now_ns), level=_WARN,
                         name=side.name, msg=f"no chunk: {reason}")
        if moment.actions is None:
            continue
        writer.write(
            f"{here}/action_chunk", "oxygen_ros/msg/ActionChunk", now_ns, header=writer.header(moment.stamp_ns, robot.frame_id),
            sequence=moment.sequence, instruction_id=moment.instruction_id,
            step_dt=writer.duration(round(robot.step_dt * 1e9)), names=list(robot.actions), horizon=len(moment.actions),
            action_dim=robot.action_dim, data=np.ascontiguousarray(moment.actions, np.float32).ravel(),
            representation=_REPRESENTATIONS.index(robot.representation), start=writer.stamp(moment.start_ns),
            latency=writer.duration(max(0, now_ns - moment.stamp_ns)),
        )
        writer.write(f"{here}/predicted_path", "visualization_msgs/msg/MarkerArray", now_ns, markers=[
            _curve(writer, robot, dim, points, moment.start_ns)
            for dim, points in enumerate(curves(moment.actions, robot.step_dt))
        ])
    done = executed(rollout, robot)
    for due_ns, row in zip(done.times_ns.tolist(), done.values):
        writer.write(f"{here}/executed", "sensor_msgs/msg/JointState", due_ns, header=writer.header(due_ns, robot.frame_id),
                     name=list(robot.actions), position=np.asarray(row, np.float64))
    for answer in rollout.answers:
        if answer.finished:
            writer.write(f"{here}/utterance", "std_msgs/msg/String", answer.last_ns, data=answer.text)


def _curve(writer: _Recording, robot: Any, dim: int, points: np.ndarray, start_ns: int) -> Any:
    red, green, blue = colour(dim, robot.action_dim)
    turned = writer.make("geometry_msgs/msg/Quaternion", w=1.0)
    return writer.make(
        "visualization_msgs/msg/Marker", header=writer.header(start_ns, robot.frame_id), ns=robot.actions[dim], id=dim,
        type=_LINE_STRIP, pose=writer.make("geometry_msgs/msg/Pose", orientation=turned),
        scale=writer.make("geometry_msgs/msg/Vector3", x=0.01),
        color=writer.make("std_msgs/msg/ColorRGBA", r=red, g=green, b=blue, a=1.0),
        points=[writer.make("geometry_msgs/msg/Point", x=x, y=y, z=z) for x, y, z in points.tolist()],
    )
