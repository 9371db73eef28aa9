"""Which topics of a bag are the robot's cameras, joints, instructions and commands, and what their messages say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..embodiment.images import picture
from ..embodiment.errors import InputError
from ..instructions import Instruction
from ..robot_inputs import Feed
from ..settings import Settings
from .bag import Bag, BagError
from .decoding import Decoding, full_type

CAMERA_TYPES = {"raw": "sensor_msgs/msg/Image", "compressed": "sensor_msgs/msg/CompressedImage"}
JOINT_STATE, STRING = "sensor_msgs/msg/JointState", "std_msgs/msg/String"
INSTRUCTION, TOKEN = "oxygen_ros/msg/Instruction", "oxygen_ros/msg/LanguageToken"
TRAJECTORY, ARRAY = "trajectory_msgs/msg/JointTrajectory", "std_msgs/msg/Float64MultiArray"
NOTHING = "none"


@dataclass(frozen=True)
class Names:
    """What topics are called where the settings do not say. Names are the node's: relative ones are in `namespace`, and
    `remaps` tell where a topic of the node is in the bag. commands: `none` is to do without.
    """

    namespace: str = ""
    remaps: Mapping[str, str] = field(default_factory=dict)
    instruction: str = "instruction"
    commands: str = "joint_commands"
    text: str = ""

    def resolve(self, name: str) -> str:
        inner = self.namespace.strip("/")
        full = name if name.startswith("/") else "/" + (f"{inner}/{name}" if inner else name)
        return self.remaps.get(name) or self.remaps.get(full) or full


@dataclass(frozen=True)
class Sources:
    """Topics with what their messages are decoded to.

    cameras: by the robot's name, to uint8 [H, W, 3] RGB. joints: to names and positions. instruction: to Instruction.
    commands: to the message; text: to (finished text or None). None is what the bag has not, or nobody asked for.
    """

    cameras: Mapping[str, Feed]
    joints: Feed
    instruction: Feed | None
    commands: Feed | None
    text: Feed | None
    unused: tuple[str, ...] = ()

    @property
    def inputs(self) -> set[str]:
        wanted = {source.topic for source in (*self.cameras.values(), self.joints)}
        return wanted | ({self.instruction.topic} if self.instruction else set())


def find(bag: Bag, settings: Settings, names: Names, decoding: Decoding) -> Sources:
    """Raises BagError that names each topic that is missing, empty, or of a type that cannot be used."""
    problems: list[str] = []

    def source(name: str, types: tuple[str, ...], make: Callable[[Callable, str], Callable], needed: str
               ) -> Feed | None:
        topic = bag.topics.get(names.resolve(name))
        if topic is None or not bag.counts.get(topic.name):
            if needed:
                lacks = f"has no {names.resolve(name)}" if topic is None else f"has no message on {topic.name}"
                problems.append(f"{lacks}, {needed}")
            return None
        try:
            return Feed(topic.name, make(decoding.decoder(topic, types), full_type(topic.type)))
        except BagError as error:
            other = {full_type(topic.type), types[0]} == set(CAMERA_TYPES.values())
            problems.append(f"{error}{' (parameter camera.<name>.transport)' if other else ''}")
            return None

    cameras = {}
    for name in settings.cameras:
        transport = settings.camera[name].transport
        optional = settings.camera[name].optional
        cameras[name] = source(settings.topic_of(name), (CAMERA_TYPES[transport],),
                               lambda decode, _, t=transport: lambda data: picture(decode(data), t),
                               "" if optional else f"the pictures of camera {name}")
        if optional and cameras[name] is None:
            cameras[name] = Feed(names.resolve(settings.topic_of(name)), bytes)  # never heard, so never decoded
    joints = source("joint_states", (JOINT_STATE,), lambda decode, _: lambda data: _positions(decode(data)),
                    "the robot's joints")
    instruction = source(names.instruction, (INSTRUCTION, STRING), _instruction, "")
    commands = None
    if names.commands != NOTHING:
        commands = source(names.commands, (JOINT_STATE, TRAJECTORY, ARRAY), lambda decode, _: decode,
                          "the recorded commands to compare with (--commands TOPIC; --commands none does without)")
    text = source(names.text, (STRING, TOKEN), lambda decode, _: decode, "the recorded text") if names.text else None
    if problems:
        raise BagError(f"{bag.path}: {'; '.join(problems)}; it has {_listed(bag)}")
    used = {s.topic for s in (*cameras.values(), joints, instruction, commands, text) if s}
    unused = tuple(f"{t.name} ({t.type})" for t in bag.topics.values() if t.name not in used)
    return Sources(cameras, joints, instruction, commands, text, unused)


def _listed(bag: Bag) -> str:
    return ", ".join(f"{topic.name} ({topic.type})" for topic in bag.topics.values()) or "no topics"


def _positions(message: Any) -> tuple[list[str], np.ndarray]:
    return message.name, message.position


def _instruction(decode: Callable[[bytes], Any], kind: str) -> Callable[[bytes], Instruction]:
    def instruction(data: bytes) -> Instruction:
        message = decode(data)
        if kind == STRING:
            return Instruction(text=message.data)
        if not hasattr(message, "text"):
            raise InputError("message", "no field text", INSTRUCTION)
        plain = Instruction()
        return Instruction(**{name: getattr(message, name, default) for name, default in vars(plain).items()})

    return instruction
