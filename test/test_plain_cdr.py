"""Messages read where they lie are those that rclpy reads."""

import array
import struct

import numpy as np
import pytest
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import Image, JointState

from oxygen_ros.embodiment.errors import InputError
from oxygen_ros.embodiment.images import picture
from oxygen_ros import plain_cdr
from oxygen_ros.node import messages


def image(frame_id="camera", encoding="rgb8", height=4, width=6, channels=3, padding=0, **fields):
    noise = np.random.default_rng(0).integers(0, 256, height * (width * channels + padding), np.uint8)
    message = Image(encoding=encoding, height=height, width=width, step=width * channels + padding, **fields)
    message.header.frame_id = frame_id
    message.header.stamp.sec, message.header.stamp.nanosec = 7, 8
    message.data = array.array("B", noise.tobytes())
    return message


@pytest.mark.parametrize("frame_id", ["", "c", "ca", "cam", "came", "camera/öptisch"])
@pytest.mark.parametrize(
    ("encoding", "channels"), [("rgb8", 3), ("bgra8", 4), ("mono8", 1), ("yuv422_yuy2", 2), ("8UC3", 3)])
def test_fields_are_those_that_rclpy_reads(frame_id, encoding, channels):
    message = image(frame_id, encoding, channels=channels, padding=2, is_bigendian=1)
    read = plain_cdr.image(serialize_message(message))
    assert (read.encoding, read.height, read.width, read.step, read.is_bigendian) == (
        encoding, 4, 6, message.step, 1)
    assert bytes(read.data) == message.data.tobytes()


def test_pixels_are_a_view_of_the_message():
    message = image(height=480, width=640)
    serialized = serialize_message(message)
    seen = messages.pixels(serialized, "raw")
    assert np.array_equal(seen, picture(message, "raw"))
    assert np.shares_memory(seen, np.frombuffer(serialized, np.uint8))


def test_big_endian():
    frame_id, encoding, data = b"cam\0", b"mono8\0", bytes(range(6))
    fields = struct.pack(">iII4sIII6s", 7, 8, 4, frame_id, 2, 3, 6, encoding)
    fields += b"\1" + b"\0" * (-(len(fields) + 1) % 4) + struct.pack(">II", 3, 6) + data
    seen = messages.pixels(b"\0\0\0\0" + fields, "raw")
    assert seen[..., 0].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_what_is_cut_off_anywhere_is_refused_as_rclpy_does():
    whole = serialize_message(image())
    end = len(whole.rstrip(b"\0"))
    for length in range(0, end - 1):
        part = whole[:length]
        assert plain_cdr.image(part) is None
        with pytest.raises(InputError, match=f"found {length} bytes that do not deserialise"):
            messages.pixels(part, "raw")


def test_another_kind_of_serialisation_is_left_to_rclpy():
    serialized = b"\x00\x07" + serialize_message(image())[2:]  # PLAIN_CDR2, little endian
    assert plain_cdr.image(serialized) is None
    assert np.array_equal(messages.pixels(serialized, "raw"), picture(deserialize_message(serialized, Image), "raw"))


@pytest.mark.parametrize("names", [[], ["a"], ["wrist", "", "elbow/ä", "a_b"], [f"joint_{i}" for i in range(14)]])
@pytest.mark.parametrize("frame_id", ["", "base"])
@pytest.mark.parametrize("more", [0, 1, 3])
def test_joints_are_those_that_rclpy_reads(names, frame_id, more):
    positions = [i + 0.1 for i in range(len(names))]
    message = JointState(name=names, position=positions, velocity=[0.5] * more, effort=[0.25] * more)
    message.header.frame_id = frame_id
    serialized = serialize_message(message)
    read = plain_cdr.joint_state(serialized)
    assert read == (names, tuple(positions))
    assert tuple(map(list, messages.joint_state(serialized))) == (names, positions)
    for length in range(len(serialized) - 8 * bool(more)):
        part = serialized[:length]
        try:
            expected = deserialize_message(part, JointState)
        except Exception:
            with pytest.raises(InputError, match=f"found {length} bytes that do not deserialise"):
                messages.joint_state(part)
        else:
            assert tuple(map(list, messages.joint_state(part))) == (expected.name, list(expected.position))


def test_joints_in_big_endian():
    body = struct.pack(">iII4sII2sxxId", 7, 8, 4, b"cam\0", 1, 2, b"j\0", 1, 0.5) + bytes(8)
    assert messages.joint_state(b"\0\0\0\0" + body) == (["j"], (0.5,))


@pytest.mark.parametrize("name", [b"caf\xe9", b"a\0b"])
def test_names_that_are_no_text_are_left_to_rclpy(name):
    serialized = serialize_message(JointState(name=["x" * len(name)], position=[1.0])).replace(b"x" * len(name), name)
    assert plain_cdr.joint_state(serialized) is None


def test_counts_that_no_message_holds():
    serialized = serialize_message(JointState(name=["a"], position=[1.0]))
    absurd = serialized[:20] + struct.pack("<I", 2**32 - 1) + serialized[24:]
    assert serialized[20:24] == struct.pack("<I", 1) and plain_cdr.joint_state(absurd) is None


@pytest.mark.parametrize("end", [b"10", b"0\1", b"\0\0", b"\x000", b"1\0"])
def test_a_text_that_does_not_end_in_its_only_zero_is_read_as_rclpy_reads_it(end):
    """A name that is "joint10" in all its bytes is not "joint1"."""
    serialized = serialize_message(JointState(name=["joint?"], position=[0.5])).replace(b"?\0", end, 1)
    read, theirs = messages.joint_state(serialized), deserialize_message(serialized, JointState)
    assert (list(read[0]), list(read[1])) == (theirs.name, [0.5])
    serialized = serialize_message(image(encoding="mono?")).replace(b"?\0", end, 1)
    assert plain_cdr.image(serialized) is None or (
        plain_cdr.image(serialized).encoding == deserialize_message(serialized, Image).encoding)
