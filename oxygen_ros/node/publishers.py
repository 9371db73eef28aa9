"""What a session publishes."""

from __future__ import annotations

from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory
from visualization_msgs.msg import MarkerArray

from .. import msg
from ..settings import Settings
from . import qos
from .endpoints import Endpoints


class Publishers:
    """One per topic. trajectory is None where it is not asked for."""

    def __init__(self, endpoints: Endpoints, settings: Settings) -> None:
        command = qos.action_chunk(settings.chunk_deadline, settings.chunk_lifespan)
        publisher = endpoints.publisher
        self.chunk = publisher(msg.ActionChunk, "~/action_chunk", command, timing=False)
        self.trajectory = None
        if settings.joint_trajectory:
            self.trajectory = publisher(JointTrajectory, "~/joint_trajectory", command, timing=False)
        self.tokens = publisher(msg.LanguageToken, "~/language_tokens", qos.LANGUAGE_TOKENS)
        self.utterance = publisher(String, "~/utterance", qos.UTTERANCE)
        self.memory = publisher(msg.LanguageToken, "~/memory", qos.MEMORY)
        self.stats = publisher(msg.FrameStats, "~/frame_stats", qos.FRAME_STATS)
        self.path = publisher(MarkerArray, "~/predicted_path", qos.PREDICTED_PATH)
