"""The tests of the node speak on this machine only."""

import os

import pytest
import rclpy
from rclpy.context import Context

os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"


@pytest.fixture(scope="session", autouse=True)
def logging_stays():
    """rcl ends logging to /rosout, for good, when a process's last context ends: one stays to the end."""
    context = Context()
    rclpy.init(context=context)
    yield
    context.shutdown()
