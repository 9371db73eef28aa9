"""The index and the messages of a recording, and what is said of one that cannot be read."""

import os
import sqlite3

import pytest
from bags import BAG, COPIES, beginning, contents, split, write_mcap, write_ros1, write_rosbag2, zstd
from mcap.writer import Writer

from oxygen_ros.replay.bag import BagError, open_bag


def test_index_of_the_sample():
    bag = open_bag(BAG)
    assert bag.topics["/joint_states"].type == "sensor_msgs/msg/JointState"
    assert "best_effort" in bag.topics["/cam_high/image_raw/compressed"].offered_qos
    assert bag.counts["/joint_states"] == 400
    assert 7.9 < bag.duration < 8.1


def test_messages_come_in_the_order_of_receipt():
    bag = open_bag(BAG)
    times = [m.received_ns for m in bag.messages()]
    assert len(times) == sum(bag.counts.values()) and times == sorted(times)
    assert (times[0], times[-1]) == (bag.start_ns, bag.end_ns)
    assert {m.topic for m in bag.messages(["/phase"])} == {"/phase"}


@pytest.mark.parametrize("content, said", [
    (None, "is not a file or folder; expected an MCAP recording"),
    (b"", "is not a readable MCAP file"),
    (b"SQLite format 3\x00" + bytes(100), "is not a readable MCAP file"),
    (BAG.read_bytes()[:100_000], "is not a readable MCAP file|its recording was cut off"),
])
def test_unreadable_files(tmp_path, content, said):
    file = tmp_path / "bag.mcap"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BagError, match=said) as error:
        open_bag(file)
    assert str(file) in str(error.value)


@pytest.mark.parametrize("suffix, content, remedy", [
    (".mcap", BAG.read_bytes()[:8], "`mcap recover FILE -o OTHER`"),
    (".mcap", BAG.read_bytes()[:100_000] + BAG.read_bytes()[-8:], "`mcap recover FILE -o OTHER`"),
    (".db3", b"SQLite format 3\0" + bytes(34), "`sqlite3 FILE .recover"),
])
def test_what_saves_the_rest_of_a_file_that_was_cut_off(tmp_path, suffix, content, remedy):
    file = tmp_path / f"bag{suffix}"
    file.write_bytes(content)
    with pytest.raises(BagError) as error:
        list(open_bag(file).messages())
    assert str(file) in str(error.value) and remedy in str(error.value) and "Errno" not in str(error.value)


def test_a_name_that_is_empty_is_no_folder():
    with pytest.raises(BagError, match="a bag's name is empty"):
        open_bag("")


def test_a_recording_without_messages(tmp_path):
    file = tmp_path / "empty.mcap"
    with file.open("wb") as stream:
        writer = Writer(stream)
        writer.start()
        writer.finish()
    with pytest.raises(BagError, match="holds no messages"):
        open_bag(file)


def test_a_chunk_that_was_damaged_later(tmp_path):
    """The index is whole, so the bag opens; where the data are broken it says so."""
    content = bytearray(BAG.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 2000] = bytes(2000)
    file = tmp_path / "damaged.mcap"
    file.write_bytes(content)
    with pytest.raises(BagError, match="breaks off"):
        list(open_bag(file).messages())


@pytest.mark.parametrize("copy", COPIES)
def test_every_copy_holds_the_same_and_nothing_is_written_beside_it(tmp_path, copy):
    messages = beginning(0.5)
    path = COPIES[copy](tmp_path, messages)
    before = sorted(str(file) for file in tmp_path.rglob("*"))
    bag = open_bag(path)
    assert contents(bag) == [(m.topic, m.received_ns, m.data) for m in messages]
    assert (bag.start_ns, bag.end_ns) == (messages[0].received_ns, messages[-1].received_ns)
    sample = open_bag(BAG)
    assert {name: bag.topics[name].type for name in bag.topics if bag.counts[name]} == {
        m.topic: sample.topics[m.topic].type for m in messages}
    assert sorted(str(file) for file in tmp_path.rglob("*")) == before


def test_ros1_standard_messages_are_those_of_ros2(tmp_path):
    messages = beginning(0.5)
    read = contents(open_bag(write_ros1(tmp_path / "x.bag", messages)))
    # Serialised anew, so that bytes between two fields, which mean nothing, may differ.
    expected = [(m.topic, m.received_ns) for m in messages if m.topic != "/instruction"]
    assert sorted((topic, received) for topic, received, _ in read) == sorted(expected)
    pictures = {(t, r): data for t, r, data in read if "image" in t}
    assert pictures == {(m.topic, m.received_ns): m.data for m in messages if "image" in m.topic}


def test_an_unfinished_transaction_log_of_sqlite_is_read_and_left_alone(tmp_path):
    messages = beginning(0.3)
    path = write_rosbag2(tmp_path / "x", messages) / "x.db3"
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode = WAL")
    after = messages[-1].received_ns + 1
    writer.execute("INSERT INTO messages(topic_id, timestamp, data) VALUES (1, ?, ?)", (after, b"x"))
    writer.commit()
    before = {file: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")}
    assert len(contents(open_bag(path))) == len(messages) + 1
    assert {file: file.read_bytes() for file in before} == before
    writer.close()


@pytest.mark.parametrize("damage, said", [
    (lambda packed: packed[:-5000], "is cut off|is damaged"),
    (lambda packed: packed[:1000] + bytes(1000) + packed[2000:], "is damaged|not a readable MCAP|breaks off"),
    (lambda packed: b"no zstd" + packed, "is neither zstd nor lz4"),
])
def test_a_damaged_packed_file_is_named(tmp_path, damage, said):
    path = zstd(write_mcap(tmp_path / "x.mcap", beginning(0.3)))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BagError, match=said) as error:
        list(open_bag(path).messages())
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_folders_that_lack_something(tmp_path):
    with pytest.raises(BagError, match="holds no recording"):
        open_bag(tmp_path)
    folder = write_rosbag2(tmp_path / "x", beginning(0.1))
    os.remove(folder / "x.db3")
    with pytest.raises(BagError, match="lacks x.db3, which its metadata.yaml names"):
        open_bag(folder)
    (tmp_path / "x.txt").write_text("no bag")
    with pytest.raises(BagError, match="its name ends in none of .mcap, .db3, .bag"):
        open_bag(tmp_path / "x.txt")


def test_a_damaged_database(tmp_path):
    path = write_rosbag2(tmp_path / "x", beginning(0.3)) / "x.db3"
    content = bytearray(path.read_bytes())
    content[2000:20_000] = bytes(18_000)
    path.write_bytes(content)
    with pytest.raises(BagError, match="x.db3"):
        list(open_bag(path).messages())


def test_a_topic_of_two_types_says_so(tmp_path):
    folder = split(tmp_path / "x", beginning(0.2))
    with (folder / "bag_2.mcap").open("wb") as file:
        writer = Writer(file)
        writer.start()
        schema = writer.register_schema("std_msgs/msg/Int8", "ros2msg", b"int8 data")
        channel = writer.register_channel("/phase", "cdr", schema)
        writer.add_message(channel, 1, b"0123", 1)
        writer.finish()
    assert open_bag(folder).topics["/phase"].type == "std_msgs/msg/String and std_msgs/msg/Int8"
