"""`oxygen-play` over DDS: messages as they were recorded, stamps moved on request, a line for what cannot be played."""

import os
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from std_msgs.msg import String

from oxygen_ros.children import claim_domain
from oxygen_ros.replay.bag import open_bag

BAG = Path(__file__).parents[2] / "resource" / "aloha_transfer_cube.mcap"
PLAY = [sys.executable, "-m", "oxygen_ros.replay.player"]
DOMAIN = claim_domain()
ENVIRONMENT = {**os.environ, "ROS_DOMAIN_ID": str(DOMAIN), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}


class Ear:
    """Hears joint states and phases, serialised."""

    def __init__(self) -> None:
        os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
        self.heard: dict[str, list[bytes]] = {"/joint_states": [], "/phase": [], "/clock": []}
        self.context = Context()
        rclpy.init(context=self.context, domain_id=DOMAIN)
        self.node = rclpy.create_node("ear", context=self.context)
        reliable = QoSProfile(depth=1000, reliability=ReliabilityPolicy.RELIABLE)
        latched = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE,
                             durability=DurabilityPolicy.TRANSIENT_LOCAL)
        for topic, kind, profile in (("/joint_states", JointState, reliable), ("/phase", String, latched),
                                     ("/clock", Clock, reliable)):
            heard = self.heard[topic]
            self.node.create_subscription(kind, topic, lambda data, to=heard: to.append(bytes(data)), profile, raw=True)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.thread = threading.Thread(target=self.executor.spin, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.executor.shutdown()
        self.thread.join()
        self.node.destroy_node()
        self.context.shutdown()


@pytest.fixture
def ear():
    ear = Ear()
    yield ear
    ear.close()


def play(*arguments: str, **options) -> subprocess.CompletedProcess:
    command = [*PLAY, *map(str, arguments)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, **options)


def test_every_message_as_it_was_recorded(ear):
    done = play(BAG, "--rate", 4, "--wait", "/joint_states", "/phase")
    assert done.returncode == 0, done.stderr
    assert not ear.heard.pop("/clock")
    for topic, heard in ear.heard.items():
        end = time.monotonic() + 5
        while len(heard) < open_bag(BAG).counts[topic] and time.monotonic() < end:
            time.sleep(0.01)
        # DDS may pad a serialised message to a multiple of four.
        recorded = [m.data for m in open_bag(BAG).messages([topic])]
        assert [data[: len(r)] for data, r in zip(heard, recorded)] == recorded and len(heard) == len(recorded)


def test_restamp_moves_all_stamps_to_the_present_by_the_same_time(ear):
    before = time.time_ns()
    assert play(BAG, "--rate", 8, "--wait", "/joint_states", "--restamp").returncode == 0

    def stamps(messages):
        return [s * 10**9 + n for s, n in (struct.unpack_from("<iI", data, 4) for data in messages)]

    heard = stamps(ear.heard["/joint_states"])
    recorded = stamps(m.data for m in open_bag(BAG).messages(["/joint_states"]))
    assert {h - r for h, r in zip(heard, recorded)} == {heard[0] - recorded[0]}
    assert before < heard[0] < time.time_ns()


def test_from_the_middle_with_its_own_time(ear):
    bag = open_bag(BAG)
    first = bag.start_ns + 4_000_000_000
    done = play(BAG, "--rate", 4, "--start", 4, "--clock", 50, "--wait", "/joint_states", "/phase")
    assert done.returncode == 0, done.stderr
    expected = [m for m in bag.messages(["/joint_states"]) if m.received_ns >= first]
    end = time.monotonic() + 5
    while len(ear.heard["/joint_states"]) < len(expected) and time.monotonic() < end:
        time.sleep(0.01)
    assert len(ear.heard["/joint_states"]) == len(expected)
    # What a latched publisher said before is said first: to late subscribers it still does.
    phases = [m.data for m in bag.messages(["/phase"])]
    before = [m.data for m in bag.messages(["/phase"]) if m.received_ns < first]
    told = [data[: len(p)] for data, p in zip(ear.heard["/phase"], phases[len(before) - 1 :])]
    assert len(before) > 1 and told == phases[len(before) - 1 :]
    times = [s * 10**9 + n for s, n in (struct.unpack_from("<iI", data, 4) for data in ear.heard["/clock"])]
    assert times[0] >= first and {b - a for a, b in zip(times, times[1:])} == {20_000_000}
    assert (times[0] - first) % 20_000_000 == 0 and bag.end_ns - times[-1] < 40_000_000


def test_ctrl_c_ends_it(ear):
    process = subprocess.Popen([*PLAY, BAG, "--times", "0"], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 30
    while not ear.heard["/joint_states"] and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=10)
    assert process.returncode == 0 and stderr == ""


@pytest.mark.parametrize("arguments, said", [
    (["nowhere.mcap"], "nowhere.mcap is not a file"),
    ([__file__], "is not a recording: its name ends in none of .mcap"),
    ([BAG, "--rate", "0"], "--rate is 0.0, expected more than 0"),
    ([BAG, "--times", "-1"], "--times: expected a whole number from 0 on, found '-1'"),
    ([BAG, "--clock", "--restamp"], "give one of them"),
    ([BAG, "--start", "-1"], "--start is -1.0, expected 0 or more"),
    ([BAG, "--wait", "/nowhere"], "has no /nowhere; it has /"),
    ([BAG, "--ros-args", "--params-file", "/nowhere.yaml"], "/nowhere.yaml"),
])
def test_what_cannot_be_played_is_one_line(arguments, said):
    done = play(*arguments)
    assert done.returncode != 0
    assert said in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr
