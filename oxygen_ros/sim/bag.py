"""Writes an MCAP file as rosbag2 does: profile ros2, ros2msg schemas, CDR messages, the offered QoS of every topic."""
from __future__ import annotations

from typing import BinaryIO

from mcap.writer import Writer
from rosbags.typesys.store import Typestore

from .topics import TOPICS, Offer

# rosbag2's own form (Jazzy and later write names, not numbers); the durations are its "infinite".
_QOS = """\
- history: keep_last
  depth: {depth}
  reliability: {reliability}
  durability: {durability}
  deadline: {infinite}
  lifespan: {infinite}
  liveliness: automatic
  liveliness_lease_duration: {infinite}
  avoid_ros_namespace_conventions: false
"""
_INFINITE = "{sec: 9223372036, nsec: 854775807}"


class BagWriter:
    """Messages of `topics.TOPICS`, in the order in which they are written; `count` of them so far.

    Close it: an unfinished file has no index.
    """

    def __init__(self, stream: BinaryIO, types: Typestore):
        self._types = types
        self._writer = Writer(stream)
        self._writer.start(profile="ros2", library="oxygen_ros.sim")
        self.count = 0
        schemas = {name: self._schema(name) for name in {topic.type: None for topic in TOPICS.values()}}
        self._channels = {
            name: self._writer.register_channel(
                topic=name, message_encoding="cdr", schema_id=schemas[topic.type],
                metadata={"offered_qos_profiles": _qos(topic.offer), "topic_type_hash": types.hash_rihs01(topic.type)},
            )
            for name, topic in TOPICS.items()
        }

    def write(self, topic: str, message: object, published: int, received: int) -> None:
        """Times in ns: when the publisher sent the message, and when the recorder had it (its log time)."""
        self._writer.add_message(
            channel_id=self._channels[topic], log_time=received, publish_time=published, sequence=self.count,
            data=bytes(self._types.serialize_cdr(message, TOPICS[topic].type)),
        )
        self.count += 1

    def note(self, name: str, values: dict[str, str]) -> None:
        """Metadata about the recording; players ignore it."""
        self._writer.add_metadata(name, values)

    def close(self) -> None:
        """Write the index."""
        self._writer.finish()

    def _schema(self, name: str) -> int:
        definition, _ = self._types.generate_msgdef(name, ros_version=2)
        return self._writer.register_schema(name=name, encoding="ros2msg", data=definition.encode())


def _qos(offer: Offer) -> str:
    reliability, durability, depth = offer.value
    return _QOS.format(depth=depth, reliability=reliability, durability=durability, infinite=_INFINITE)
