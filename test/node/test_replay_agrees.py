"""A node that is fed a recording with simulated time makes the frames that offline replay makes of it: the same
messages, the same actions."""

import time

import numpy as np
import pytest
import rclpy
from builtin_interfaces.msg import Time
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import QoSProfile
from robot import BAG, SETTINGS, InProcess
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CompressedImage, JointState

from oxygen_ros import settings
from oxygen_ros.children import claim_domain
from oxygen_ros.msg import ActionChunk, Instruction
from oxygen_ros.node.lifecycle_client import LifecycleClient
from oxygen_ros.node.spinner import Spinner
from oxygen_ros.replay.bag import open_bag
from oxygen_ros.replay.decoding import Decoding
from oxygen_ros.replay.evaluate import load_side
from oxygen_ros.replay.rollout import OfflineNode, Part
from oxygen_ros.replay.sources import Names, find

SECONDS = 3.0
KINDS = {"sensor_msgs/msg/CompressedImage": CompressedImage, "sensor_msgs/msg/JointState": JointState,
         "oxygen_ros/msg/Instruction": Instruction}


class Feeder:
    """Feeds a bag to a node over DDS, one message after the other, and time between them."""

    def __init__(self, domain: int, node) -> None:
        self.context = Context()
        rclpy.init(context=self.context, domain_id=domain)
        self.own = rclpy.create_node("feeder", context=self.context)
        self.fed, self.chunks = node, []
        self.bag = open_bag(BAG)
        self.publishers = {t.name: self.own.create_publisher(KINDS[t.type], t.name, 10)
                           for t in self.bag.topics.values() if t.type in KINDS and t.name != "/joint_commands"}
        self.clock = self.own.create_publisher(Clock, "/clock", QoSProfile(depth=10))
        self.own.create_subscription(ActionChunk, "/replayed/action_chunk", self.chunks.append, 10)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.own)
        self.spinner = Spinner(self.executor)

    def wait(self, condition, what: str) -> None:
        end = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < end, f"never: {what}"
            time.sleep(0.0005)

    def set_time(self, ns: int) -> None:
        def arrived() -> bool:
            return self.fed.get_clock().now().nanoseconds == ns

        end = time.monotonic() + 20
        while not arrived():  # the first may be lost while the two find each other
            assert time.monotonic() < end, "never: the time"
            self.clock.publish(Clock(clock=Time(sec=ns // 10**9, nanosec=ns % 10**9)))
            again = time.monotonic() + 0.2
            while not arrived() and time.monotonic() < again:
                time.sleep(0.0005)

    def tick(self, ns: int) -> None:
        frames = self.fed.session.frames
        before = frames.health.last_frame
        self.set_time(ns)
        self.wait(lambda: frames.health.last_frame != before, "a frame")

    def give(self, message) -> None:
        self.set_time(message.received_ns)
        session = self.fed.session
        sources = [source for source in session.inputs if source.topic == message.topic]
        before = [source.received for source in sources]
        self.publishers[message.topic].publish(message.data)
        if sources:

            def heard() -> bool:
                session.look()
                return [source.received for source in sources] == [count + 1 for count in before]

            self.wait(heard, f"{message.topic} heard")
        else:
            self.wait(lambda: session.instructions.task is not None, "the instruction obeyed")

    def close(self) -> None:
        self.spinner.stop()
        self.own.destroy_node()
        self.context.shutdown()


@pytest.fixture
def node():
    domain = claim_domain()
    node = InProcess(domain, "replayed", {"use_sim_time": True, "control_rate": 10.0})
    feeder = Feeder(domain, node.node)
    yield node.node, feeder
    feeder.close()
    node.close()


def test_same_messages_and_same_actions_as_offline(node):
    node, feeder = node
    lifecycle = LifecycleClient(feeder.own, "/replayed")
    assert lifecycle.change("configure")
    snapshots, snapshot = [], node.session.inputs.snapshot

    def spy(now):
        snapshots.append(snapshot(now))
        return snapshots[-1]

    node.session.inputs.snapshot = spy
    feeder.wait(lambda: all(p.get_subscription_count() for p in (*feeder.publishers.values(), feeder.clock))
                and node.count_subscribers("/replayed/action_chunk"), "topics")
    start_ns, every_ns = feeder.bag.start_ns, 100_000_000
    feeder.set_time(start_ns)
    assert lifecycle.change("activate")

    tick_ns = start_ns + every_ns
    for message in feeder.bag.messages(feeder.publishers):
        if message.received_ns <= start_ns:
            continue
        while message.received_ns > tick_ns:
            feeder.tick(tick_ns)
            tick_ns += every_ns
        if tick_ns > start_ns + round(SECONDS * 1e9):
            break
        feeder.give(message)

    side = load_side("oxygen", settings.read({**SETTINGS, "control_rate": 10.0}))
    sources = find(feeder.bag, side.settings, Names(), Decoding())
    rollout = OfflineNode(side.policy, side.settings, sources).run(feeder.bag, Part(seconds=SECONDS))
    assert len(rollout.moments) == round(SECONDS / 0.1)
    feeder.wait(lambda: feeder.chunks and feeder.chunks[-1].sequence == len(rollout.moments), "the last chunk")
    assert [c.sequence for c in feeder.chunks] == [m.sequence for m in rollout.moments]
    assert [s.stamps for s in snapshots] == [m.used for m in rollout.moments]
    for live, moment in zip(feeder.chunks, rollout.moments):
        actions = np.array(live.data, np.float32).reshape(live.horizon, live.action_dim)
        assert abs(actions - moment.actions).max() <= 1e-5
        assert live.header.stamp.sec * 10**9 + live.header.stamp.nanosec == moment.stamp_ns
        assert live.start.sec * 10**9 + live.start.nanosec == moment.start_ns
