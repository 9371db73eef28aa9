"""Action chunks over DDS: what is in them, and that they are computed from the robot's own pictures and joints."""

import array
import io

import numpy as np
import pytest
from PIL import Image
from rcl_interfaces.msg import Log
from rclpy.serialization import deserialize_message, serialize_message
from robot import CAMERAS, JOINTS, SETTINGS, Robot, node_process, stamped
from sensor_msgs.msg import CompressedImage, JointState
from trajectory_msgs.msg import JointTrajectory

from oxygen_ros import settings
from oxygen_ros.children import claim_domain
from oxygen_ros.embodiment.images import decode_compressed
from oxygen_ros.embodiment.joints import read_state
from oxygen_ros.engine.outputs import Actions
from oxygen_ros.msg import ActionChunk, Instruction
from oxygen_ros.policy import load_policy
from oxygen_ros.stamps import nanoseconds

NAMES = [f"{side}_{joint}" for side in ("left", "right") for joint in (
    "waist", "shoulder", "elbow", "forearm_roll", "wrist_angle", "wrist_rotate", "gripper")]


@pytest.fixture(scope="module")
def policy():
    return load_policy(settings.read(SETTINGS))


@pytest.fixture(scope="module")
def active(tmp_path_factory):
    domain = claim_domain()
    robot, log = Robot(domain), tmp_path_factory.mktemp("chunks") / "log"
    node = node_process(domain, log, settings={"joint_trajectory": True})
    robot.bring_up("transfer the cube")
    yield robot
    robot.close()
    node.close()


@pytest.fixture
def robot(active):
    robot = active
    robot.reset()
    robot.tell("transfer the cube")
    robot.wait_for(lambda: robot.heard.said("transfer the cube", level=Log.INFO), "the instruction heard")
    yield robot
    assert not robot.heard.said("frame", level=Log.ERROR), robot.heard.lines()


def expected(policy, robot: Robot, index: int, task: str) -> np.ndarray:
    """What the policy makes, without ROS, of the bag's messages of this index."""
    images = {}
    for name in CAMERAS:
        message = deserialize_message(robot.messages[name][index], CompressedImage)
        images[name] = decode_compressed(message.format, message.data)
    joints = deserialize_message(robot.messages[JOINTS][index], JointState)
    state = read_state(policy.robot.joints, dict(zip(joints.name, joints.position)))
    seen = policy.pipeline.observe(images, state, task)
    for output in policy.engine.frame(policy.observation(seen, 0)):
        if isinstance(output, Actions):
            return policy.robot.clip(policy.robot_actions(output.actions, seen))
    raise AssertionError("no actions")


def chunk_of(robot: Robot, index: int) -> np.ndarray:
    """The actions [50, 14] of a frame that saw nothing but the bag's messages of this index."""
    robot.still = index
    begin = robot.now()
    robot.wait_for(lambda: robot.heard.chunks and all_after(robot, begin), "a chunk")
    return np.array(robot.heard.chunks[-1].data, np.float32).reshape(50, 14)


def all_after(robot: Robot, begin_ns: int) -> bool:
    """Whether the newest chunk's pictures and joints were all sent after this moment, with 0.2 s for their ways."""
    return nanoseconds(robot.heard.chunks[-1].header.stamp) > begin_ns + 200_000_000


def test_fields_of_a_chunk(robot):
    with robot.running():
        chunk = robot.wait_for_chunks(3)[-1]
    assert list(chunk.names) == NAMES
    assert (chunk.horizon, chunk.action_dim, len(chunk.data)) == (50, 14, 700)
    assert nanoseconds(chunk.step_dt) == 20_000_000
    assert chunk.representation == ActionChunk.ABSOLUTE_POSITION
    assert chunk.header.frame_id == "base_link"
    assert nanoseconds(chunk.header.stamp) in robot.sent["cam_high"]
    assert 0 < nanoseconds(chunk.latency) < 2 * 10**9
    assert np.isfinite(chunk.data).all()


def test_values_are_those_of_the_policy_without_ros(robot, policy):
    with robot.running():
        chunks = [chunk_of(robot, index) for index in (0, 5, 11)]
    for index, chunk in zip((0, 5, 11), chunks):
        np.testing.assert_allclose(chunk, expected(policy, robot, index, "transfer the cube"), atol=1e-5)
    assert np.abs(chunks[0] - chunks[2]).max() > 1e-3  # so equal values mean equal pictures and joints


def test_rate_and_sequence(robot):
    with robot.running():
        first = robot.wait_for_chunks()[0]
        chunks = [first, *robot.wait_for_chunks(20)]
    numbers = [chunk.sequence for chunk in chunks]
    # Ticks that a busy machine misses have no number.
    assert all(b > a for a, b in zip(numbers, numbers[1:]))
    published = [nanoseconds(c.header.stamp) + nanoseconds(c.latency) for c in chunks]
    misses = robot.heard.stats[-1].deadline_misses - robot.heard.stats[0].deadline_misses
    ticks = numbers[-1] - numbers[0] + misses
    assert 0.16 < (published[-1] - published[0]) / 1e9 / ticks < 0.24


def test_stamp_is_the_newest_picture_or_a_newer_joint_state(robot):
    for newest, name in ((60_000_000, JOINTS), (60_000_000, "cam_left_wrist")):
        robot.offset_ns = {name: newest}
        with robot.running():
            robot.wait_for_chunks(3)
            stamp = nanoseconds(robot.wait_for_chunks()[-1].header.stamp)
        assert stamp in robot.sent[name]
        assert stamp not in robot.sent["cam_high"]
        robot.reset()


def published_ns(chunk: ActionChunk) -> int:
    return nanoseconds(chunk.header.stamp) + nanoseconds(chunk.latency)


def test_start_from_standstill_and_while_moving(robot):
    robot.tell(task=Instruction.STOP)
    with robot.running():
        robot.wait_for(lambda: robot.heard.reported("inputs", "none yet"), "no task")
        before = len(robot.heard.chunks)
        robot.tell("transfer the cube")
        first, second, third = robot.wait_for_chunks(3, since=before)[:3]
    assert nanoseconds(first.start) == published_ns(first)
    assert nanoseconds(second.start) == nanoseconds(second.header.stamp)
    assert nanoseconds(third.start) == nanoseconds(third.header.stamp)
    # A gap longer than the chunk (50 * 0.02 s) is a standstill again.
    end = nanoseconds(robot.heard.chunks[-1].start) + 10**9
    robot.wait_for(lambda: robot.now() > end + 100_000_000, "the end of the last chunk")
    before = len(robot.heard.chunks)
    with robot.running():
        chunk = robot.wait_for_chunks(since=before)[0]
    assert nanoseconds(chunk.start) == published_ns(chunk)


def test_instruction_id_tells_which_one_is_obeyed(robot):
    """F23, also CANCEL and the same again."""
    with robot.running():
        robot.tell("lift the cube", id=77)
        robot.wait_for(lambda: robot.heard.chunks and robot.heard.chunks[-1].instruction_id == 77, "chunks of 77")
        robot.tell("transfer the cube")
        robot.wait_for(lambda: robot.heard.chunks[-1].instruction_id not in (0, 77), "an id of the node's own")
        robot.tell("transfer the cube", id=5)
        robot.wait_for(lambda: robot.heard.chunks[-1].instruction_id == 5, "chunks of 5")
        robot.tell(task=Instruction.CANCEL, id=5)
        robot.wait_for(lambda: robot.heard.reported("inputs", "none yet"), "no task")
        before = len(robot.heard.chunks)
        robot.tell("transfer the cube", id=5)
        assert robot.wait_for_chunks(since=before)[0].instruction_id == 5


def with_a_block(serialized: bytes, value: int | None):
    """The same picture as PNG, for a stamp, with one block of 32x32 pixels painted over."""
    message = deserialize_message(serialized, CompressedImage)
    pixels = decode_compressed(message.format, message.data).copy()
    if value is not None:
        pixels[100:132, 100:132] = value
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", compress_level=1)
    data = serialize_message(CompressedImage(format="png", data=array.array("B", file.getvalue())))
    return lambda stamp: stamped(data, stamp)


def moved(serialized: bytes, joint: str, by: float):
    message = deserialize_message(serialized, JointState)
    message.position[list(message.name).index(joint)] += by
    data = serialize_message(message)
    return lambda stamp: stamped(data, stamp)


def test_each_part_of_the_observation_changes_the_chunk(robot):
    """F23: one camera, a block of its pixels, the joints, one of them by 0.05 rad, the text; nothing is cached because
    it looks alike."""
    with robot.running():
        base = chunk_of(robot, 0)
        np.testing.assert_array_equal(chunk_of(robot, 0), base)
        for name in ("cam_right_wrist", JOINTS):
            robot.instead = {name: lambda stamp, name=name: stamped(robot.messages[name][11], stamp)}
            assert np.abs(chunk_of(robot, 0) - base).max() > 1e-5, name
        robot.instead = {"cam_left_wrist": with_a_block(robot.messages["cam_left_wrist"][0], None)}
        untouched = chunk_of(robot, 0)
        robot.instead = {"cam_left_wrist": with_a_block(robot.messages["cam_left_wrist"][0], 255)}
        assert np.abs(chunk_of(robot, 0) - untouched).max() > 1e-5
        robot.instead = {JOINTS: moved(robot.messages[JOINTS][0], "left_elbow", 0.05)}
        assert np.abs(chunk_of(robot, 0) - base).max() > 1e-5
        robot.instead = {}
        robot.tell("push the cube", id=3)
        robot.wait_for(lambda: robot.heard.chunks[-1].instruction_id == 3, "chunks of 3")
        assert np.abs(chunk_of(robot, 0) - base).max() > 1e-5


def test_trajectory_skips_what_is_past(robot):
    heard = []
    subscription = robot.node.create_subscription(JointTrajectory, "/oxygen/joint_trajectory", heard.append, 10)
    with robot.running():
        robot.wait_for(lambda: len(heard) > 3, "trajectories")
    robot.node.destroy_subscription(subscription)
    last = heard[-1]
    chunk = next(c for c in robot.heard.chunks if nanoseconds(c.start) == nanoseconds(last.header.stamp))
    offsets = [nanoseconds(point.time_from_start) for point in last.points]
    first = -(-nanoseconds(chunk.latency) // 20_000_000)
    assert offsets == [20_000_000 * i for i in range(first, 50)]
    assert list(last.joint_names) == NAMES
    np.testing.assert_allclose(last.points[0].positions, chunk.data[first * 14 : (first + 1) * 14], rtol=1e-6)
