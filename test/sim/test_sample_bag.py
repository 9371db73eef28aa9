"""The bag that ships with the package holds what a real ALOHA would have recorded. Needs no simulator and no GL."""
from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from mcap.reader import make_reader
from rosbags.typesys import get_types_from_msg
from sim_bags import ROOT, SAMPLE, picture, positions, read, red

MS = 1_000_000
CAMERAS = ("cam_high", "cam_left_wrist", "cam_right_wrist")
IMAGES = [f"/{camera}/image_raw/compressed" for camera in CAMERAS]
JOINTS = [f"{side}_{joint}" for side in ("left", "right") for joint in
          ("waist", "shoulder", "elbow", "forearm_roll", "wrist_angle", "wrist_rotate", "gripper")]
GRIPPERS = [JOINTS.index("left_gripper"), JOINTS.index("right_gripper")]
ARMS = [i for i in range(14) if i not in GRIPPERS]
# ViperX 300 S, rad (Interbotix' URDF), and the finger's travel in m.
LOW = [-3.14159, -1.85005, -1.76278, -3.14159, -1.86750, -3.14159, 0.021] * 2
HIGH = [3.14159, 1.25664, 1.60570, 3.14159, 2.23402, 3.14159, 0.057] * 2


@pytest.fixture(scope="module")
def bag():
    return read(SAMPLE)


def test_it_is_small_and_of_rosbag2s_form(bag):
    _, _, summary = bag
    assert 1_000_000 < SAMPLE.stat().st_size <= 8_000_000
    with SAMPLE.open("rb") as stream:
        assert make_reader(stream).get_header().profile == "ros2"
    assert {schema.encoding for schema in summary.schemas.values()} == {"ros2msg"}
    assert {channel.message_encoding for channel in summary.channels.values()} == {"cdr"}


def test_topics_types_and_counts(bag):
    heard, types, _ = bag
    assert types == {
        **dict.fromkeys(IMAGES, "sensor_msgs/msg/CompressedImage"),
        "/joint_states": "sensor_msgs/msg/JointState",
        "/joint_commands": "sensor_msgs/msg/JointState",
        "/instruction": "oxygen_ros/msg/Instruction",
        "/phase": "std_msgs/msg/String",
    }
    assert {topic: len(messages) for topic, messages in heard.items()} == {
        **dict.fromkeys(IMAGES, 200), "/joint_states": 400, "/joint_commands": 400, "/instruction": 1, "/phase": 5}


def test_offered_qos_is_what_such_publishers_offer(bag):
    _, _, summary = bag
    offers = {channel.topic: yaml.safe_load(channel.metadata["offered_qos_profiles"])[0]
              for channel in summary.channels.values()}
    assert {topic: (offer["reliability"], offer["durability"]) for topic, offer in offers.items()} == {
        **dict.fromkeys(IMAGES, ("best_effort", "volatile")),
        "/joint_states": ("reliable", "volatile"),
        "/joint_commands": ("reliable", "volatile"),
        "/instruction": ("reliable", "transient_local"),
        "/phase": ("reliable", "transient_local"),
    }
    assert all(offer["history"] == "keep_last" and offer["deadline"]["sec"] == 9223372036 for offer in offers.values())


@pytest.mark.parametrize("topic, period, least, most", [
    *((topic, 40 * MS, 4 * MS, 9 * MS) for topic in IMAGES),
    *((topic, 20 * MS, 0, MS) for topic in ("/joint_states", "/joint_commands"))])
def test_rates_and_stamps(bag, topic, period, least, most):
    """Acquired at a steady rate, received a little later, like a driver's."""
    messages = bag[0][topic]
    stamps = np.array([m.stamp for m in messages])
    received = np.array([m.received for m in messages])
    published = np.array([m.published for m in messages])
    assert (np.diff(stamps) == period).all()
    assert (np.diff(received) > 0).all()
    delay = received - stamps
    assert least < delay.min() and delay.max() < most and len(set(delay)) > 100  # jitter, not a constant
    assert (stamps <= published).all() and (published < received).all()


def test_file_order_is_the_order_of_reception(bag):
    with SAMPLE.open("rb") as stream:
        times = [message.log_time for _, _, message in make_reader(stream).iter_messages(log_time_order=False)]
    assert times == sorted(times)


def test_a_command_follows_the_joint_state_that_it_answers(bag):
    heard, _, _ = bag
    for state, command, following in zip(heard["/joint_states"], heard["/joint_commands"], heard["/joint_states"][1:]):
        assert state.received < command.received < following.received
        assert state.stamp < command.stamp < following.stamp


@pytest.mark.parametrize("topic", ["/joint_states", "/joint_commands"])
def test_joints_are_named_and_in_robot_units(bag, topic):
    messages = bag[0][topic]
    assert all(m.message.name == JOINTS and m.message.header.frame_id == "base_link" for m in messages)
    values = positions(messages)
    assert values.shape == (400, 14) and np.isfinite(values).all()
    slack = np.full(14, 1e-3)
    slack[GRIPPERS] = 0.003  # commands reach from 0.01844 to 0.058, past the fingers' stops
    assert (values >= LOW - slack).all() and (values <= HIGH + slack).all()
    assert (np.ptp(values[:, ARMS], axis=0) > 0.02).all()  # every joint takes part
    for gripper in GRIPPERS:
        assert values[:, gripper].min() < 0.024 and values[:, gripper].max() > 0.05  # closed once, open once: metres


