"""Plain data into ROS messages, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from builtin_interfaces.msg import Duration, Time
from geometry_msgs.msg import Point
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import CompressedImage, Image, JointState
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint
from visualization_msgs.msg import Marker, MarkerArray

from .. import plain_cdr
from ..commander import Chunk
from ..curves import colour, curves
from ..embodiment.errors import InputError
from ..embodiment.images import picture
from ..embodiment.robot import Robot
from ..engine.outputs import FinishReason, Task, Token
from ..msg import ActionChunk, Instruction, LanguageToken

_SHORTEST = 12  # bytes, of any message that is heard here; the four of an encapsulation alone can crash Fast CDR
CAMERA_TYPES = {"raw": Image, "compressed": CompressedImage}

REPRESENTATIONS = {
    "absolute_position": ActionChunk.ABSOLUTE_POSITION,
    "delta_position": ActionChunk.DELTA_POSITION,
    "velocity": ActionChunk.VELOCITY,
    "end_effector_delta": ActionChunk.END_EFFECTOR_DELTA,
}
TASKS = {
    Task.ASK: LanguageToken.ASK,
    Task.REMEMBER: LanguageToken.REMEMBER,
    Task.SUBTASK: LanguageToken.SUBTASK,
}
FINISH_REASONS = {
    FinishReason.NONE: LanguageToken.NONE,
    FinishReason.END_OF_TEXT: LanguageToken.END_OF_TEXT,
    FinishReason.LENGTH: LanguageToken.LENGTH,
    FinishReason.CANCELLED: LanguageToken.CANCELLED,
    FinishReason.REJECTED: LanguageToken.REJECTED,
    FinishReason.ERROR: LanguageToken.ERROR,
}


def time_message(nanoseconds: int) -> Time:
    return Time(sec=nanoseconds // 1_000_000_000, nanosec=nanoseconds % 1_000_000_000)


def duration_message(nanoseconds: int) -> Duration:
    return Duration(sec=nanoseconds // 1_000_000_000, nanosec=nanoseconds % 1_000_000_000)


def pixels(serialized: bytes, transport: str) -> np.ndarray:
    """A serialised camera message -> uint8 [H, W, 3] RGB, a view of it where that is possible. Raises InputError."""
    message = plain_cdr.image(serialized) if transport == "raw" else None
    return picture(message or _deserialized(serialized, CAMERA_TYPES[transport]), transport)


def joint_state(serialized: bytes) -> tuple[Sequence[str], Sequence[float]]:
    """A serialised JointState -> names and positions. Raises InputError."""
    if (read := plain_cdr.joint_state(serialized)) is not None:
        return read
    message = _deserialized(serialized, JointState)
    return message.name, message.position


def instruction(serialized: bytes) -> Instruction:
    """Raises InputError."""
    return _deserialized(serialized, Instruction)


def action_chunk(robot: Robot, chunk: Chunk) -> ActionChunk:
    message = ActionChunk(
        sequence=chunk.sequence,
        instruction_id=chunk.instruction_id,
        step_dt=duration_message(round(robot.step_dt * 1e9)),
        names=list(robot.actions),
        horizon=chunk.actions.shape[0],
        action_dim=chunk.actions.shape[1],
        representation=REPRESENTATIONS[robot.representation],
        start=time_message(chunk.start_ns),
        latency=duration_message(max(0, chunk.sent_ns - chunk.stamp_ns)),
    )
    message.header.stamp = time_message(chunk.stamp_ns)
    message.header.frame_id = robot.frame_id
    message.data.frombytes(np.ascontiguousarray(chunk.actions, np.float32).tobytes())
    return message


def joint_trajectory(robot: Robot, chunk: Chunk, velocities: bool = False) -> JointTrajectory | None:
    """The part of a chunk that is not due yet, for joint_trajectory_controller.

    None where nothing of it can be told, and where less than a step of it is left: it could arrive when all is past,
    which the controller refuses.
    velocities: beside positions too. The controller refuses a last point that is not at rest: a trajectory with
    velocities ends in one that is.
    A robot that takes velocities gets velocities alone, of what is no gripper, from the moment of arrival on (a stamp
    of zero): the controller makes positions of them from point to point, and where the first one were past when it
    arrives there would be none to begin with (it would read what is not there, and its process end).
    """
    step_ns, state, moves = round(robot.step_dt * 1e9), chunk.state, robot.representation == "velocity"
    passed_ns = max(0, chunk.sent_ns - chunk.start_ns)
    if passed_ns > (len(chunk.actions) - 2) * step_ns or (robot.representation == "delta_position" and state is None):
        return None
    first = passed_ns // step_ns + 1 if moves else -(-passed_ns // step_ns)
    names, values = trajectory_joints(robot), chunk.actions.astype(np.float64)
    values = values[:, [robot.actions.index(name) for name in names]]
    if robot.representation == "delta_position":
        values = values + [0.0 if name in robot.grippers else state[robot.joints.index(name)] for name in names]
    message = JointTrajectory(joint_names=names)
    message.header.frame_id = robot.frame_id
    if not moves:
        message.header.stamp = time_message(chunk.start_ns)

    def point(i: int, **fields: np.ndarray) -> JointTrajectoryPoint:
        lists = {key: row.tolist() for key, row in fields.items()}
        return JointTrajectoryPoint(time_from_start=duration_message(i * step_ns - passed_ns * moves), **lists)

    if moves:
        message.points = [point(i, velocities=values[i]) for i in range(first, len(values))]
        message.points.append(point(len(values), velocities=np.zeros(len(names))))
    elif velocities:
        slopes = np.gradient(values, robot.step_dt, axis=0)
        slopes[-1] = 0.0
        message.points = [point(i, positions=values[i], velocities=slopes[i]) for i in range(first, len(values))]
    else:
        message.points = [point(i, positions=values[i]) for i in range(first, len(values))]
    return message


def trajectory_joints(robot: Robot) -> list[str]:
    """The joints of ~/joint_trajectory. Raises InputError where the robot's actions cannot be told as one."""
    if robot.representation == "end_effector_delta":
        raise InputError("parameter joint_trajectory", "actions that are end_effector_delta", "actions of joints",
                         "~/action_chunk carries them")
    if robot.representation == "velocity":
        return [name for name in robot.actions if name not in robot.grippers]
    if robot.representation == "delta_position":
        strangers = [name for name in robot.actions if name not in (*robot.joints, *robot.grippers)]
        if strangers:
            raise InputError("parameter joint_trajectory", f"displacements of {', '.join(strangers)}", "joints",
                             "their positions are not known")
    return list(robot.actions)


