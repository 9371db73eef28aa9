"""What the simulated robot says on ROS: its topics, their types, the quality of service each is offered with."""
from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .cameras import CAMERAS


class Offer(Enum):
    """A publisher's (reliability, durability, depth)."""

    SENSOR = ("best_effort", "volatile", 5)
    STREAM = ("reliable", "volatile", 10)
    LATCHED = ("reliable", "transient_local", 1)


@dataclass(frozen=True)
class Topic:
    """A topic's message type and what its publisher offers."""

    type: str
    offer: Offer


JOINT_STATES, JOINT_COMMANDS, INSTRUCTION, PHASE = "/joint_states", "/joint_commands", "/instruction", "/phase"


def image_topic(camera: str) -> str:
    """The compressed image topic of a camera of `cameras.CAMERAS`, named as image_transport names it."""
    return f"/{camera}/image_raw/compressed"


TOPICS = {
    **{image_topic(camera): Topic("sensor_msgs/msg/CompressedImage", Offer.SENSOR) for camera in CAMERAS},
    JOINT_STATES: Topic("sensor_msgs/msg/JointState", Offer.STREAM),
    JOINT_COMMANDS: Topic("sensor_msgs/msg/JointState", Offer.STREAM),
    INSTRUCTION: Topic("oxygen_ros/msg/Instruction", Offer.LATCHED),
    PHASE: Topic("std_msgs/msg/String", Offer.LATCHED),
}
