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

from ..curves import colour, curves
from .evaluate import Evaluation, Side
from .measures import executed
from .rollout import Rollout
from .sources import Sources
from .writing import Recording

_SCENE = ("/tf", "/tf_static", "/robot_description")
_REPRESENTATIONS = ("absolute_position", "delta_position", "velocity", "end_effector_delta")  # as in ActionChunk.msg
_LINE_STRIP, _WARN = 4, 30  # visualization_msgs/Marker, rcl_interfaces/Log


def write_recording(done: Evaluation, path: Path) -> None:
    """The file appears when it is whole."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            writer = Recording(file)
            _copy(done, writer)
            for side, rollout, frames in zip(done.sides, done.rollouts, done.result["sides"].values()):
                _side(side, rollout, [f["normalised_mae"] for f in frames["frames"]], writer)
            writer.close()
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _copy(done: Evaluation, writer: Recording) -> None:
    rollout = done.rollouts[0]
    end_ns = rollout.moments[-1].tick_ns
    wanted = {topic for sources in done.sources for topic in _topics(sources)} | set(_SCENE)
    said_before = {sources.instruction.topic for sources in done.sources if sources.instruction} | set(_SCENE)
    for message in done.bag.messages([name for name in done.bag.topics if name in wanted]):
        if message.received_ns > end_ns:
            break
        if message.received_ns >= rollout.start_ns or message.topic in said_before:
            writer.copy(done.bag.topics[message.topic], max(message.received_ns, rollout.start_ns), message.data)


def _topics(sources: Sources) -> Iterator[str]:
    yield from sources.inputs
    yield from (source.topic for source in (sources.commands, sources.text) if source)


def _side(side: Side, rollout: Rollout, errors: list[float | None], writer: Recording) -> None:
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
            f"{here}/action_chunk", "oxygen_ros/msg/ActionChunk", now_ns,
            header=writer.header(moment.stamp_ns, robot.frame_id), sequence=moment.sequence,
            instruction_id=moment.instruction_id, step_dt=writer.duration(round(robot.step_dt * 1e9)),
            names=list(robot.actions), horizon=len(moment.actions),
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
        writer.write(f"{here}/executed", "sensor_msgs/msg/JointState", due_ns,
                     header=writer.header(due_ns, robot.frame_id), name=list(robot.actions),
                     position=np.asarray(row, np.float64))
    for answer in rollout.answers:
        if answer.finished:
            writer.write(f"{here}/utterance", "std_msgs/msg/String", answer.last_ns, data=answer.text)


def _curve(writer: Recording, robot: Any, dim: int, points: np.ndarray, start_ns: int) -> Any:
    red, green, blue = colour(dim, robot.action_dim)
    turned = writer.make("geometry_msgs/msg/Quaternion", w=1.0)
    return writer.make(
        "visualization_msgs/msg/Marker", header=writer.header(start_ns, robot.frame_id), ns=robot.actions[dim], id=dim,
        type=_LINE_STRIP, pose=writer.make("geometry_msgs/msg/Pose", orientation=turned),
        scale=writer.make("geometry_msgs/msg/Vector3", x=0.01),
        color=writer.make("std_msgs/msg/ColorRGBA", r=red, g=green, b=blue, a=1.0),
        points=[writer.make("geometry_msgs/msg/Point", x=x, y=y, z=z) for x, y, z in points.tolist()],
    )
