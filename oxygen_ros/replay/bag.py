"""The serialised messages of a recording, in the order in which they were received."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mcap.exceptions import McapError
from mcap.reader import make_reader


class BagError(Exception):
    """A recording that cannot be read: the message names the file and what is wrong with it."""


@dataclass(frozen=True)
class Topic:
    """offered_qos: what its publisher offered, as rosbag2 writes it (YAML), or nothing."""

    name: str
    type: str
    offered_qos: str = ""


@dataclass(frozen=True)
class Recorded:
    topic: str
    received_ns: int
    data: bytes


@dataclass(frozen=True)
class Bag:
    """start_ns, end_ns: receipt of the first and the last message."""

    path: Path
    topics: Mapping[str, Topic]
    start_ns: int
    end_ns: int
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def duration(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9

    def messages(self, topics: Collection[str] | None = None) -> Iterator[Recorded]:
        """Of these topics, or of all. Raises BagError where the file breaks off."""
        with self.path.open("rb") as file:
            messages = make_reader(file).iter_messages(topics=topics)
            while True:
                try:
                    _, channel, message = next(messages)
                except StopIteration:
                    return
                except Exception as error:  # besides its own, the reader lets through those of its decompressors
                    raise BagError(f"{self.path} breaks off: {error or type(error).__name__}") from error
                yield Recorded(channel.topic, message.log_time, message.data)


def open_bag(path: str | Path) -> Bag:
    """Read the index of an MCAP file. Raises BagError."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise BagError(f"{path} is not a file; expected an MCAP recording")
    try:
        with path.open("rb") as file:
            summary = make_reader(file).get_summary()
    except (McapError, OSError) as error:
        raise BagError(f"{path} is not a readable MCAP file: {error or type(error).__name__}") from error
    if summary is None or summary.statistics is None:
        raise BagError(f"{path} has no index, its recording was cut off; `mcap recover` makes a whole file of it")
    if not summary.statistics.message_count:
        raise BagError(f"{path} holds no messages")
    topics = {
        channel.topic: Topic(channel.topic, summary.schemas[channel.schema_id].name,
                             channel.metadata.get("offered_qos_profiles", ""))
        for channel in summary.channels.values()
        if channel.schema_id in summary.schemas
    }
    counts = {summary.channels[i].topic: n for i, n in summary.statistics.channel_message_counts.items()}
    return Bag(path, topics, summary.statistics.message_start_time, summary.statistics.message_end_time, counts)
