"""The index and the messages of a recording, and what is said of one that cannot be read."""

from pathlib import Path

import pytest
from mcap.writer import Writer

from oxygen_ros.replay.bag import BagError, open_bag

BAG = Path(__file__).parents[2] / "resource" / "aloha_transfer_cube.mcap"


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
    (None, "is not a file; expected an MCAP recording"),
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