def test_velocities_are_the_positions_slopes_and_commands_have_none(bag):
    heard, _, _ = bag
    states = positions(heard["/joint_states"])
    velocities = np.array([m.message.velocity for m in heard["/joint_states"]])
    slopes = np.diff(states, axis=0) * 50
    means = (velocities[1:] + velocities[:-1]) / 2
    for joint in range(14):
        assert np.corrcoef(slopes[:, joint], means[:, joint])[0, 1] > 0.7, JOINTS[joint]
        # Sampled as a period ends, when a joint has slowed down: not 1, but far from another unit.
        assert 0.5 < np.polyfit(means[:, joint], slopes[:, joint], 1)[0] < 2, JOINTS[joint]
    assert all(len(m.message.velocity) == 0 for m in heard["/joint_commands"])
    assert all(len(m.message.effort) == 0 for topic in ("/joint_states", "/joint_commands") for m in heard[topic])


def test_arms_follow_their_commands_with_a_lag(bag):
    heard, _, _ = bag
    states, commands = (positions(heard[topic])[:, ARMS] for topic in ("/joint_states", "/joint_commands"))
    errors = {lag: np.abs(commands[:400 - lag] - states[lag:]) for lag in range(6)}
    best = min(errors, key=lambda lag: errors[lag].mean())
    assert 1 <= best <= 3  # a command cannot show in the joint state before it
    assert errors[best].mean() < 0.01 and errors[best].max() < 0.1


@pytest.mark.parametrize("camera", CAMERAS)
def test_pictures_decode_to_640x480(bag, camera):
    messages = bag[0][f"/{camera}/image_raw/compressed"]
    assert {m.message.format for m in messages} == {"rgb8; jpeg compressed bgr8"}
    assert {m.message.header.frame_id for m in messages} == {f"{camera}_optical_frame"}
    pictures = [picture(m) for m in messages[::10]]
    assert all(p.shape == (480, 640, 3) for p in pictures)
    assert all(p.std() > 20 for p in pictures)  # a scene, not a blank
    assert np.abs(pictures[0].astype(int) - pictures[-1]).mean() > 2  # which moves


def test_the_pictures_show_the_cube_change_hands(bag):
    heard, _, _ = bag
    high = heard["/cam_high/image_raw/compressed"]
    first, last = red(picture(high[0])), red(picture(high[-1]))
    assert 150 < len(first) < 900 and 100 < len(last)
    assert first[:, 0].mean() > 340 and last[:, 0].mean() < 300  # from the right arm's half of the table to the left's
    right, left = (heard[f"/cam_{side}_wrist/image_raw/compressed"] for side in ("right", "left"))
    held_by_right, held_by_left = (red(picture(messages[i])) for messages, i in ((right, 95), (left, 199)))
    for cube in (held_by_right, held_by_left):  # between the fingers: in the middle of the wrist's picture
        assert len(cube) > 2000 and abs(cube[:, 0].mean() - 320) < 40
    assert len(red(picture(left[0]))) < 200


def test_phases_come_in_order_and_with_the_motion(bag):
    heard, _, _ = bag
    start = heard["/joint_states"][0].stamp
    phases = [(m.message.data, (m.received - start) / 1e9) for m in heard["/phase"]]
    assert [name for name, _ in phases] == [
        "reach the cube", "grasp the cube", "lift the cube", "hand over the cube", "release the cube"]
    times = dict(phases)
    grips = positions(heard["/joint_commands"])[:, GRIPPERS]

    def grip_at(seconds):
        return grips[round(seconds * 50)]

    assert times["reach the cube"] < 0.01
    left, right = 0, 1
    assert grip_at(times["grasp the cube"])[right] > 0.057 and grip_at(times["lift the cube"])[right] < 0.019
    assert grip_at(times["hand over the cube"])[left] > 0.057 and grip_at(times["release the cube"])[left] < 0.019
    assert grip_at(7.9)[right] > 0.057


def test_the_instruction_is_heard_before_the_first_picture_and_typed_by_the_repositorys_definition(bag):
    heard, _, summary = bag
    (instruction,) = heard["/instruction"]
    assert (instruction.message.task, instruction.message.text, instruction.message.id) == (0, "transfer the cube", 0)
    assert instruction.received < min(heard[topic][0].received for topic in IMAGES)
    (schema,) = (s for s in summary.schemas.values() if s.name == "oxygen_ros/msg/Instruction")
    ours = (ROOT / "msg" / "Instruction.msg").read_text()
    assert get_types_from_msg(schema.data.decode(), schema.name) == get_types_from_msg(ours, schema.name)


def test_ros_itself_reads_the_messages_and_knows_their_types(bag):
    """Serialisation and type hashes against the middleware's own, where it is installed."""
    serialization = pytest.importorskip("rclpy.serialization", reason="rclpy is not installed: make setup")
    from ament_index_python import get_package_share_directory
    heard, types, summary = bag
    hashes = {channel.topic: channel.metadata["topic_type_hash"] for channel in summary.channels.values()}
    for topic, name in types.items():
        package, kind, short = name.split("/")
        description = json.loads(Path(get_package_share_directory(package), kind, f"{short}.json").read_text())
        assert hashes[topic] == description["type_hashes"][0]["hash_string"], name
        ours = heard[topic][0]
        message_type = getattr(importlib.import_module(f"{package}.{kind}"), short)
        theirs = serialization.deserialize_message(ours.raw, message_type)
        for field in theirs.get_fields_and_field_types():
            if field != "header":
                assert np.array_equal(getattr(theirs, field), getattr(ours.message, field)), f"{topic} {field}"
        if ours.stamp is not None:
            assert theirs.header.stamp.sec * 10**9 + theirs.header.stamp.nanosec == ours.stamp
