"""Messages past the executor: which of them are heard and when, by nobody else, and an end that is told."""

import ctypes
import threading
import time

import pytest
import rclpy
from rclpy.clock import Clock, ClockType
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import QoSProfile, ReliabilityPolicy
from std_msgs.msg import String

from oxygen_ros import kernels
from oxygen_ros.children import claim_domain
from oxygen_ros.node import qos, sampling
from oxygen_ros.node.reader import NotByExecutor, Reader
from oxygen_ros.node.sampling import AT_ONCE, Ahead
from oxygen_ros.node.spinner import Spinner


@pytest.fixture
def node():
    rclpy.init(domain_id=claim_domain())
    node = rclpy.create_node("reads")
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    spinner = Spinner(executor)
    yield node
    spinner.stop()
    node.destroy_node()
    rclpy.shutdown()


def subscribe(node, topic, callback):
    return node.create_subscription(String, topic, callback, qos.INSTRUCTION, raw=True, callback_group=NotByExecutor())


def at_once(next_tick_ns, gap_ns):
    return AT_ONCE


def at_ticks(next_tick_ns, gap_ns):
    return next_tick_ns


@pytest.fixture(params=["the middleware tells of messages", "nobody counts them", "rcl has another name"])
def middleware(request, monkeypatch):
    assert kernels.library()
    if request.param == "nobody counts them":
        monkeypatch.setattr(kernels, "library", lambda: None)
    elif request.param == "rcl has another name":
        monkeypatch.setattr(ctypes, "CDLL", lambda name: ctypes.cdll.LoadLibrary(f"{name}.that.is.not.here"))


def told_of(reader):
    """How many messages its one subscription was told of."""
    return reader._sampled[0]._arrivals.count


