"""robot.launch.py under the real launch: the node comes up active, in its namespace, with its parameters.

launch and launch_ros are part of a ROS 2 installation and on no package registry. Without one, name the
folders that hold them (colon-separated, as for PYTHONPATH) in OXYGEN_LAUNCH_PATH.
"""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import rclpy
from lifecycle_msgs.msg import State
from lifecycle_msgs.srv import GetState
from rcl_interfaces.srv import GetParameters
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

pytestmark = pytest.mark.skipif(
    not LAUNCH_PATH and importlib.util.find_spec("launch_ros") is None,
    reason="launch_ros is not installed (it comes with ROS 2, or from folders named in OXYGEN_LAUNCH_PATH)",
)


class Launch:
    """A launch of one of our files, alone on a DDS domain, and a client of the node in it."""

    def __init__(self, domain: int, *arguments: str, file: str = "robot.launch.py") -> None:
        self.output = ""
        environment = {**os.environ, "ROS_DOMAIN_ID": str(domain), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
        environment["PYTHONPATH"] = ":".join([os.environ.get("PYTHONPATH", ""), *LAUNCH_PATH])
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, ROOT / "launch" / file, *arguments],
            **{"env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True},
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

    def wait_for(self, condition, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end and self.process.poll() is None, self.output
            time.sleep(0.1)

    def interrupt(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=30)
        self.reader.join()

    def close(self) -> None:
        self.interrupt()
        self.node.destroy_node()
        rclpy.shutdown(context=self.context)


@pytest.fixture
def launch():
    launches = []

    def start(*arguments: str) -> Launch:
        launches.append(Launch(100 + os.getpid() % 100, *arguments))
        return launches[-1]

    yield start
    for each in launches:
        each.close()


def test_it_is_active_where_and_as_the_arguments_say(launch):
    robot = launch("namespace:=left", "name:=policy", "use_sim_time:=true")
    robot.wait_for(lambda: robot.state("/left/policy") == State.PRIMARY_STATE_ACTIVE)
    request = GetParameters.Request(names=["use_sim_time", "robot"])
    values = robot.call(GetParameters, "/left/policy/get_parameters", request).values
    assert values[0].bool_value is True
    assert values[1].string_value == "aloha"  # of config/aloha.yaml, the default params_file
    robot.interrupt()
    assert "process has finished cleanly" in robot.output


def test_without_autostart_it_waits_unconfigured(launch):
    robot = launch("autostart:=false")
    assert robot.state("/oxygen") == State.PRIMARY_STATE_UNCONFIGURED
    time.sleep(1)
    assert robot.state("/oxygen") == State.PRIMARY_STATE_UNCONFIGURED


def test_a_failed_configuration_is_an_error_in_the_output(launch, tmp_path):
    good = (ROOT / "config" / "aloha.yaml").read_text()
    params = tmp_path / "params.yaml"
    params.write_text(re.sub(r"policy: .*", "policy: /no/such/policy", good))
    robot = launch(f"params_file:={params}")
    robot.wait_for(lambda: "Failed to make transition 'TRANSITION_CONFIGURE'" in robot.output)
    robot.wait_for(lambda: "/no/such/policy" in robot.output)
    assert robot.state("/oxygen") == State.PRIMARY_STATE_UNCONFIGURED


def test_a_missing_params_file_ends_the_launch(launch, tmp_path):
    robot = launch(f"params_file:={tmp_path}/nothing.yaml")
    assert robot.process.wait(timeout=30) == 1
    robot.reader.join()
    assert f"params_file: there is no file '{tmp_path}/nothing.yaml'" in robot.output


def test_a_node_that_cannot_start_ends_the_launch(launch, tmp_path):
    params = tmp_path / "params.yaml"
    params.write_text("/**: [")
    robot = launch(f"params_file:={params}")
    assert robot.process.wait(timeout=30) == 1
    robot.reader.join()
    assert "oxygen-node ended before it was configured" in robot.output
