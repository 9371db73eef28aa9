"""The sample bag, as other programs would have written it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lz4.frame
import zstandard
from mcap.writer import CompressionType, IndexType, Writer
from rosbags.rosbag1 import Writer as Ros1Writer
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin
from rosbags.rosbag2 import Writer as Ros2Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from oxygen_ros.replay.bag import Bag, Recorded, open_bag

ROOT = Path(__file__).parents[2]
BAG = ROOT / "resource" / "aloha_transfer_cube.mcap"


def typestore():
    types = get_typestore(Stores.ROS2_KILTED)
    for name in ("Instruction", "ActionChunk", "LanguageToken", "FrameStats"):
        types.register(get_types_from_msg((ROOT / "msg" / f"{name}.msg").read_text(), f"oxygen_ros/msg/{name}"))
    return types


def beginning(seconds: float, change: Callable[[Recorded], Recorded | None] = lambda message: message
              ) -> list[Recorded]:
    """The first messages of the sample, each as `change` returns it, or left out."""
    bag = open_bag(BAG)
    first = (m for m in bag.messages() if m.received_ns <= bag.start_ns + seconds * 1e9)
    return [changed for m in first if (changed := change(m)) is not None]


def write_mcap(path: Path, messages: list[Recorded], topics: dict[str, str] | None = None, *,
               schema: Callable[[str], tuple[str, str, bytes] | None] | None = None, **options) -> Path:
    """By mcap's own writer. topics: name -> type, the sample's where not given. schema: type -> (name, language,
    definition), or None for a channel without one; `options` are the writer's."""
    topics = topics or {name: topic.type for name, topic in open_bag(BAG).topics.items()}
    types = typestore()
    schema = schema or (lambda kind: (kind, "ros2msg", types.generate_msgdef(kind, ros_version=2)[0].encode()))
    with path.open("wb") as file:
        writer = Writer(file, **options)
        writer.start(profile="ros2", library="test")
        channels = {}
        for name, kind in topics.items():
            about = schema(kind)
            number = writer.register_schema(*about) if about else 0
            channels[name] = writer.register_channel(name, "cdr", number)
        for message in messages:
            writer.add_message(channels[message.topic], message.received_ns, message.data, message.received_ns)
        writer.finish()
    return path


def write_rosbag2(folder: Path, messages: list[Recorded], *, storage: str = "sqlite3", mode: str = "none") -> Path:
    """By rosbags. mode: none, file or message."""
    types, topics = typestore(), open_bag(BAG).topics
    writer = Ros2Writer(folder, version=9, storage_plugin=StoragePlugin[storage.upper()])
    writer.set_compression(CompressionMode[mode.upper()], CompressionFormat.ZSTD)
    with writer:
        names = dict.fromkeys(m.topic for m in messages)
        connections = {name: writer.add_connection(name, topics[name].type, typestore=types) for name in names}
        for message in messages:
            writer.write(connections[message.topic], message.received_ns, message.data)
    return folder


def write_ros1(path: Path, messages: list[Recorded]) -> Path:
    """Standard messages only; ours are none of ROS 1."""
    ros1, ros2 = get_typestore(Stores.ROS1_NOETIC), get_typestore(Stores.ROS2_KILTED)
    topics = open_bag(BAG).topics
    with Ros1Writer(path) as writer:
        names = [name for name, topic in topics.items() if topic.type in ros1.fielddefs]
        connections = {name: writer.add_connection(name, topics[name].type, typestore=ros1) for name in names}
        for message in messages:
            if message.topic in connections:
                data = ros2.cdr_to_ros1(message.data, topics[message.topic].type)
                writer.write(connections[message.topic], message.received_ns, data)
    return path


def without_metadata(folder: Path) -> Path:
    (folder / "metadata.yaml").unlink()
    return folder


def zstd(path: Path) -> Path:
    packed = path.with_name(path.name + ".zstd")
    packed.write_bytes(zstandard.ZstdCompressor().compress(path.read_bytes()))
    path.unlink()
    return packed


def lz4_messages(messages: list[Recorded]) -> list[Recorded]:
    return [replace(m, data=lz4.frame.compress(m.data)) for m in messages]


def split(folder: Path, messages: list[Recorded]) -> Path:
    """Two files and no metadata."""
    folder.mkdir()
    half = len(messages) // 2
    write_mcap(folder / "bag_0.mcap", messages[:half])
    write_mcap(folder / "bag_1.mcap", messages[half:])
    return folder


def read_only(folder: Path) -> Path:
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)
    return folder


COPIES: dict[str, Callable[[Path, list[Recorded]], Path]] = {
    "mcap, no chunks": lambda at, m: write_mcap(at / "x.mcap", m, use_chunking=False),
    "mcap, no index": lambda at, m: write_mcap(
        at / "x.mcap", m, index_types=IndexType.NONE, use_statistics=False, repeat_channels=False, repeat_schemas=False,
        use_summary_offsets=False),
    "mcap, lz4 chunks": lambda at, m: write_mcap(at / "x.mcap", m, compression=CompressionType.LZ4),
    "mcap, zstd chunks": lambda at, m: write_mcap(at / "x.mcap", m, compression=CompressionType.ZSTD),
    "mcap.zstd alone": lambda at, m: zstd(write_mcap(at / "x.mcap", m)),
    "mcap, lz4 messages": lambda at, m: write_mcap(at / "x.mcap", lz4_messages(m)),
    "mcap, split, no metadata": lambda at, m: split(at / "x", m),
    "folder mcap": lambda at, m: write_rosbag2(at / "x", m, storage="mcap"),
    "folder mcap, zstd file": lambda at, m: write_rosbag2(at / "x", m, storage="mcap", mode="file"),
    "folder mcap, zstd messages": lambda at, m: write_rosbag2(at / "x", m, storage="mcap", mode="message"),
    "folder sqlite3": lambda at, m: write_rosbag2(at / "x", m),
    "folder sqlite3, zstd file": lambda at, m: write_rosbag2(at / "x", m, mode="file"),
    "folder sqlite3, zstd messages": lambda at, m: write_rosbag2(at / "x", m, mode="message"),
    "folder sqlite3, zstd file, no metadata": lambda at, m: without_metadata(write_rosbag2(at / "x", m, mode="file")),
    "folder sqlite3, read-only": lambda at, m: read_only(write_rosbag2(at / "x", m)),
    "sqlite3 alone": lambda at, m: write_rosbag2(at / "x", m) / "x.db3",
}
"""what wrote it -> a function that writes these messages somewhere in a folder and returns the bag's path"""


def contents(bag: Bag) -> list[tuple[str, int, bytes]]:
    return [(m.topic, m.received_ns, m.data) for m in bag.messages()]
