"""What a session publishes."""

from __future__ import annotations

from dataclasses import asdict

from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory
from visualization_msgs.msg import MarkerArray

from .. import msg
from ..commander import Chunk
from ..embodiment.robot import Robot
from ..engine.outputs import Token
from ..frames import Stats
from ..settings import Settings
from . import messages, qos
from .endpoints import Endpoints

_STATS = msg.FrameStats.get_fields_and_field_types()


class Publishers:
    """One per topic, and what frames and speech say as the messages of this robot on them.

    In a dry run there is none for commands, so that nothing can send one.
    """

    def __init__(self, endpoints: Endpoints, settings: Settings, robot: Robot) -> None:
        command = qos.action_chunk(settings.chunk_deadline, settings.chunk_lifespan)
        publisher = endpoints.publisher
        self._robot, self._velocities = robot, settings.trajectory_velocities
        self._chunk = self._trajectory = None
        if settings.joint_trajectory:
            messages.trajectory_joints(robot)
        if not settings.dry_run:
            self._chunk = publisher(msg.ActionChunk, "~/action_chunk", command, timing=False)
        if settings.joint_trajectory and not settings.dry_run:
            self._trajectory = publisher(JointTrajectory, "~/joint_trajectory", command, timing=False)
        # Who asks while the node is not active is to hear it too when the request is refused, or ends unanswered.
        self.tokens = endpoints.lasting_publisher(msg.LanguageToken, "~/language_tokens", qos.LANGUAGE_TOKENS)
        self._utterance = publisher(String, "~/utterance", qos.UTTERANCE)
        self._memory = publisher(msg.LanguageToken, "~/memory", qos.MEMORY)
        self._stats = publisher(msg.FrameStats, "~/frame_stats", qos.FRAME_STATS)
        self._path = publisher(MarkerArray, "~/predicted_path", qos.PREDICTED_PATH)

    def chunk(self, chunk: Chunk) -> None:
        if not self._path.is_activated:  # a STOP may come at any time
            return
        if self._chunk is not None:
            self._chunk.publish(messages.action_chunk(self._robot, chunk))
        if self._trajectory is not None:
            trajectory = messages.joint_trajectory(self._robot, chunk, self._velocities)
            if trajectory is not None:
                self._trajectory.publish(trajectory)
        if self._path.get_subscription_count():  # hundreds of points, which cost more than the chunk
            self._path.publish(messages.predicted_path(self._robot, chunk.actions, start_ns=chunk.start_ns))

    def stats(self, stats: Stats) -> None:
        self._stats.publish(msg.FrameStats(**{name: v for name, v in asdict(stats).items() if name in _STATS}))

    def token(self, token: Token, text: str) -> None:
        self.tokens.publish(messages.language_token(token, text, self._robot.frame_id))

    def utterance(self, text: str) -> None:
        self._utterance.publish(String(data=messages.ros_text(text)))

    def memory(self, token: Token, text: str) -> None:
        self._memory.publish(messages.language_token(token, text, self._robot.frame_id))
