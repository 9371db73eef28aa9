"""One file of a recording: MCAP, SQLite or ROS 1; what topics it holds, and its messages in the order of receipt."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mcap.reader import McapReader, NonSeekingReader, make_reader
from rosbags.interfaces import Connection
from rosbags.rosbag1 import Reader as Rosbag1Reader
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

MAGIC = b"\x89MCAP0\r\n"
UNNAMED = "no type"


class BagError(Exception):
    """A recording that cannot be read: the message names the file and what is wrong with it."""


@dataclass(frozen=True)
class Topic:
    """offered_qos: what its publisher offered, as rosbag2 writes it (YAML), or nothing. definition: of its type, in the
    language `schema` (ros2msg, ros2idl), or nothing. type_hash: of the definition (RIHS01), or nothing. encoding: of
    its messages; only cdr can be read.
    """

    name: str
    type: str
    offered_qos: str = ""
    definition: str = ""
    schema: str = ""
    type_hash: str = ""
    encoding: str = "cdr"


@dataclass(frozen=True)
class Recorded:
    topic: str
    received_ns: int
    data: bytes


@dataclass(frozen=True)
class Content:
    """What a file holds; start_ns and end_ns are 0 where there are no messages."""

    topics: Mapping[str, Topic] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    start_ns: int = 0
    end_ns: int = 0


@dataclass(frozen=True)
class Storage:
    """content and messages raise whatever their library does; `bag` makes a BagError of it."""

    content: Callable[[Path], Content]
    messages: Callable[[Path, Collection[str] | None], Iterator[Recorded]]


def gathered(topics: Iterator[tuple[Topic, int]]) -> tuple[dict[str, Topic], Counter[str]]:
    """Topics by name and their counts, where several publishers, or files, may have the same one.

    A topic of two types has a type that nothing has, so that whoever needs it says which two.
    """
    found: dict[str, Topic] = {}
    counts: Counter[str] = Counter()
    for topic, count in topics:
        counts[topic.name] += count
        known = found.setdefault(topic.name, topic)
        if topic.type not in known.type.split(" and "):
            found[topic.name] = replace(known, type=f"{known.type} and {topic.type}")
        elif topic.definition and not known.definition:
            found[topic.name] = topic
    return found, counts


# MCAP


def _mcap_content(path: Path) -> Content:
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise BagError("it does not begin as an MCAP file does")
        file.seek(-len(MAGIC), 2)
        if file.read() != MAGIC:
            raise BagError("its recording was cut off; `mcap recover` makes a whole file of it")
        file.seek(0)
        summary = make_reader(file).get_summary()
        if summary is None or summary.statistics is None:
            return _mcap_scan(file)
        counts = summary.statistics.channel_message_counts
        pairs = ((_mcap_topic(c, summary.schemas.get(c.schema_id)), counts.get(c.id, 0))
                 for c in summary.channels.values())
        return Content(*gathered(pairs), summary.statistics.message_start_time, summary.statistics.message_end_time)


def _mcap_scan(file: Any) -> Content:
    """Of a file without an index, as a simple writer leaves it."""
    file.seek(0)
    pairs, times = [], []
    for schema, channel, message in NonSeekingReader(file).iter_messages(log_time_order=False):
        pairs.append((_mcap_topic(channel, schema), 1))
        times.append(message.log_time)
    return Content(*gathered(iter(pairs)), min(times, default=0), max(times, default=0))


def _mcap_topic(channel: Any, schema: Any) -> Topic:
    about = channel.metadata
    return Topic(
        channel.topic, schema.name if schema and schema.name else UNNAMED, about.get("offered_qos_profiles", ""),
        schema.data.decode(errors="replace") if schema else "", schema.encoding if schema else "",
        about.get("topic_type_hash", ""), channel.message_encoding,
    )


def _mcap_messages(path: Path, topics: Collection[str] | None) -> Iterator[Recorded]:
    with path.open("rb") as file:
        reader: McapReader = make_reader(file, validate_crcs=True)
        for _, channel, message in reader.iter_messages(topics=topics):
            yield Recorded(channel.topic, message.log_time, message.data)


# SQLite: https://github.com/ros2/rosbag2, rosbag2_storage_sqlite3; columns and tables came one by one


def _sqlite(path: Path) -> closing[sqlite3.Connection]:
    # immutable: SQLite else leaves files of its own beside the bag, or fails where it may not.
    return closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True))


def _sqlite_content(path: Path) -> Content:
    with _sqlite(path) as bag:
        columns = {row[1] for row in bag.execute("PRAGMA table_info(topics)")}
        if not columns:
            raise BagError("it is no rosbag2 database, it has no table of topics")
        definitions = {}
        if bag.execute("SELECT 1 FROM sqlite_master WHERE name = 'message_definitions'").fetchone():
            definitions = {row[0]: row[1:] for row in bag.execute(
                "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions")}
        wanted = ("id", "name", "type", "serialization_format", "offered_qos_profiles", "type_description_hash")
        there = ", ".join(name if name in columns else "''" for name in wanted)
        rows = bag.execute(f"SELECT {there} FROM topics").fetchall()
        counts = dict(bag.execute("SELECT topic_id, count(*) FROM messages GROUP BY topic_id"))
        start, end = bag.execute("SELECT min(timestamp), max(timestamp) FROM messages").fetchone()
    pairs = []
    for number, name, kind, encoding, qos, type_hash in rows:
        schema, definition = definitions.get(kind, ("", ""))
        pairs.append((Topic(name, kind, qos, definition, schema, type_hash, encoding), counts.get(number, 0)))
    return Content(*gathered(iter(pairs)), start or 0, end or 0)


def _sqlite_messages(path: Path, topics: Collection[str] | None) -> Iterator[Recorded]:
    with _sqlite(path) as bag:
        wanted = {number: name for number, name in bag.execute("SELECT id, name FROM topics")
                  if topics is None or name in topics}
        places = ", ".join("?" * len(wanted))
        for number, received, data in bag.execute(
                f"SELECT topic_id, timestamp, data FROM messages WHERE topic_id IN ({places}) ORDER BY timestamp, id",
                list(wanted)):
            yield Recorded(wanted[number], received, data)


# ROS 1


def _ros1_content(path: Path) -> Content:
    with Rosbag1Reader(path) as bag:
        types = get_typestore(Stores.ROS2_KILTED)
        pairs = ((Topic(c.topic, c.msgtype, encoding="cdr" if _known(types, c) else "ros1"), c.msgcount)
                 for c in bag.connections)
        topics, counts = gathered(pairs)
        return Content(topics, counts, bag.start_time, bag.end_time - 1) if bag.message_count else Content(topics)


def _ros1_messages(path: Path, topics: Collection[str] | None) -> Iterator[Recorded]:
    """As CDR, of the types whose definition is the same in ROS 2 but for the header's sequence number."""
    types = get_typestore(Stores.ROS2_KILTED)
    with Rosbag1Reader(path) as bag:
        wanted = [c for c in bag.connections if (topics is None or c.topic in topics) and _known(types, c)]
        for connection, received, data in bag.messages(wanted) if wanted else ():
            yield Recorded(connection.topic, received, bytes(types.ros1_to_cdr(data, connection.msgtype)))


def _known(types: Any, connection: Connection) -> bool:
    if connection.msgtype not in types.fielddefs:
        return False
    theirs = get_types_from_msg(connection.msgdef.data, connection.msgtype)[connection.msgtype][1]
    return [name for name, _ in theirs] == [name for name, _ in types.fielddefs[connection.msgtype][1]]


STORAGES: dict[str, Storage] = {
    ".mcap": Storage(_mcap_content, _mcap_messages),
    ".db3": Storage(_sqlite_content, _sqlite_messages),
    ".bag": Storage(_ros1_content, _ros1_messages),
}
"""by the suffix of the file"""
