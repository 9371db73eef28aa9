"""Messages whose definitions a bag holds, holds otherwise, or does not hold (F54)."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from ament_index_python.packages import get_package_share_directory
from bags import beginning, write_mcap, write_rosbag2
from evaluating import SECONDS, STORE, TYPES, report, said, start

from oxygen_ros.replay.bag import BagError


def test_standard_and_our_types_decode_without_definitions_and_strangers_are_listed_once(tmp_path, side, plain):
    path = write_rosbag2(tmp_path / "x", beginning(SECONDS)) / "x.db3"
    with sqlite3.connect(path) as bag:
        bag.execute("DROP TABLE message_definitions")
        bag.execute("UPDATE topics SET type_description_hash = ''")
        bag.execute("INSERT INTO topics VALUES (99, '/bar', 'foo_msgs/msg/Bar', 'cdr', '', '')")
        bag.execute("INSERT INTO topics VALUES (98, '/empty', 'std_msgs/msg/Empty', 'cdr', '', '')")
        bag.executemany("INSERT INTO messages(topic_id, timestamp, data) VALUES (?, ?, ?)",
                        [(n, start() + 1000, b"\0\1\0\0\0") for n in (98, 99, 99)])
    result = report(path, side)
    assert said(result) == plain
    strangers = ["/bar (foo_msgs/msg/Bar)", "/empty (std_msgs/msg/Empty)", "/phase (std_msgs/msg/String)"]
    assert sorted(result["not_used"]) == strangers


INSIDE = {kind: ("std_msgs/msg/Header", "builtin_interfaces/msg/Time")
          for kind in ("sensor_msgs/msg/JointState", "sensor_msgs/msg/CompressedImage")}


def idl(kind: str) -> tuple[str, str, bytes]:
    """As rosbag2 has it where a package has no .msg: the type's IDL file, and after it those of what it is made of."""
    sections = []
    for name in (kind, *INSIDE.get(kind, ())):
        package, _, base = name.split("/")
        text = Path(get_package_share_directory(package), "msg", f"{base}.idl").read_text()
        sections.append("=" * 80 + f"\nIDL: {name}\n{text}")
    return kind, "ros2idl", "".join(sections).encode()


SHORTER = "uint64 id\nuint8 task\nstring text\nuint32 max_tokens\n"


def schemas(**ours):
    def schema(kind: str):
        if kind.rpartition("/")[2] in ours:
            return ours[kind.rpartition("/")[2]]
        return kind, "ros2msg", STORE.generate_msgdef(kind, ros_version=2)[0].encode()

    return schema


def test_idl_definitions(tmp_path, side, plain):
    result = report(write_mcap(tmp_path / "x.mcap", beginning(SECONDS), TYPES, schema=idl), side)
    assert said(result) == plain and not result["notes"]


def test_an_older_definition_is_noticed_and_decoded_by_itself(tmp_path, side):
    def older(m):
        return replace(m, data=m.data[:-1]) if m.topic == "/instruction" else m  # priority was its last byte

    definition = ("oxygen_ros/msg/Instruction", "ros2msg", SHORTER.encode())
    path = write_mcap(tmp_path / "x.mcap", beginning(SECONDS, older), TYPES, schema=schemas(Instruction=definition))
    result = report(path, side)
    assert result["sides"]["oxygen"]["instructions"]["1"]["text"] == "transfer the cube"
    said = "/instruction: the bag has another definition of oxygen_ros/msg/Instruction (without priority)"
    assert said in result["notes"][0]


def test_another_definition_that_the_bag_does_not_hold_is_refused(tmp_path, side):
    path = write_rosbag2(tmp_path / "x", beginning(SECONDS)) / "x.db3"
    with sqlite3.connect(path) as bag:
        bag.execute("DROP TABLE message_definitions")
        bag.execute("UPDATE topics SET type_description_hash = 'RIHS01_0123' WHERE name = '/instruction'")
    text = r"/instruction \(oxygen_ros/msg/Instruction\) cannot be decoded: .*another definition"
    with pytest.raises(BagError, match=text):
        report(path, side)


@pytest.mark.parametrize("ours, needed", [
    ({"JointState": None}, "/joint_states has no type, its channel has no schema; expected sensor_msgs/msg/JointState"),
    ({"CompressedImage": ("sensor_msgs/msg/CompressedImage", "ros2msg", b"std_msgs/Header header\nwhat is this")},
     "/cam_high/image_raw/compressed .*cannot be decoded: its definition does not parse"),
    ({"String": None, "CompressedImage": ("foo_msgs/msg/Bar", "ros2msg", b"int8 x")},
     "/cam_high/image_raw/compressed is foo_msgs/msg/Bar; expected sensor_msgs/msg/CompressedImage"),
])
def test_what_is_needed_and_cannot_be_decoded_is_named(tmp_path, side, ours, needed):
    path = write_mcap(tmp_path / "x.mcap", beginning(SECONDS), TYPES, schema=schemas(**ours))
    with pytest.raises(BagError, match=needed):
        report(path, side)


def test_a_channel_without_schema_that_nobody_needs_is_skipped(tmp_path, side, plain):
    path = write_mcap(tmp_path / "x.mcap", beginning(SECONDS), TYPES, schema=schemas(String=None))
    assert said(report(path, side)) == plain