def wait_for(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def test_without_ticks_every_message_is_heard_once_in_one_thread_until_the_end(node, middleware):
    heard, threads = {"a": [], "b": []}, set()

    def hear(topic):
        return lambda sample: (heard[topic].append(sample), threads.add(threading.current_thread().name))

    subscriptions = {subscribe(node, topic, hear(topic)): at_ticks for topic in heard}
    publishers = {topic: node.create_publisher(String, topic, qos.INSTRUCTION) for topic in heard}
    assert wait_for(lambda: all(p.get_subscription_count() for p in publishers.values()))
    publishers["a"].publish(String(data="before it reads"))
    reader = Reader(subscriptions, node.context, pytest.fail)
    assert wait_for(lambda: heard["a"])
    for number in range(20):
        for topic, publisher in publishers.items():
            publisher.publish(String(data=f"{topic}{number}"))
        assert wait_for(lambda: len(heard["a"]) == number + 2 and len(heard["b"]) == number + 1)
    reader.stop()
    for publisher in publishers.values():
        publisher.publish(String(data="after the end"))
    time.sleep(0.3)
    assert (len(heard["a"]), len(heard["b"]), threads) == (21, 20, {"reader"})
    assert b"b19" in heard["b"][-1].serialized
    assert {sample.skipped for topic in heard for sample in heard[topic]} == {0}
    came = [sample.came_ns for sample in heard["b"]]
    assert came == sorted(came) and 0 < time.monotonic_ns() - came[-1] < 20e9


class Stream:
    """A topic on which somebody publishes twenty-five messages a second, each with its number."""

    def __init__(self, node, depth=1):
        self.sent, self.heard, self.at_ticks = 0, [], []
        profile = QoSProfile(depth=depth, reliability=ReliabilityPolicy.RELIABLE)
        self.subscription = node.create_subscription(
            String, "stream", self.heard.append, profile, raw=True, callback_group=NotByExecutor())
        self.publisher = node.create_publisher(String, "stream", QoSProfile(depth=100))
        self.thread = threading.Thread(target=self.run)

    def run(self):
        began = time.monotonic()
        while time.monotonic() < began + 3:
            self.publisher.publish(String(data=f"#{self.sent};"))
            self.sent += 1
            time.sleep(max(0, began + self.sent * 0.04 - time.monotonic()))

    def number(self):
        """Of the message that was heard last."""
        return int(self.heard[-1].serialized.partition(b"#")[2].partition(b";")[0]) if self.heard else -1

    def tick(self):
        self.at_ticks.append((self.sent, self.number(), len(self.heard)))


def run(node, stream, wanted, meanwhile=lambda reader: None):
    reader = Reader({stream.subscription: wanted}, node.context, pytest.fail)
    assert wait_for(stream.publisher.get_subscription_count)
    timer = node.create_timer(0.2, stream.tick, NotByExecutor(), Clock(clock_type=ClockType.STEADY_TIME))
    reader.tick_by(timer)
    stream.thread.start()
    meanwhile(reader)
    stream.thread.join()
    reader.tick_by(None)
    assert wait_for(lambda: stream.number() == stream.sent - 1)
    reader.stop()
    node.destroy_timer(timer)
    # One that comes just before the last is taken is counted with one that never comes.
    assert sum(1 + sample.skipped for sample in stream.heard) in (stream.sent - 1, stream.sent)
    # At a tick the newest is known; one may be on its way, and a busy machine be late now and then.
    assert len(stream.at_ticks) >= 10
    assert sum(number < sent - 2 for sent, number, _ in stream.at_ticks) <= len(stream.at_ticks) / 5


def test_between_ticks_only_what_will_be_the_newest_at_the_next_one_is_taken(node):
    stream = Stream(node)
    run(node, stream, Ahead(lambda: False))
    assert len(stream.heard) < 0.6 * stream.sent
    # And that when it comes: at most ticks nothing is left to take.
    gaps = [after - before for (_, _, before), (_, _, after) in zip(stream.at_ticks, stream.at_ticks[1:])]
    assert sum(gaps) / len(gaps) < 2.5


def test_what_is_wanted_at_ticks_alone_is_taken_then_and_when_somebody_looks(node):
    stream, looks = Stream(node), []

    def look(reader):
        for number in range(20):
            time.sleep(0.1)
            sent = stream.sent
            reader.look(stream.subscription if number % 2 else None)
            looks.append((sent, stream.number()))

    run(node, stream, at_ticks, look)
    assert sum(number < sent - 2 for sent, number in looks) <= len(looks) / 5
    assert len(stream.heard) <= len(stream.at_ticks) + len(looks) + 3


def test_what_is_always_wanted_at_once_is_all_taken(node):
    stream = Stream(node)
    run(node, stream, at_once)
    assert len(stream.heard) > 0.8 * stream.sent  # a queue of one: a busy machine may be late


def test_a_longer_queue_is_emptied_at_each_tick_and_nothing_skipped(node):
    stream = Stream(node, depth=20)
    run(node, stream, at_ticks)
    assert [sample.skipped for sample in stream.heard] == [0] * stream.sent


def test_what_comes_just_before_another_is_taken_is_counted_with_the_next(node, monkeypatch):
    heard, take, late = [], sampling._take, threading.Event()
    subscription = node.create_subscription(
        String, "stream", heard.append, QoSProfile(depth=1), raw=True, callback_group=NotByExecutor())
    publisher = node.create_publisher(String, "stream", QoSProfile(depth=1))

    def take_late(subscription):
        if not late.is_set():
            late.set()
            publisher.publish(String(data="second, in place of the first"))
            assert wait_for(lambda: told_of(reader) == 2)
        return take(subscription)

    monkeypatch.setattr(sampling, "_take", take_late)
    reader = Reader({subscription: at_once}, node.context, pytest.fail)
    assert wait_for(publisher.get_subscription_count)
    for number, data in enumerate(("first", "third", "fourth")):
        publisher.publish(String(data=data))
        assert wait_for(lambda: len(heard) == number + 1)
        time.sleep(0.1)
    reader.stop()
    assert [sample.skipped for sample in heard] == [0, 1, 0] and b"second" in heard[0].serialized


def test_of_a_longer_queue_each_message_has_its_time(node):
    stream = Stream(node, depth=20)
    run(node, stream, at_ticks)
    came = [sample.came_ns for sample in stream.heard]
    assert came == sorted(set(came)) and len(came) == stream.sent


def test_a_middleware_that_does_not_tell_has_all_taken(node, monkeypatch):
    monkeypatch.setattr(kernels, "library", lambda: None)
    stream = Stream(node)
    run(node, stream, at_ticks)
    assert len(stream.heard) > 0.8 * stream.sent


def test_what_comes_while_the_messages_of_the_last_tick_are_heard_is_heard_too(node):
    heard, over, late = [], threading.Event(), threading.Event()
    publisher = node.create_publisher(String, "a", qos.INSTRUCTION)

    def hear(sample):
        heard.append(sample.serialized)
        if over.is_set() and not late.is_set():
            late.set()
            before = told_of(reader)
            publisher.publish(String(data="late"))
            assert wait_for(lambda: told_of(reader) > before)

    subscription = subscribe(node, "a", hear)
    reader = Reader({subscription: lambda next_tick_ns, gap_ns: next_tick_ns + 10**12}, node.context, pytest.fail)
    assert wait_for(publisher.get_subscription_count)
    timer = node.create_timer(0.05, lambda: publisher.publish(String(data="tick")), NotByExecutor(),
                              Clock(clock_type=ClockType.STEADY_TIME))
    reader.tick_by(timer)
    assert wait_for(lambda: len(heard) > 5)
    over.set()
    reader.tick_by(None)
    assert wait_for(lambda: b"late" in heard[-1])
    reader.stop()
    node.destroy_timer(timer)


def test_who_looks_when_it_has_ended_is_not_kept(node):
    reader = Reader({}, node.context, pytest.fail)
    reader.stop()
    reader.look()


def test_who_looks_finds_a_whole_queue_heard(node, middleware):
    heard, arrived = [], threading.Event()

    def hear(sample):
        time.sleep(0.002)
        heard.append(sample)

    subscription = subscribe(node, "stream", hear)
    # The same queue once more, to know when all is there.
    node.create_subscription(String, "stream", lambda message: message.data == "9" and arrived.set(), qos.INSTRUCTION)
    publisher = node.create_publisher(String, "stream", qos.INSTRUCTION)
    assert wait_for(lambda: publisher.get_subscription_count() == 2)
    for number in range(10):
        publisher.publish(String(data=f"{number}"))
    assert arrived.wait(10)
    time.sleep(0.1)
    reader = Reader({subscription: at_ticks}, node.context, pytest.fail)
    reader.look(subscription)
    count = len(heard)
    reader.stop()
    assert count == 10


def test_messages_after_the_end_find_nobody(node):
    stream = Stream(node)
    for _ in range(3):
        Reader({stream.subscription: at_ticks}, node.context, pytest.fail).stop()
    stream.thread.start()
    stream.thread.join()
    assert not stream.heard and stream.sent > 50


def test_what_a_callback_raises_is_told_and_ends_it_and_who_asks_for_ticks_then_hears_of_it(node, middleware):
    told, ended = [], threading.Event()
    subscription = subscribe(node, "a", lambda sample: 1 / 0)
    publisher = node.create_publisher(String, "a", qos.INSTRUCTION)
    reader = Reader({subscription: at_ticks}, node.context, lambda error: (told.append(error), ended.set()))
    assert wait_for(publisher.get_subscription_count)
    publisher.publish(String(data="x"))
    assert ended.wait(10)
    assert isinstance(told[0], ZeroDivisionError) and len(told) == 1
    timer = node.create_timer(100.0, lambda: None, NotByExecutor(), Clock(clock_type=ClockType.STEADY_TIME))
    with pytest.raises(RuntimeError, match="no longer heard") as refused:
        reader.tick_by(timer)
    assert refused.value.__cause__ is told[0]
    reader.tick_by(None)
    node.destroy_timer(timer)
    reader.stop()


def test_it_ticks_by_one_timer_at_a_time_until_that_is_taken_away(node):
    ticks, clock = {"slow": [], "fast": []}, Clock(clock_type=ClockType.STEADY_TIME)

    def tick_by(name, period):
        return node.create_timer(
            period, lambda: ticks[name].append(threading.current_thread().name), NotByExecutor(), clock)

    reader = Reader({}, node.context, pytest.fail)
    slow = tick_by("slow", 100.0)
    reader.tick_by(slow)
    fast = tick_by("fast", 0.01)
    reader.tick_by(fast)
    node.destroy_timer(slow)
    assert wait_for(lambda: len(ticks["fast"]) > 20)
    reader.tick_by(None)
    node.destroy_timer(fast)
    time.sleep(0.1)
    count = len(ticks["fast"])
    time.sleep(0.1)
    reader.stop()
    assert len(ticks["fast"]) == count and not ticks["slow"] and set(ticks["fast"]) == {"reader"}


def test_now_and_then_three_that_follow_one_another_are_wanted_and_all_while_all_are_needed():
    needed = []
    wanted = Ahead(lambda: bool(needed))
    assert [wanted(1000, 30) for _ in range(10)] == 2 * [970, 970, 970, 970, 910]
    needed.append("parts of a robot")
    assert {wanted(1000, 30) for _ in range(10)} == {AT_ONCE}
