"""Bad messages, silent and badly stamped sensors: what is said, what is counted, and that good ones work again."""

import array
import io

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from PIL import Image as Picture
from rcl_interfaces.msg import Log
from rclpy.serialization import deserialize_message, serialize_message
from robot import JOINTS, InProcess, Robot, nanoseconds, next_domain, recorded, stamped
from sensor_msgs.msg import CompressedImage, Image, JointState

from oxygen_ros.embodiment.images import decode_compressed

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
    domain = next_domain()
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
    """The session's own picture, not a copy of its decoder: rows lose their padding, then turn by 180 degrees."""
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


def wrist(**fields):
    """A bad raw picture for a stamp: a good one with some fields changed."""
    good = image(np.zeros((4, 6, 3), np.uint8))
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


def no_elbow(message):
    keep = [i for i, name in enumerate(message.name) if name != "left_elbow"]
    message.position = array.array("d", [message.position[i] for i in keep])
    message.name = [message.name[i] for i in keep]


def fewer_positions(message):
    message.position = message.position[:-2]


BAD = {
    "unknown encoding": ("cam_right_wrist", wrist(encoding="8UC3"), WRIST, "8UC3", "supported are rgb8"),
    "depth": ("cam_right_wrist", wrist(encoding="16UC1"), WRIST, "depth encoding 16UC1", "a colour encoding"),
    "short data": ("cam_right_wrist", wrist(data=b"\0" * 50), WRIST, "50 bytes", "4*18 = 72"),
    "step 0": ("cam_right_wrist", wrist(step=0), WRIST, "step 0", "6*3 = 18"),
    "empty": ("cam_right_wrist", wrist(width=0, height=0, step=0, data=b""), WRIST, "0x0 pixels", "at least 1x1"),
    "no data": ("cam_right_wrist", wrist(data=b""), WRIST, "0 bytes", "72"),
    "half a JPEG": ("cam_high", jpeg(half_a_jpeg()), HIGH, "do not decode", "a whole JPEG, PNG or WebP"),
    "random bytes": ("cam_high", jpeg(bytes(range(256))), HIGH, "256 bytes that do not decode", "a whole JPEG"),
    "empty JPEG": ("cam_high", jpeg(b""), HIGH, "no data", "a JPEG"),
    "depth transport": ("cam_high", jpeg(b"x", "16UC1; compressedDepth"), HIGH, "depth format", "a colour picture"),
    "not a message": ("cam_high", lambda stamp: stamped(b"\0\1\0\0" + b"\xff" * 20, stamp), HIGH,
                      "24 bytes that do not", "sensor_msgs/msg/CompressedImage"),
    "NaN": (JOINTS, joints(not_a_number), "/joint_states", "left_forearm_roll = nan", "finite numbers"),
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


def test_one_bad_picture_in_three_does_no_harm(robot):
    good = robot.messages["cam_high"]
    bad_stamps = []

    def mixed(stamp: int) -> bytes:
        if stamp // 40_000_000 % 3:
            return stamped(good[0], stamp)
        bad_stamps.append(stamp)
        return jpeg(b"broken")(stamp)

    robot.instead = {"cam_high": mixed}
    robot.wait_for_chunks(20)
    robot.wait_for(lambda: len(bad_stamps) > 10, "bad pictures")
    assert robot.heard.stats[-1].stale_inputs == robot.heard.stats[0].stale_inputs


def test_missing_joint_is_named_from_the_start(active, robot):
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


def test_arm_by_arm_is_one_robot(robot):
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


@pytest.mark.parametrize("name, topic", [("cam_left_wrist", "/cam_left_wrist/image_raw/compressed"),
                                         (JOINTS, "/joint_states")])
def test_silent_sensor_stops_chunks_and_is_named(robot, name, topic):
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


def test_same_stamp_again_is_not_fresh(robot):
    frozen = stamped(robot.messages["cam_high"][0], robot.now())
    robot.instead = {"cam_high": lambda stamp: frozen}
    robot.wait_for(lambda: robot.heard.said(f"no chunk: {HIGH}: messages come, but their stamp has not changed"),
                   "a line")
    robot.wait_for(lambda: robot.heard.reported("inputs", HIGH, "stamp has not changed", level=WARN), "a status")


@pytest.mark.parametrize("seconds, text", [
    (3600, "after this node's clock; synchronise the clocks"),
    (-10800, "stamped 10800"),
])
def test_stamp_of_another_clock(robot, seconds, text):
    robot.offset_ns = {"cam_high": seconds * 10**9}
    robot.wait_for(lambda: robot.heard.said(f"no chunk: {HIGH}", text, "use_sim_time"), "a line")
    robot.wait_for(lambda: robot.heard.reported("inputs", HIGH, text, level=WARN), "a status")
    count = len(robot.heard.chunks)
    stale = robot.heard.stats[-1].stale_inputs
    robot.wait_for(lambda: robot.heard.stats[-1].stale_inputs > stale + 5, "more frames")
    assert len(robot.heard.chunks) == count


def test_stamp_a_little_ahead_is_tolerated(robot):
    robot.offset_ns = {"cam_high": 50_000_000}
    robot.wait_for_chunks(10)
    assert all(nanoseconds(c.header.stamp) in robot.sent["cam_high"] for c in robot.heard.chunks[-3:])
    assert not robot.heard.said("cam_high")


def test_stamp_0_counts_as_now_and_is_said(robot):
    robot.instead = {"cam_high": lambda stamp: stamped(robot.messages["cam_high"][stamp // 40_000_000 % 12], 0)}
    robot.wait_for(lambda: robot.heard.said(HIGH, "stamp is 0", "let the driver stamp its messages"), "a line")
    robot.wait_for(lambda: robot.heard.reported("inputs", HIGH, "stamp is 0", level=WARN), "a status")
    robot.wait_for_chunks(10)
    assert all(abs(nanoseconds(c.header.stamp) - robot.now()) < 60 * 10**9 for c in robot.heard.chunks)
    # A dead camera is dead without stamps too: the same bytes again are the same picture.
    robot.instead = {"cam_high": lambda stamp: stamped(robot.messages["cam_high"][0], 0)}
    robot.wait_for(lambda: robot.heard.said(f"no chunk: {HIGH}"), "that chunks stop")


def test_no_message_yet_is_not_called_stale(active):
    robot, _ = active
    robot.reset()
    assert robot.lifecycle.change("deactivate")
    assert robot.lifecycle.change("activate")
    robot.wait_for(lambda: robot.heard.reported("inputs", f"{HIGH}: no message yet", "/joint_states: no message yet",
                                                level=WARN), "a status")
    assert not robot.heard.said("ago")
