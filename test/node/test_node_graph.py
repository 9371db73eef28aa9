"""What the ROS graph shows: names and namespaces, the QoS of every endpoint, overrides, and publishers in vain."""

import signal

import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from rcl_interfaces.srv import GetParameters
from rclpy.duration import Duration
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from robot import CAMERAS, CONFIG, JOINTS, SETTINGS, TOPIC, Process, Robot, node_process
from sensor_msgs.msg import CompressedImage, Image, JointState

from oxygen_ros.children import claim_domain
from oxygen_ros.msg import ActionChunk

WARN = DiagnosticStatus.WARN
BEST, RELIABLE = ReliabilityPolicy.BEST_EFFORT, ReliabilityPolicy.RELIABLE
VOLATILE, LATCHED = DurabilityPolicy.VOLATILE, DurabilityPolicy.TRANSIENT_LOCAL
SECOND, UNLIMITED = 10**9, 2**63 - 1


@pytest.fixture(scope="module")
def active(tmp_path_factory):
    """A node with overrides: one camera reliable, utterances volatile, a deadline asked of the joints."""
    domain = claim_domain()
    robot = Robot(domain)
    node = node_process(domain, tmp_path_factory.mktemp("graph") / "log", settings={
        "joint_trajectory": True, "chunk_deadline": 0.5, "chunk_lifespan": 0.25,
        "qos_overrides./oxygen/utterance.publisher.durability": "volatile",
        "qos_overrides./cam_left_wrist/image_raw/compressed.subscription.reliability": "reliable",
        "qos_overrides./joint_states.subscription.deadline": 4 * SECOND,
    })
    assert robot.lifecycle.change("configure"), node.log
    robot.wait_for(lambda: robot.node.count_publishers("/oxygen/predicted_path"), "the node's publishers")
    yield robot
    robot.close()
    node.close()


