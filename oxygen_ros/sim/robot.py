"""Names and units of the simulated ALOHA: those of the embodiment, which are an Interbotix follower's on ROS."""
from __future__ import annotations

from ..embodiment.aloha import ALOHA, FINGER_CLOSED, FINGER_OPEN

JOINTS = tuple(ALOHA["joints"])
GRIPPERS = tuple(i for i, joint in enumerate(JOINTS) if joint in ALOHA["grippers"])  # indices into JOINTS
BASE_FRAME = ALOHA["frame_id"]


def finger_position(opening: float) -> float:
    """Gripper opening (0 closed, 1 open; gym-aloha's normalised value) to finger position in m."""
    return FINGER_CLOSED + opening * (FINGER_OPEN - FINGER_CLOSED)
