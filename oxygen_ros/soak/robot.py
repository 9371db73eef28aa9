"""A robot whose sensors can be made to fail: the sample recording, sent live for as long as one likes."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping

from rclpy.node import Node

from ..node import qos
from ..plain_cdr import restamped
from ..replay.bag import Bag
from .faults import Fault, Tamper

RATE = 20.0  # messages per second and topic
_KEPT = 60  # messages of a topic that are sent in turn


class Robot:
    """Publishes each of `topics`, name -> type, at RATE from a thread of its own, between `start` and `stop`.

    bag: the messages that are well, which `suffer` spoils and `recover` leaves alone again.
    """

    def __init__(self, node: Node, bag: Bag, topics: Mapping[str, type]) -> None:
        self._node = node
        self._publishers = {topic: node.create_publisher(kind, topic, qos.SENSOR) for topic, kind in topics.items()}
        self._good = {topic: [m.data for m in itertools.islice(bag.messages([topic]), _KEPT)] for topic in topics}
        self._tampered: dict[str, Tamper] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="robot", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():  # a node that cannot be configured never meets the robot
            self._thread.join()

    def suffer(self, topic: str, fault: Fault) -> None:
        self._tampered[topic] = fault.make(self._good[topic])

    def recover(self, topic: str) -> None:
        self._tampered.pop(topic, None)

    def _run(self) -> None:
        began = time.monotonic()
        for index in itertools.count():
            for topic, publisher in self._publishers.items():
                now = self._node.get_clock().now().nanoseconds
                tamper, good = self._tampered.get(topic), self._good[topic]
                for message in tamper(index, now) if tamper else [restamped(good[index % len(good)], now)]:
                    publisher.publish(message)
            if self._ended.wait(max(0.0, began + (index + 1) / RATE - time.monotonic())):
                return
