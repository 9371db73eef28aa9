"""The real launch and ros2cli, wherever they are, on a DDS domain of their own.

They are part of a ROS 2 installation and on no package registry. Without one, name the folders that hold launch,
launch_ros and ros2cli (colon-separated, as for PYTHONPATH) in OXYGEN_LAUNCH_PATH.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import rclpy
from lifecycle_msgs.srv import GetState
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor

ROOT = Path(__file__).resolve().parents[2]
LAUNCH_PATH = [folder for folder in os.environ.get("OXYGEN_LAUNCH_PATH", "").split(":") if folder]
LAUNCHER = """
import sys
from launch import LaunchService
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
arguments = [argument.split(":=") for argument in sys.argv[2:]]
service = LaunchService()
service.include_launch_description(
    IncludeLaunchDescription(PythonLaunchDescriptionSource(sys.argv[1]), launch_arguments=arguments)
)
sys.exit(service.run())
"""

needs_launch = pytest.mark.skipif(
    not LAUNCH_PATH and importlib.util.find_spec("launch_ros") is None,
    reason="launch_ros is not installed (it comes with ROS 2, or from folders named in OXYGEN_LAUNCH_PATH)",
)


def environment(domain: int) -> dict[str, str]:
    modules = ":".join([os.environ.get("PYTHONPATH", ""), *LAUNCH_PATH])
    # Where their output is no terminal, they would keep it back.
    return {**os.environ, "ROS_DOMAIN_ID": str(domain), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
            "PYTHONPATH": modules, "PYTHONUNBUFFERED": "1"}


class Launch:
    """A launch of one of our files, alone on a DDS domain, and a client of the node in it."""

    def __init__(self, domain: int, *arguments: str, file: str | Path = "robot.launch.py") -> None:
        self.domain, self.output = domain, ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, ROOT / "launch" / file, *arguments],
            env=environment(domain), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )
        self.reader = threading.Thread(target=self._read)
        self.reader.start()
        self.context = Context()
        rclpy.init(context=self.context, domain_id=domain)
        self.node = rclpy.create_node("launch_test", context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)

    def _read(self) -> None:
        for line in self.process.stdout:
            self.output += line

    def call(self, kind: type, service: str, request: object) -> object:
        client = self.node.create_client(kind, service)
        assert client.wait_for_service(timeout_sec=30), f"no {service}\n{self.output}"
        future = client.call_async(request)
        self.executor.spin_until_future_complete(future, timeout_sec=30)
        assert future.done(), f"no answer from {service}\n{self.output}"
        return future.result()

    def state(self, node: str) -> int:
        return self.call(GetState, f"{node}/get_state", GetState.Request()).current_state.id

    def wait_for(self, condition: Callable[[], object], seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end and self.process.poll() is None, self.output
            time.sleep(0.1)

    def end(self, seconds: float = 30) -> int:
        """The exit code, when it has ended by itself."""
        code = self.process.wait(seconds)
        self.reader.join()
        return code

    def interrupt(self) -> None:
        """Ctrl-C, which a terminal sends to all that it runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
        self.end()

    def close(self) -> None:
        self.interrupt()
        self.node.destroy_node()
        rclpy.shutdown(context=self.context)
