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

from ..embodiment.errors import InputError
from ..embodiment.images import picture
from ..embodiment.robot import Robot
from ..engine.outputs import FinishReason, Task, Token
from ..frames import Chunk
from ..msg import ActionChunk, Instruction, LanguageToken

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
    """A serialised camera message -> uint8 [H, W, 3] RGB. Raises InputError."""
    return picture(_deserialized(serialized, CAMERA_TYPES[transport]), transport)


def joint_state(serialized: bytes) -> tuple[Sequence[str], Sequence[float]]:
    """A serialised JointState -> names and positions. Raises InputError."""
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


def joint_trajectory(robot: Robot, actions: np.ndarray, *, start_ns: int, now_ns: int) -> JointTrajectory:
    """The part of a chunk that is not due yet, for joint_trajectory_controller."""
    step_ns = round(robot.step_dt * 1e9)
    first = max(0, -(-(now_ns - start_ns) // step_ns))
    message = JointTrajectory(joint_names=list(robot.actions))
    message.header.stamp = time_message(start_ns)
    message.header.frame_id = robot.frame_id
    message.points = [
        JointTrajectoryPoint(positions=actions[i].tolist(), time_from_start=duration_message(i * step_ns))
        for i in range(first, len(actions))
    ]
    return message


def predicted_path(robot: Robot, actions: np.ndarray, *, start_ns: int, spacing: float = 0.25, speed: float = 0.5
                   ) -> MarkerArray:
    """The chunk as one curve per action dimension beside the robot, for RViz.

    Joint space has no place in the scene without the robot's kinematics, so time runs along x (`speed` metres per
    second) and the change since the chunk's first action along z, one curve every `spacing` metres of y.
    """
    time_axis = np.arange(len(actions)) * robot.step_dt * speed
    height = actions - actions[0]
    markers = []
    for dim, name in enumerate(robot.actions):
        line = Marker(ns=name, id=dim, type=Marker.LINE_STRIP, action=Marker.ADD)
        line.header.frame_id = robot.frame_id
        line.header.stamp = time_message(start_ns)
        line.pose.orientation.w = 1.0
        line.scale.x = 0.01
        line.color.r, line.color.g, line.color.b, line.color.a = *_hue(dim / len(robot.actions)), 1.0
        y = (dim - (len(robot.actions) - 1) / 2) * spacing
        line.points = [Point(x=float(x), y=y, z=float(z)) for x, z in zip(time_axis, height[:, dim])]
        markers.append(line)
    return MarkerArray(markers=markers)


def language_token(token: Token, text: str, frame_id: str) -> LanguageToken:
    message = LanguageToken(
        request_id=token.request_id, task=TASKS[token.task], index=token.index, token_id=token.token_id, text=text,
        last=token.last, finish_reason=FINISH_REASONS[token.finish_reason], detail=token.detail,
    )
    message.header.stamp = time_message(token.stamp_ns)
    message.header.frame_id = frame_id
    return message


def _deserialized(serialized: bytes, kind: type):
    try:
        return deserialize_message(serialized, kind)
    except Exception as error:  # a bare RuntimeError for bytes of another shape, on older rclpy UnicodeDecodeError
        reason = str(error).partition(", at ")[0]
        raise InputError("message", f"{len(serialized)} bytes that do not deserialise ({reason})",
                         f"{kind.__module__.partition('.')[0]}/msg/{kind.__name__}") from error


def _hue(turn: float) -> Sequence[float]:
    """A saturated colour, red, green and blue in [0, 1]."""
    return [float(np.clip(abs((turn * 6 + shift) % 6 - 3) - 1, 0, 1)) for shift in (0, 4, 2)]
