"""Bad messages, silent and badly stamped sensors: what is said, what is counted, and that good ones work again."""

import array
import io
import struct
import threading

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from PIL import Image as Picture
from rcl_interfaces.msg import Log
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message, serialize_message
from robot import JOINTS, TOPIC, InProcess, Robot, recorded, stamped
from sensor_msgs.msg import CompressedImage, Image, JointState

from oxygen_ros.children import claim_domain
from oxygen_ros.embodiment.images import decode_compressed
from oxygen_ros.stamps import nanoseconds

HIGH, WRIST = "/cam_high/image_raw/compressed", "/cam_right_wrist/image_raw"
WARN = DiagnosticStatus.WARN


class RawWrist(Robot):
    """The right wrist camera sends sensor_msgs/Image, upside down and with padded rows."""

    def __init__(self, domain: int) -> None:
        super().__init__(domain, "/watched")
        self.node.destroy_publisher(self.sensors["cam_right_wrist"])
        self.sensors["cam_right_wrist"] = self.node.create_publisher(Image, WRIST, 5)
        pictures = [deserialize_message(data, CompressedImage) for data in self.messages["cam_right_wrist"]]
        self.pixels = [decode_compressed(picture.format, picture.data) for picture in pictures]
        self.messages["cam_right_wrist"] = [serialize_message(image(np.rot90(p, 2), padding=20)) for p in self.pixels]


def image(pixels: np.ndarray, padding: int = 0, **fields) -> Image:
    height, width, _ = pixels.shape
    rows = np.pad(pixels.reshape(height, width * 3), ((0, 0), (0, padding)), constant_values=255)
    data = array.array("B", rows.tobytes())
    message = Image(encoding="rgb8", height=height, width=width, step=rows.shape[1], data=data)
    for name, value in fields.items():
        setattr(message, name, value)
    return message


SETTINGS_OF_WRIST = {"camera.cam_right_wrist.transport": "raw", "camera.cam_right_wrist.rotation": 180}


@pytest.fixture(scope="module")
def active():
    domain = claim_domain()
    robot, node = RawWrist(domain), InProcess(domain, "watched", SETTINGS_OF_WRIST)
    robot.bring_up()
    yield robot, node
    robot.close()
    node.close()


@pytest.fixture
def robot(active):
    """A robot whose sensors have been good, with nothing in the throttle of the node's log."""
    robot, node = active
    robot.reset()
    with robot.running():
        robot.wait_for_chunks(2)
        node.node.session._throttle._said.clear()
        for kept in vars(robot.heard).values():
            kept.clear()
        yield robot
    assert not robot.heard.said("frame", level=Log.ERROR), robot.heard.lines()


def test_raw_pictures_are_padded_rows_turned_upright(active, robot):
    """F10: the session's own picture, not a copy of its decoder: rows lose their padding, then turn by 180 degrees."""
    _, node = active
    robot.still = 3
    robot.wait_for_chunks(5)
    camera = node.node.session.inputs.cameras["cam_right_wrist"]
    np.testing.assert_array_equal(camera._good.pixels, np.rot90(robot.pixels[3], 2))
    seen = node.node.session.policy.pipeline.observe(
        {"cam_high": robot.pixels[3], "cam_right_wrist": camera._good.pixels}, np.zeros(14), "x")
    upright = node.node.session.policy.pipeline.observe(
        {"cam_high": robot.pixels[3], "cam_right_wrist": robot.pixels[3]}, np.zeros(14), "x")
    # The same picture, upright, gives the model what its neighbour without a rotation would.
    np.testing.assert_array_equal(seen.images[1], seen.images[0])
    assert not np.array_equal(upright.images[1], upright.images[0])


def wrist(rows: int = 4, columns: int = 6, **fields):
    """A bad raw picture for a stamp: a good one with some fields changed."""
    good = image(np.zeros((rows, columns, 3), np.uint8))
    for name, value in fields.items():
        setattr(good, name, array.array("B", value) if name == "data" else value)
    data = serialize_message(good)
    return lambda stamp: stamped(data, stamp)