PUBLISHED = {
    "/oxygen/action_chunk": ("oxygen_ros/msg/ActionChunk", RELIABLE, VOLATILE, SECOND // 2, SECOND // 4),
    "/oxygen/joint_trajectory": ("trajectory_msgs/msg/JointTrajectory", RELIABLE, VOLATILE, SECOND // 2, SECOND // 4),
    "/oxygen/language_tokens": ("oxygen_ros/msg/LanguageToken", RELIABLE, VOLATILE, UNLIMITED, UNLIMITED),
    "/oxygen/utterance": ("std_msgs/msg/String", RELIABLE, VOLATILE, UNLIMITED, UNLIMITED),  # overridden
    "/oxygen/memory": ("oxygen_ros/msg/LanguageToken", RELIABLE, LATCHED, UNLIMITED, UNLIMITED),
    "/oxygen/frame_stats": ("oxygen_ros/msg/FrameStats", BEST, VOLATILE, UNLIMITED, UNLIMITED),
    "/oxygen/predicted_path": ("visualization_msgs/msg/MarkerArray", RELIABLE, VOLATILE, UNLIMITED, UNLIMITED),
    "/diagnostics": ("diagnostic_msgs/msg/DiagnosticArray", RELIABLE, VOLATILE, UNLIMITED, UNLIMITED),
}
HEARD = {
    "/cam_high/image_raw/compressed": ("sensor_msgs/msg/CompressedImage", {(BEST, VOLATILE, UNLIMITED)}),
    "/cam_left_wrist/image_raw/compressed": ("sensor_msgs/msg/CompressedImage", {(RELIABLE, VOLATILE, UNLIMITED)}),
    "/cam_right_wrist/image_raw/compressed": ("sensor_msgs/msg/CompressedImage", {(BEST, VOLATILE, UNLIMITED)}),
    "/joint_states": ("sensor_msgs/msg/JointState", {(BEST, VOLATILE, 4 * SECOND)}),  # overridden
    "/instruction": ("oxygen_ros/msg/Instruction", {(RELIABLE, VOLATILE, UNLIMITED), (RELIABLE, LATCHED, UNLIMITED)}),
}
DEPTHS = {
    "/oxygen/action_chunk.publisher": 1, "/oxygen/language_tokens.publisher": 1000, "/oxygen/utterance.publisher": 10,
    "/oxygen/memory.publisher": 100, "/oxygen/frame_stats.publisher": 10, "/oxygen/predicted_path.publisher": 1,
    "/cam_high/image_raw/compressed.subscription": 1, "/joint_states.subscription": 10,
    "/instruction.subscription_volatile": 10, "/instruction.subscription_latched": 10,
}


@pytest.mark.parametrize("topic", PUBLISHED)
def test_qos_of_what_is_published(active, topic):
    ours = [i for i in active.node.get_publishers_info_by_topic(topic) if i.node_name == "oxygen"]
    seen = [(i.topic_type, i.qos_profile.reliability, i.qos_profile.durability, i.qos_profile.deadline.nanoseconds,
             i.qos_profile.lifespan.nanoseconds) for i in ours]
    assert seen == [PUBLISHED[topic]]


@pytest.mark.parametrize("topic", HEARD)
def test_qos_of_what_is_heard(active, topic):
    ours = [i for i in active.node.get_subscriptions_info_by_topic(topic) if i.node_name == "oxygen"]
    kind, profiles = HEARD[topic]
    assert {i.topic_type for i in ours} == {kind}
    seen = [i.qos_profile for i in ours]
    assert {(profile.reliability, profile.durability, profile.deadline.nanoseconds) for profile in seen} == profiles


def test_depths(active):
    """The graph does not tell depths; the parameters that override them do."""
    names = [f"qos_overrides.{entity}.depth" for entity in DEPTHS]
    answer = active.call(GetParameters, "get_parameters", GetParameters.Request(names=names))
    assert dict(zip(DEPTHS, (value.integer_value for value in answer.values))) == DEPTHS


def test_camera_that_the_override_cannot_hear_is_named(active):
    """F39"""
    active.wait_for(lambda: active.heard.reported(
        "inputs", "/cam_left_wrist/image_raw/compressed: not heard from /robot, which publishes with best_effort, "
        "volatile, this node asks for reliable, volatile", level=WARN), "a status")
    assert not active.heard.reported("inputs", "/cam_high/image_raw/compressed: not heard")


def test_who_asks_for_nothing_special_is_not_complained_of(active):
    """Its profile leaves deadline, lifespan and liveliness open, as ours does."""
    def complaints():
        return {part.partition(":")[0] for array in active.heard.diagnostics for status in array.status
                for part in status.message.split("; ") if "not heard by" in part}

    active.heard.diagnostics.clear()
    active.wait_for(lambda: len(active.heard.diagnostics) >= 2, "two reports")
    assert complaints() == {"/oxygen/utterance"}  # the robot listens as to a latched one, which the override took away
    listener = active.node.create_subscription(ActionChunk, "/oxygen/action_chunk", lambda m: None,
                                               QoSProfile(depth=1, deadline=Duration(seconds=0.25)))
    active.wait_for(lambda: active.heard.reported(
        "inputs", "/oxygen/action_chunk: not heard by /robot, which expects reliable, volatile (", "deadline",
        level=WARN), "a word about who expects one twice as often as offered")
    active.node.destroy_subscription(listener)


def test_who_cannot_hear_the_node_is_named(active):
    listener = active.node.create_subscription(ActionChunk, "/oxygen/action_chunk", lambda m: None,
                                               QoSProfile(depth=1, durability=LATCHED))
    active.wait_for(lambda: active.heard.reported(
        "inputs", "/oxygen/action_chunk: not heard by /robot, which expects reliable, transient_local", level=WARN),
        "a status")
    active.node.destroy_subscription(listener)


def test_publisher_of_another_type_and_second_joint_publisher_are_named(active):
    """F11, F39"""
    other = Robot(active.domain, topics={}, name="other")
    try:
        other.node.create_publisher(Image, "/cam_high/image_raw/compressed", 5)
        other.node.create_publisher(JointState, "/joint_states", 5)
        other.node.create_publisher(CompressedImage, "/cam_right_wrist/image_raw/compressed", 5)
        active.wait_for(lambda: active.heard.reported(
            "inputs", "/cam_high/image_raw/compressed: not heard from /other, which publishes sensor_msgs/msg/Image",
            "expected sensor_msgs/msg/CompressedImage", level=WARN), "the type mismatch")
        active.wait_for(lambda: active.heard.said("/cam_high/image_raw/compressed", "sensor_msgs/msg/Image"), "a line")
        active.wait_for(lambda: active.heard.reported(
            "inputs", "/joint_states: 2 publishers, /other and /robot", level=WARN), "the rivals")
        active.wait_for(lambda: active.heard.reported(
            "inputs", "/cam_right_wrist/image_raw/compressed: 2 publishers, /other and /robot", level=WARN), "rivals")
        assert not active.heard.reported("inputs", "/cam_high/image_raw/compressed: 2 publishers")  # one is not heard
    finally:
        other.close()
    active.heard.diagnostics.clear()
    active.wait_for(lambda: active.heard.diagnostics and not active.heard.reported("inputs", "/other", last=1), "peace")


def test_second_node_of_the_same_name_warns(active, tmp_path):
    """F57"""
    twin = node_process(active.domain, tmp_path / "log")
    try:
        active.wait_for(lambda: active.heard.reported("inputs", "2 nodes are named /oxygen", "__node:=", level=WARN),
                        "a status")
        active.wait_for(lambda: "2 nodes are named /oxygen" in twin.log, "a line of the second one")
    finally:
        twin.close()


OF_CAMERAS = {
    "cam_high": QoSProfile(depth=5, reliability=BEST), "cam_left_wrist": QoSProfile(depth=5, reliability=RELIABLE),
    "cam_right_wrist": QoSProfile(depth=1, reliability=RELIABLE, durability=LATCHED),
}


def test_cameras_of_any_qos_make_chunks_and_one_that_cannot_be_heard_makes_none(tmp_path):
    """F39: best effort, reliable, latched; then an override asks more of a camera than it gives."""
    domain = claim_domain()
    robot = Robot(domain)
    for camera, profile in OF_CAMERAS.items():
        robot.node.destroy_publisher(robot.sensors[camera])
        robot.sensors[camera] = robot.node.create_publisher(CompressedImage, TOPIC[camera], profile)
    node = node_process(domain, tmp_path / "log")
    deaf = None
    try:
        robot.bring_up()
        end(node)
        deaf = node_process(domain, tmp_path / "deaf", settings={
            "instruction": "transfer the cube",
            f"qos_overrides./{TOPIC['cam_high']}.subscription.reliability": "reliable"})
        assert robot.lifecycle.change("configure") and robot.lifecycle.change("activate"), deaf.log
        robot.reset()
        with robot.running():
            robot.wait_for(lambda: robot.heard.said(f"no chunk: /{TOPIC['cam_high']}: no message yet"), "a line")
            robot.wait_for(lambda: robot.heard.reported(
                "inputs", f"/{TOPIC['cam_high']}: not heard from /robot, which publishes with best_effort", level=WARN),
                "a status")
            robot.wait_for(lambda: robot.heard.stats and robot.heard.stats[-1].stale_inputs > 5, "frames")
        assert not robot.heard.chunks
    finally:
        robot.close()
        node.close()
        if deaf:
            deaf.close()


def end(node: Process) -> None:
    node.signal(signal.SIGINT)
    assert node.wait() == 0, node.log


@pytest.mark.parametrize("arguments, name, topics", [
    (["-r", "__ns:=/left"], "/left/oxygen", {}),
    (["-r", "__node:=vla"], "/vla", {"cam_high": "/front/rgb"}),
    (["-r", "__ns:=/left", "-r", "__node:=vla"], "/left/vla", {JOINTS: "/arm/state"}),
], ids=["namespace", "name and camera", "both and joints"])
def test_shipped_config_under_another_name(tmp_path, arguments, name, topics):
    """F49: the file's key is a wildcard, and every topic, service and status follows namespace and remaps."""
    domain, space = claim_domain(), name.rpartition("/")[0]
    names = {source: topics.get(source, f"{space}/{topic}") for source, topic in TOPIC.items()}
    remaps = [part for source, topic in topics.items() for part in ("-r", f"{TOPIC[source]}:={topic}")]
    robot = Robot(domain, name, names, f"{space}/instruction")
    node = Process(domain, tmp_path / "log", "oxygen_ros.node.main", "--ros-args", "--params-file", CONFIG,
                   "-p", f"policy:={SETTINGS['policy']}", *arguments, *remaps)
    try:
        robot.bring_up()
        chunk = robot.heard.chunks[-1]
        assert len(chunk.names) == 14
        robot.wait_for(lambda: any(len(s.values) > 9 for a in robot.heard.diagnostics[-1:] for s in a.status),
                       "diagnostics")
        statuses = [s for array in robot.heard.diagnostics for s in array.status]
        assert {s.name for s in statuses} == {f"{name}: inputs", f"{name}: engine"}
        assert {s.hardware_id for s in statuses} == {name}
        keys = {value.key for s in robot.heard.diagnostics[-1].status for value in s.values}
        assert {f"{names[source]} received" for source in (*CAMERAS, JOINTS)} <= keys
    finally:
        robot.close()
        node.close()
