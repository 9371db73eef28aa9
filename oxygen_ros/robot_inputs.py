"""A robot's inputs as its settings judge them, whoever hears the messages: the node, or a recording played to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .inputs import CameraInput, Inputs, JointInput
from .settings import Settings


@dataclass(frozen=True)
class Feed:
    """A topic and what its serialised messages are decoded to, raising InputError."""

    topic: str
    decode: Callable[[bytes], Any]


def robot_inputs(settings: Settings, names: Sequence[str], joints: Feed, cameras: Mapping[str, Feed]) -> Inputs:
    """names: of the state's dimensions. joints: decoded to names and positions. cameras: by name, to pixels."""
    return Inputs(
        JointInput(joints.topic, joints.decode, names, settings.joint_state_max_age),
        {name: _camera(settings, name, feed) for name, feed in cameras.items()},
        settings.camera_skew,
    )


def _camera(settings: Settings, name: str, feed: Feed) -> CameraInput:
    given = settings.camera[name]
    return CameraInput(feed.topic, feed.decode, given.max_age, frozen_after=given.frozen_after, optional=given.optional)
