"""Messages past the executor: all of them heard, by nobody else, and an end that is told."""

import threading
import time

import pytest
import rclpy
from rclpy.clock import Clock, ClockType
from rclpy.executors import SingleThreadedExecutor
from std_msgs.msg import String

from oxygen_ros.children import claim_domain
from oxygen_ros.node import qos
from oxygen_ros.node.reader import NotByExecutor, Reader
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


def wait_for(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def test_every_message_is_heard_once_in_one_thread_until_the_end(node):
    heard, threads = {"a": [], "b": []}, set()

    def hear(topic):
        return lambda data: (heard[topic].append(data), threads.add(threading.current_thread().name))

    subscriptions = [subscribe(node, topic, hear(topic)) for topic in heard]
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
    assert b"b19" in heard["b"][-1]


def test_what_a_callback_raises_is_told_and_ends_it_and_who_asks_for_ticks_then_hears_of_it(node):
    told, ended = [], threading.Event()
    subscription = subscribe(node, "a", lambda data: 1 / 0)
    publisher = node.create_publisher(String, "a", qos.INSTRUCTION)
    reader = Reader([subscription], node.context, lambda error: (told.append(error), ended.set()))
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

    reader = Reader([], node.context, pytest.fail)
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
