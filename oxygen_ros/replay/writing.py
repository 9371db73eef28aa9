"""An MCAP file as rosbag2 writes it, made without ROS."""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np
from mcap.writer import Writer
from rosbags.typesys.store import Typestore

from .decoding import full_type, ros2_types
from .storage import Topic


class Recording:
    """Messages by their fields, where what is not given is zero, or as they were. Close it: it has no index before."""

    def __init__(self, file: BinaryIO) -> None:
        self._types: Typestore = ros2_types()
        self._writer = Writer(file)
        self._writer.start(profile="ros2", library="oxygen_ros.replay")
        self._channels: dict[str, int] = {}

    def write(self, topic: str, kind: str, time_ns: int, **fields: Any) -> None:
        self._declare(topic, kind)
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

    def write_raw(self, topic: str, kind: str, time_ns: int, data: bytes) -> None:
        """A serialised message of one of our or ROS 2's types."""
        self._declare(topic, kind)
        self._add(topic, time_ns, data)

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

    def _declare(self, topic: str, kind: str) -> None:
        if topic not in self._channels:
            definition, _ = self._types.generate_msgdef(kind, ros_version=2)
            self._open(topic, kind, "ros2msg", definition, {"topic_type_hash": self._types.hash_rihs01(kind)})

    def _open(self, topic: str, kind: str, schema: str, definition: str, about: dict[str, str]) -> None:
        number = self._writer.register_schema(kind, schema, definition.encode())
        known = {key: value for key, value in about.items() if value}
        self._channels[topic] = self._writer.register_channel(topic, "cdr", number, known)

    def _add(self, topic: str, time_ns: int, data: bytes) -> None:
        self._writer.add_message(self._channels[topic], time_ns, data, time_ns)

    def stamp(self, time_ns: int) -> Any:
        return self.make("builtin_interfaces/msg/Time", sec=int(time_ns // 10**9), nanosec=int(time_ns % 10**9))

    def duration(self, time_ns: int) -> Any:
        return self.make("builtin_interfaces/msg/Duration", sec=int(time_ns // 10**9), nanosec=int(time_ns % 10**9))

    def header(self, time_ns: int, frame_id: str) -> Any:
        return self.make("std_msgs/msg/Header", stamp=self.stamp(time_ns), frame_id=frame_id)