def jpeg(data: bytes, format: str = "jpeg"):
    message = serialize_message(CompressedImage(format=format, data=array.array("B", data)))
    return lambda stamp: stamped(message, stamp)


def half_a_jpeg() -> bytes:
    file = io.BytesIO()
    Picture.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)).save(file, "JPEG")
    return file.getvalue()[: len(file.getvalue()) // 2]


def joints(change):
    def make(stamp: int) -> bytes:
        message = deserialize_message(GOOD_JOINTS, JointState)
        change(message)
        return stamped(serialize_message(message), stamp)

    return make


GOOD_JOINTS = recorded(JOINTS, 1)[0]


def not_a_number(message):
    message.position[3] = float("nan")


def beyond_all(message):
    message.position[3] = 1e300


def no_elbow(message):
    keep = [i for i, name in enumerate(message.name) if name != "left_elbow"]
    message.position = array.array("d", [message.position[i] for i in keep])
    message.name = [message.name[i] for i in keep]


def fewer_positions(message):
    message.position = message.position[:-2]


BAD = {  # F02, F04, F06, F07, F11
    "unknown encoding": ("cam_right_wrist", wrist(encoding="8UC3"), WRIST, "8UC3", "supported are rgb8"),
    "depth": ("cam_right_wrist", wrist(encoding="16UC1"), WRIST, "depth encoding 16UC1", "a colour encoding"),
    "short data": ("cam_right_wrist", wrist(data=b"\0" * 50), WRIST, "50 bytes", "4*18 = 72"),
    "step 0": ("cam_right_wrist", wrist(480, 640, step=0), WRIST, "step 0", "640*3 = 1920"),
    "short step": ("cam_right_wrist", wrist(480, 640, step=1919), WRIST, "step 1919", "640*3 = 1920"),
    "short rows": ("cam_right_wrist", wrist(480, 640, data=bytes(110592)), WRIST, "110592 bytes", "480*1920 = 921600"),
    "8 rows more": ("cam_right_wrist", wrist(1088, 1920, height=1080), WRIST, "6266880 bytes", "1080*5760 = 6220800"),
    "step beyond all": ("cam_right_wrist", wrist(step=2**32 - 1), WRIST, "72 bytes", "4*4294967295"),
    "empty": ("cam_right_wrist", wrist(width=0, height=0, step=0, data=b""), WRIST, "0x0 pixels", "at least 1x1"),
    "no data": ("cam_right_wrist", wrist(data=b""), WRIST, "0 bytes", "72"),
    "half a JPEG": ("cam_high", jpeg(half_a_jpeg()), HIGH, "do not decode", "a whole JPEG, PNG or WebP"),
    "half a JPEG with an end": ("cam_high", jpeg(half_a_jpeg() + b"\xff\xd9"), HIGH, "pixels end before its end marker",
                                "a whole JPEG"),
    "random bytes": ("cam_high", jpeg(bytes(range(256))), HIGH, "256 bytes that do not decode", "a whole JPEG"),
    "empty JPEG": ("cam_high", jpeg(b""), HIGH, "no data", "a JPEG"),
    "depth transport": ("cam_high", jpeg(b"x", "16UC1; compressedDepth"), HIGH, "depth format", "a colour picture"),
    "not a message": ("cam_high", lambda stamp: stamped(b"\0\1\0\0" + b"\xff" * 20, stamp), HIGH,
                      "24 bytes that do not", "sensor_msgs/msg/CompressedImage"),
    "NaN": (JOINTS, joints(not_a_number), "/joint_states", "left_forearm_roll = nan", "finite numbers"),
    "no float32": (JOINTS, joints(beyond_all), "/joint_states", "left_forearm_roll = 1e+300", "finite numbers"),
    "lengths": (JOINTS, joints(fewer_positions), "/joint_states", "14 names and 12 positions", "as many as names"),
}


@pytest.mark.parametrize("name, make, topic, found, expected", BAD.values(), ids=BAD)
def test_bad_message_is_refused_by_name(robot, name, make, topic, found, expected):
    robot.instead = {name: make}
    bad_from = robot.now()
    robot.wait_for(lambda: robot.heard.said(topic, found, expected), "a line in the log")
    robot.wait_for(lambda: robot.heard.reported("inputs", topic, found, expected, level=WARN), "a status")
    robot.wait_for(lambda: robot.heard.said("no chunk", topic, found), "that chunks stop")
    robot.wait_for(lambda: robot.heard.stats[-1].stale_inputs > 0, "a count")
    assert robot.heard.stats[-1].observation_age > 0.5
    # The last good picture may serve until it is too old; no chunk comes from later.
    assert all(nanoseconds(c.header.stamp) < bad_from + 10**9 for c in robot.heard.chunks)
    lines = [line for line in robot.heard.lines() if topic in line and not line.startswith("no chunk")]
    assert len(lines) == 1, lines
    robot.instead = {}
    good_from = robot.now()
    robot.wait_for(lambda: robot.heard.chunks and nanoseconds(robot.heard.chunks[-1].header.stamp) > good_from,
                   "a new chunk")
    robot.heard.diagnostics.clear()
    robot.wait_for(lambda: robot.heard.reported("inputs", "all inputs are used"), "a good status")


PIXELS = {  # F04, F06: encoding, is_bigendian -> data of one row of pixels, and what they are
    ("bgra8", 0): ([10, 20, 30, 0], [[30, 20, 10]]),
    ("rgba8", 0): ([10, 20, 30, 0], [[10, 20, 30]]),
    ("mono8", 0): ([77], [[77, 77, 77]]),
    ("mono16", 1): ([1, 0, 128, 0], [[1, 1, 1], [128, 128, 128]]),
    ("mono16", 0): ([0, 1, 0, 128], [[1, 1, 1], [128, 128, 128]]),
    ("rgb8", 1): ([10, 20, 30], [[10, 20, 30]]),
}


@pytest.mark.parametrize("encoding, big", PIXELS)
def test_pixels_of_an_encoding(active, robot, encoding, big):
    _, node = active
    camera, (data, pixels) = node.node.session.inputs.cameras["cam_right_wrist"], PIXELS[encoding, big]
    robot.instead = {"cam_right_wrist": wrist(encoding=encoding, height=1, width=len(pixels), step=len(data), data=data,
                                              is_bigendian=big)}
    robot.wait_for(lambda: camera._good.pixels.shape == (1, len(pixels), 3), "the picture")
    assert camera._good.pixels.tolist() == [pixels]
    robot.wait_for_chunks(3)
    assert not robot.heard.said(WRIST)


def test_four_bytes_that_crash_the_middleware_s_own_reader_are_refused(robot):
    """An encapsulation that promises padding, and nothing behind it: Fast CDR reads on from there."""
    robot.instead = dict.fromkeys(("cam_high", "cam_right_wrist", JOINTS), lambda stamp: b"\0\1\0\x25")
    for topic in (HIGH, WRIST, "/joint_states"):
        robot.wait_for(lambda: robot.heard.said(f"{topic}: message: found 4 bytes that do not deserialise"), "a line")
    robot.instruction.publish(b"\0\1\0\x25")
    robot.wait_for(lambda: robot.heard.said("instruction refused: message: found 4 bytes"), "a line")
    robot.instead, good_from = {}, robot.now()
    robot.wait_for(lambda: robot.heard.chunks and nanoseconds(robot.heard.chunks[-1].header.stamp) > good_from,
                   "chunks")


def not_text(serialized: bytes, place: bytes):
    """The message with bytes that are no UTF-8 in place of a text of as many."""
    assert place in serialized
    return lambda stamp: stamped(serialized.replace(place, b"\x80\x81\xfe\xff" + place[4:], 1), stamp)


@pytest.mark.parametrize("name, place", [("cam_high", b"jpeg"), ("cam_right_wrist", b"rgb8"), (JOINTS, b"left_waist")])
def test_bytes_that_are_no_text_are_not_fatal(robot, name, place):
    """F18, in the texts of sensors: a format says nothing that the file does not, encodings and joints are unknown."""
    def chunks_after(ns: int) -> bool:
        return any(nanoseconds(chunk.header.stamp) > ns for chunk in robot.heard.chunks)

    topic, bad_from = WRIST if name == "cam_right_wrist" else f"/{TOPIC[name]}", robot.now()
    robot.instead = {name: not_text(robot.messages[name][0], place)}
    # Distributions that decode strictly refuse the format too.
    robot.wait_for(lambda: robot.heard.said(f"no chunk: {topic}") or
                   (name == "cam_high" and chunks_after(bad_from + 10**9)), "a line, or chunks")
    assert robot.lifecycle.state() == "active"
    robot.instead, good_from = {}, robot.now()
    robot.wait_for(lambda: chunks_after(good_from), "chunks again")


def test_one_bad_picture_in_three_does_no_harm(robot):
    """F07: its good stamps are the newest of a frame, and no chunk has that of a bad picture."""
    good = robot.messages["cam_high"]
    bad_stamps = []
    robot.offset_ns = {"cam_high": 50_000_000}

    def mixed(stamp: int) -> bytes:
        if stamp // 40_000_000 % 3:
            return stamped(good[0], stamp)
        bad_stamps.append(stamp)
        return jpeg(b"broken")(stamp)

    robot.instead = {"cam_high": mixed}
    robot.wait_for_chunks(20)
    robot.wait_for(lambda: len(bad_stamps) > 10, "bad pictures")
    stamps = {nanoseconds(chunk.header.stamp) for chunk in robot.heard.chunks[2:]}
    assert stamps & set(robot.sent["cam_high"]) and not stamps & set(bad_stamps)
    assert robot.heard.stats[-1].stale_inputs == robot.heard.stats[0].stale_inputs


def test_missing_joint_is_named_from_the_start(active, robot):
    """F11"""
    _, node = active
    robot.instead = {JOINTS: joints(no_elbow)}
    robot.wait_for(lambda: robot.heard.said("no chunk: /joint_states: messages come, but none with left_elbow"),
                   "the joint")
    assert robot.lifecycle.change("deactivate")
    robot.heard.log.clear()
    node.node.session._throttle._said.clear()
    assert robot.lifecycle.change("activate")
    robot.wait_for(lambda: robot.heard.said("/joint_states", "found no left_elbow, expected all of left_waist"),
                   "its name")


def test_arm_by_arm_is_one_robot(active, robot):
    """F11: parts in messages of their own, in another order, with joints that nobody asked for."""
    def part(side: str):
        def change(message):
            keep = [i for i, name in enumerate(message.name) if name.startswith(side)][::-1]
            message.position = array.array("d", [message.position[i] for i in keep] + [9.0])
            message.name = [message.name[i] for i in keep] + ["wheel"]
        return joints(change)

    sides = {"left": part("left"), "right": part("right")}
    robot.instead = {JOINTS: lambda stamp: sides["left" if stamp // 40_000_000 % 2 else "right"](stamp)}
    robot.wait_for_chunks(12)
    assert not robot.heard.said("joint_states")
    _, node = active
    values = dict(zip(node.node.session.policy.robot.joints, node.node.session.inputs.joints._buffer.read().positions))
    sent = deserialize_message(GOOD_JOINTS, JointState)
    assert values == dict(zip(sent.name, sent.position))
    # Each joint has its own age.
    robot.instead = {JOINTS: sides["left"]}
    right = [name for name in node.node.session.policy.robot.joints if name.startswith("right")]
    robot.wait_for(lambda: robot.heard.said(f"messages come, but none with {', '.join(right)} for"), "the right arm")


def test_parts_that_come_at_once_are_all_heard(active, robot):
    """F11: one process that speaks for each joint by itself, as fast as it can: none hides another."""
    _, node = active
    sent = deserialize_message(GOOD_JOINTS, JointState)
    robot.off = {JOINTS}
    publishers = [robot.node.create_publisher(JointState, "joint_states", 5) for _ in range(8)]
    robot.wait_for(lambda: all(p.get_subscription_count() for p in publishers), "the node listening")
    parts = [stamped(serialize_message(JointState(name=sent.name[i::8], position=sent.position[i::8])), 0)
             for i in range(8)]
    resumed, pause = robot.now(), threading.Event()
    robot.heard.log.clear()
    for _ in range(60):
        stamp = robot.now()
        for publisher, part in zip(publishers, parts):
            publisher.publish(stamped(part, stamp))
        pause.wait(0.04)
    for publisher in publishers:
        robot.node.destroy_publisher(publisher)
    assert not robot.heard.said("joint_states", "none with") and not robot.heard.said("no chunk")
    robot.wait_for(lambda: nanoseconds(robot.heard.chunks[-1].header.stamp) > resumed + 10**9, "chunks")


def test_second_publisher_that_is_refused_is_named_though_the_first_is_good(robot):
    """F11: good messages in between do not hide it, and it does them no harm."""
    other = robot.node.create_publisher(JointState, "joint_states", 5)
    robot.wait_for(other.get_subscription_count, "the node listening")
    for _ in range(10):
        other.publish(joints(lambda message: setattr(message, "position", []))(robot.now()))
        robot.wait_for_chunks()
    robot.node.destroy_publisher(other)
    assert robot.heard.said("/joint_states", "14 names and 0 positions")
    assert robot.heard.reported("inputs", "/joint_states", "14 names and 0 positions", level=WARN)
    assert not robot.heard.said("no chunk")


@pytest.mark.parametrize("name, topic", [("cam_left_wrist", "/cam_left_wrist/image_raw/compressed"),
                                         (JOINTS, "/joint_states")])
def test_silent_sensor_stops_chunks_and_is_named(robot, name, topic):
    """F40"""
    robot.off = {name}
    stopped = robot.now()
    robot.wait_for(lambda: robot.heard.said(f"no chunk: {topic}: the last good message came", "the limit is 0.5 s"),
                   "a line")
    robot.wait_for(lambda: robot.heard.reported("inputs", topic, "the limit is 0.5 s", level=WARN), "a status")
    assert all(nanoseconds(c.start) < stopped + 10**9 for c in robot.heard.chunks)
    count = robot.heard.stats[-1].stale_inputs
    robot.wait_for(lambda: robot.heard.stats[-1].stale_inputs > count + 2, "the count to grow")
    robot.off = set()
    resumed = robot.now()
    robot.wait_for(lambda: nanoseconds(robot.heard.chunks[-1].header.stamp) > resumed,
                   "chunks again, without a transition")


@pytest.mark.parametrize("name, topic", [("cam_high", HIGH), (JOINTS, "/joint_states")])
def test_same_stamp_again_is_not_fresh(robot, name, topic):
    """F40"""
    frozen = stamped(robot.messages[name][0], robot.now())
    robot.instead = {name: lambda stamp: frozen}
    robot.wait_for(lambda: robot.heard.said(f"no chunk: {topic}: messages come, but their stamp has not changed"),
                   "a line")
    robot.wait_for(lambda: robot.heard.reported("inputs", topic, "stamp has not changed", level=WARN), "a status")
    robot.instead, resumed = {}, robot.now()
    robot.wait_for(lambda: nanoseconds(robot.heard.chunks[-1].header.stamp) > resumed, "chunks again")


@pytest.mark.parametrize("profile", [
    QoSProfile(depth=5, reliability=ReliabilityPolicy.RELIABLE),
    QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL),
], ids=["reliable", "latched"])
def test_camera_that_restarts_under_another_qos_is_heard(robot, profile):
    """F39, F40: no transition is needed, and pictures of before the restart are not mistaken for new ones."""
    before = robot.sensors["cam_high"]
    robot.off = {"cam_high"}
    robot.wait_for(lambda: robot.heard.said(f"no chunk: {HIGH}: the last good message came"), "that it is missed")
    robot.node.destroy_publisher(before)
    robot.sensors["cam_high"] = robot.node.create_publisher(CompressedImage, TOPIC["cam_high"], profile)
    robot.off, resumed = set(), robot.now()
    robot.wait_for(lambda: nanoseconds(robot.heard.chunks[-1].header.stamp) > resumed, "chunks again")


def at_stamp(seconds: int, nanoseconds: int, name: str = "cam_high"):
    """As a driver writes it that does not check what it writes."""
    data = recorded(TOPIC[name], 1)[0]
    return lambda stamp: data[:4] + struct.pack("<iI", seconds or stamp // 10**9, nanoseconds) + data[12:]


BEHIND, AHEAD = "use_sim_time and play the bag with --clock", "after this node's clock; synchronise the clocks"


@pytest.mark.parametrize("name, offset, make, text", [
    ("cam_high", 3600, None, AHEAD),
    ("cam_high", -10800, None, "stamped 10800"),
    ("cam_high", 0, at_stamp(2**31 - 1, 0), AHEAD),
    ("cam_high", 0, at_stamp(-(2**31), 5), BEHIND),
    ("cam_high", 0, at_stamp(-1, 0), BEHIND),
    ("cam_high", 0, at_stamp(0, 2**32 - 1), AHEAD),
    (JOINTS, 3600, None, AHEAD),
    (JOINTS, -10800, None, BEHIND),
    (JOINTS, 0, at_stamp(-1, 0, JOINTS), BEHIND),
], ids=["1 h ahead", "3 h behind", "2^31 s", "-2^31 s", "-1 s", "too many nanoseconds", "joints 1 h ahead",
        "joints 3 h behind", "joints -1 s"])
def test_stamp_of_another_clock(robot, name, offset, make, text):
    """F41"""
    topic = f"/{TOPIC[name]}"
    robot.offset_ns = {name: offset * 10**9}
    robot.instead = {name: make} if make else {}
    robot.wait_for(lambda: robot.heard.said(f"no chunk: {topic}", text, "use_sim_time"), "a line")
    robot.wait_for(lambda: robot.heard.reported("inputs", topic, text, level=WARN), "a status")
    count = len(robot.heard.chunks)
    stale = robot.heard.stats[-1].stale_inputs
    robot.wait_for(lambda: robot.heard.stats[-1].stale_inputs > stale + 5, "more frames")
    assert len(robot.heard.chunks) == count


def test_stamp_a_little_ahead_is_tolerated(robot):
    """F41"""
    robot.offset_ns = {"cam_high": 50_000_000}
    robot.wait_for_chunks(10)
    assert all(nanoseconds(c.header.stamp) in robot.sent["cam_high"] for c in robot.heard.chunks[-3:])
    assert not robot.heard.said("cam_high")


def test_stamp_0_counts_as_now_and_is_said(robot):
    """F41"""
    robot.instead = {"cam_high": lambda stamp: stamped(robot.messages["cam_high"][stamp // 40_000_000 % 12], 0)}
    robot.wait_for(lambda: robot.heard.said(HIGH, "stamp is 0", "let the driver stamp its messages"), "a line")
    robot.wait_for(lambda: robot.heard.reported("inputs", HIGH, "stamp is 0", level=WARN), "a status")
    robot.wait_for_chunks(10)
    assert all(abs(nanoseconds(c.header.stamp) - robot.now()) < 60 * 10**9 for c in robot.heard.chunks)
    # A dead camera is dead without stamps too: the same bytes again are the same picture.
    robot.instead = {"cam_high": lambda stamp: stamped(robot.messages["cam_high"][0], 0)}
    robot.wait_for(lambda: robot.heard.said(f"no chunk: {HIGH}"), "that chunks stop")


def test_no_message_yet_is_not_called_stale(active):
    """F40"""
    robot, _ = active
    robot.reset()
    assert robot.lifecycle.change("deactivate")
    assert robot.lifecycle.change("activate")
    robot.wait_for(lambda: robot.heard.reported("inputs", f"{HIGH}: no message yet", "/joint_states: no message yet",
                                                level=WARN), "a status")
    assert not robot.heard.said("ago")
