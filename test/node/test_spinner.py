"""An executor that goes on where others destroy what it is about to wait for, and says when nothing works any more."""

import threading

import pytest
import rclpy
from rclpy.event_handler import PublisherEventCallbacks
from rclpy.exceptions import InvalidHandle
from rclpy.executors import SingleThreadedExecutor
from rclpy.waitable import NumberOfEntities, Waitable
from std_msgs.msg import String

from oxygen_ros.children import claim_domain
from oxygen_ros.node import spinner
from oxygen_ros.node.spinner import Spinner


class WhileGathered(Waitable):
    """Is never ready, and calls back each time that an executor gathers what to wait for: after having counted it."""

    def __init__(self, node, callback) -> None:
        super().__init__(node.default_callback_group)
        self._callback = callback
        node.add_waitable(self)

    def __enter__(self):
        pass

    def __exit__(self, *error):
        pass

    def get_num_entities(self):
        self._callback()
        return NumberOfEntities()

    def add_to_wait_set(self, wait_set):
        pass

    def is_ready(self, wait_set):
        return False


@pytest.fixture
def node():
    rclpy.init(domain_id=claim_domain())
    node = rclpy.create_node("spun")
    yield node
    node.destroy_node()
    rclpy.shutdown()


def spin(node, failed) -> Spinner:
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    return Spinner(executor, failed=failed)


def test_a_publisher_destroyed_while_its_events_are_gathered_ends_nothing(node):
    publisher = node.create_publisher(
        String, "leaves", 1, event_callbacks=PublisherEventCallbacks(liveliness=lambda event: None))
    destroyed, tick, failed = [], threading.Event(), []

    def destroy():
        if not destroyed:
            destroyed.append(node.destroy_publisher(publisher))

    WhileGathered(node, destroy)
    node.create_timer(0.01, tick.set)
    spun = spin(node, lambda: failed.append(1))
    try:
        assert tick.wait(10) and destroyed == [True] and not failed
    finally:
        spun.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_where_nothing_works_any_more_it_is_told(node, monkeypatch):
    monkeypatch.setattr(spinner, "_PATIENCE", 0.2)
    failed = threading.Event()

    def broken(wait_set):
        raise InvalidHandle("destruction was requested")

    WhileGathered(node, lambda: None).add_to_wait_set = broken
    spun = spin(node, failed.set)
    try:
        assert failed.wait(10)
    finally:
        spun.stop()
