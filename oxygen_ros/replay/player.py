"""`oxygen-play`: a recording's topics, live and in real time, where rosbag2 is not at hand."""

from __future__ import annotations

import importlib
import signal
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence

import rclpy
import yaml
from builtin_interfaces.msg import Time
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from rosgraph_msgs.msg import Clock

from ..command_line import CommandLine, whole
from ..plain_cdr import header_stamp_ns, restamped
from ..ros_arguments import RosArgumentsError, without_ros_arguments
from .bag import Bag, BagError, Recorded, Topic, in_its_own_time, open_bag

_PATIENCE = 30.0  # s
_ACKNOWLEDGED = 2.0  # s


class Player:
    """Publishes the messages of a bag as they are, at the pace of their recording.

    start: seconds of the bag that are left out. What latched publishers had said until then is said first.
    restamp moves header stamps to the present, so that a recording of long ago is fresh to whoever judges ages.
    clock: publish the recording's time on /clock so many times in each of its seconds; 0 does not.
    """

    def __init__(self, node: Node, bag: Bag, *, exclude: Collection[str] = (), rate: float = 1.0, start: float = 0.0,
                 restamp: bool = False, clock: float = 0.0) -> None:
        bag = in_its_own_time(bag) if clock else bag
        self._bag, self._rate, self._node = bag, rate, node
        self._start_ns = bag.start_ns + round(start * 1e9)
        self._clock = node.create_publisher(Clock, "/clock", QoSProfile(depth=10)) if clock else None
        self._clock_step_ns = round(1e9 / clock) if clock else 0
        self._publishers: dict[str, Publisher] = {}
        self._stamped: set[str] = set()
        for topic in bag.topics.values():
            if topic.name in exclude:
                continue
            kind = _message_type(topic)
            if kind is None:
                node.get_logger().warning(f"{topic.name} is left out: this environment has no {topic.type}")
                continue
            if topic.name == "/clock" and clock:
                continue
            self._publishers[topic.name] = node.create_publisher(kind, topic.name, _offered(topic))
            if restamp and next(iter(kind.get_fields_and_field_types().values()), "") == "std_msgs/Header":
                self._stamped.add(topic.name)

    def play(self, stop: threading.Event) -> int:
        """Once through the bag, or until `stop`. Returns how many messages were published. Raises BagError."""
        # Stamps keep their distances to each other: all move by the same amount.
        self._shift_ns = self._node.get_clock().now().nanoseconds - self._start_ns
        self._began, count, clock_ns = time.monotonic(), 0, self._start_ns
        latched: dict[str, Recorded] = {}
        for message in self._bag.messages(self._publishers):
            if message.received_ns < self._start_ns:
                latched[message.topic] = message
                continue
            for early in self._still_told(latched):
                self._publish(early)
            latched = {}
            while self._clock and clock_ns <= message.received_ns:
                if self._wait(clock_ns, stop):
                    return count
                self.tell_time(clock_ns)
                clock_ns += self._clock_step_ns
            if self._wait(message.received_ns, stop):
                return count
            self._publish(message)
            count += 1
        return count

    def tell_time(self, ns: int) -> None:
        self._clock.publish(Clock(clock=Time(sec=ns // 1_000_000_000, nanosec=ns % 1_000_000_000)))

    def _wait(self, time_ns: int, stop: threading.Event) -> bool:
        """Until this moment of the recording; True if it is to stop."""
        due = self._began + (time_ns - self._start_ns) / 1e9 / self._rate
        return stop.wait(max(0.0, due - time.monotonic()))

    def _publish(self, message: Recorded) -> None:
        moved = message.topic in self._stamped
        data = restamped(message.data, header_stamp_ns(message.data) + self._shift_ns) if moved else message.data
        self._publishers[message.topic].publish(data)

    def _still_told(self, last: Mapping[str, Recorded]) -> list[Recorded]:
        """The last message of each topic that a late subscriber would hear."""
        return [m for m in last.values() if self._publishers[m.topic].qos_profile.durability
                == DurabilityPolicy.TRANSIENT_LOCAL]

    def finish(self, timeout: float) -> None:
        """Return when reliable subscribers have everything, or after `timeout` seconds: a publisher that goes takes
        along what it has not delivered."""
        end = time.monotonic() + timeout
        for publisher in self._publishers.values():
            publisher.wait_for_all_acked(Duration(seconds=max(0.0, end - time.monotonic())))

    def unheard(self, topics: Collection[str]) -> list[str]:
        """Those of the topics that nobody listens to."""
        return [t for t in topics if t in self._publishers and self._publishers[t].get_subscription_count() == 0]


def _message_type(topic: Topic) -> type | None:
    package, _, name = topic.type.replace("/msg/", "/").partition("/")
    try:
        return getattr(importlib.import_module(f"{package}.msg"), name)
    except (ImportError, AttributeError):
        return None


def _offered(topic: Topic) -> QoSProfile:
    """The publisher's own QoS where the bag tells it, else reliable: every subscriber matches that."""
    profile = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
    try:
        offers = yaml.safe_load(topic.offered_qos)
    except yaml.YAMLError:
        offers = None
    if isinstance(offers, list) and offers and isinstance(offers[0], dict):
        offer = offers[0]
        profile.depth = max(1, int(offer.get("depth", 10)))
        if str(offer.get("reliability")) in ("best_effort", "2"):
            profile.reliability = ReliabilityPolicy.BEST_EFFORT
        if str(offer.get("durability")) in ("transient_local", "1"):
            profile.durability = DurabilityPolicy.TRANSIENT_LOCAL
    return profile


def _options(arguments: Sequence[str]) -> Namespace:
    """Raises RosArgumentsError."""
    parser = CommandLine(
        prog="oxygen-play", description="Publish the topics of a recording in real time. Remaps and namespaces "
        "come after --ros-args, as for any ROS 2 node.",
    )
    parser.add_argument("bag", help="recording: MCAP, SQLite or ROS 1 file, or the folder of a rosbag2")
    parser.add_argument("--rate", type=float, default=1.0, help="times real time (default: %(default)s)")
    parser.add_argument("--times", type=whole(0), metavar="N", default=1,
                        help="how often to play it; 0 is for ever (default: %(default)s)")
    parser.add_argument("--exclude", nargs="*", default=[], metavar="TOPIC", help="topics to leave out")
    parser.add_argument("--wait", nargs="*", default=[], metavar="TOPIC",
                        help="begin only when these topics have a subscriber (at most 30 s)")
    parser.add_argument("--start", type=float, default=0.0, metavar="S", help="seconds to leave out (default: 0)")
    parser.add_argument("--restamp", action="store_true", help="move header stamps to the present")
    parser.add_argument("--clock", type=float, nargs="?", const=100.0, default=0.0, metavar="HZ",
                        help="publish the recording's time on /clock, for nodes with use_sim_time, so often (100)")
    options = parser.parse_args(without_ros_arguments(arguments)[1:])
    if not 0 < options.rate < float("inf"):
        parser.error(f"--rate is {options.rate}, expected more than 0")
    if not 0 <= options.start < float("inf"):
        parser.error(f"--start is {options.start}, expected 0 or more")
    if not 0 <= options.clock <= 10_000:
        parser.error(f"--clock is {options.clock}, expected at most 10000")
    if options.clock and options.restamp:
        parser.error("--clock tells the recording's time, --restamp moves it to the present: give one of them")
    return options


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv if arguments is None else ["oxygen-play", *arguments]
    try:
        options = _options(arguments)
        bag = open_bag(options.bag)
    except (RosArgumentsError, BagError) as error:
        print(f"oxygen-play: {error}", file=sys.stderr)
        return 1
    strangers = [topic for topic in options.wait if topic not in bag.topics]
    if strangers:
        print(f"oxygen-play: {bag.path} has no {', '.join(strangers)}; it has {', '.join(bag.topics)}", file=sys.stderr)
        return 1

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
    node = Node("oxygen_play")
    try:
        player = Player(node, bag, exclude=options.exclude, rate=options.rate, start=options.start,
                        restamp=options.restamp, clock=options.clock)
        patience = time.monotonic() + _PATIENCE
        while (unheard := player.unheard(options.wait)) and not stop.wait(0.05):
            if time.monotonic() > patience:
                print(f"oxygen-play: nobody listens to {', '.join(unheard)} after {_PATIENCE:g} s", file=sys.stderr)
                return 1
        print(f"playing {bag.path}: {bag.duration:.1f} s, {len(bag.topics)} topics", flush=True)
        played = 0
        while not stop.is_set() and (not options.times or played < options.times):
            player.play(stop)
            played += 1
        player.finish(_ACKNOWLEDGED)
    except BagError as error:
        print(f"oxygen-play: {error}", file=sys.stderr)
        return 1
    finally:
        node.destroy_node()
        rclpy.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