def predicted_path(robot: Robot, actions: np.ndarray, *, start_ns: int) -> MarkerArray:
    """The chunk as one curve for each action dimension, for RViz."""
    markers = []
    for dim, (name, points) in enumerate(zip(robot.actions, curves(actions, robot.step_dt))):
        line = Marker(ns=name, id=dim, type=Marker.LINE_STRIP, action=Marker.ADD)
        line.header.frame_id = robot.frame_id
        line.header.stamp = time_message(start_ns)
        line.pose.orientation.w = 1.0
        line.scale.x = 0.01
        line.color.r, line.color.g, line.color.b, line.color.a = *colour(dim, len(robot.actions)), 1.0
        line.points = [Point(x=x, y=y, z=z) for x, y, z in points.tolist()]
        markers.append(line)
    return MarkerArray(markers=markers)


def ros_text(text: str) -> str:
    """As a ROS string can hold it: what follows a zero in one is lost without a word."""
    return text.replace("\0", "\ufffd")


def language_token(token: Token, text: str, frame_id: str) -> LanguageToken:
    message = LanguageToken(
        request_id=token.request_id, task=TASKS[token.task], index=token.index, token_id=token.token_id,
        text=ros_text(text), last=token.last, finish_reason=FINISH_REASONS[token.finish_reason], detail=token.detail,
    )
    message.header.stamp = time_message(token.stamp_ns)
    message.header.frame_id = frame_id
    return message


def _deserialized(serialized: bytes, kind: type):
    try:
        if len(serialized) < _SHORTEST:
            raise ValueError("too few")
        return deserialize_message(serialized, kind)
    except Exception as error:  # a bare RuntimeError for bytes of another shape, on older rclpy UnicodeDecodeError
        reason = str(error).partition(", at ")[0]
        raise InputError("message", f"{len(serialized)} bytes that do not deserialise ({reason})",
                         f"{kind.__module__.partition('.')[0]}/msg/{kind.__name__}") from error
