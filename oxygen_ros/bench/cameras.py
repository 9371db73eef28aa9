"""Three raw cameras and a robot's joints, from a process of their own: what the node's cost is measured with."""

from __future__ import annotations

import argparse
import array
import itertools
import signal
import threading
import time

import numpy as np
import rclpy
from rclpy.serialization import serialize_message
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import Image, JointState

from ..embodiment.registry import robot
from ..embodiment.robot import Robot
from ..plain_cdr import restamped
from ..node import qos

HEIGHT, WIDTH, VARIETY = 480, 640, 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=30.0, help="pictures per second and camera")
    options = parser.parse_args()
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    node, aloha = rclpy.create_node("bench_cameras"), robot("aloha")
    noise = np.random.default_rng(0)
    pictures = [_picture(noise.integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)) for _ in range(VARIETY)]
    joints = [_joints(aloha, 0.4 + 0.2 * i / VARIETY) for i in range(VARIETY)]
    cameras = [node.create_publisher(Image, f"{camera.name}/image_raw", qos.SENSOR) for camera in aloha.cameras]
    states = node.create_publisher(JointState, "joint_states", qos.SENSOR)
    began = time.monotonic()
    for index in itertools.count():
        for publisher in cameras:
            publisher.publish(restamped(pictures[index % VARIETY], node.get_clock().now().nanoseconds))
        states.publish(restamped(joints[index % VARIETY], node.get_clock().now().nanoseconds))
        if ended.wait(max(0.0, began + (index + 1) / options.rate - time.monotonic())):
            break
    node.destroy_node()
    rclpy.shutdown()
    return 0


def _joints(robot: Robot, way: float) -> bytes:
    """All joints so far on the way from their lowest to their highest positions."""
    positions = array.array("d", [low + way * (high - low) for low, high in map(robot.limits.get, robot.joints)])
    return serialize_message(JointState(name=list(robot.joints), position=positions))


def _picture(pixels: np.ndarray) -> bytes:
    height, width, _ = pixels.shape
    data = array.array("B", pixels.tobytes())
    return serialize_message(Image(encoding="rgb8", height=height, width=width, step=3 * width, data=data))


if __name__ == "__main__":
    raise SystemExit(main())
