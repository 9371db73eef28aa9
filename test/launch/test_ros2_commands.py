"""The real `ros2` against the running node: what README and launch files say of it, typed as an operator types it."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
from launching import ROOT, environment, needs_launch

pytestmark = needs_launch
PATIENCE = 60.0  # s
ROS2 = "import sys; sys.argv[0] = 'ros2'; from ros2cli.cli import main; sys.exit(main())"
TABLE_ROW = re.compile(r"\| `(~?/?[a-z_/]+)` \| `([A-Za-z_]+)/([A-Za-z]+)` \|")


class Operator:
    """A shell on the robot's DDS domain. No daemon is started that would outlive the test."""

    def __init__(self, domain: int) -> None:
        self._domain = domain

    def start(self, *words: str) -> subprocess.Popen:
        return subprocess.Popen([sys.executable, "-c", ROS2, *words], env=environment(self._domain),
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def ros2(self, *words: str) -> str:
        """What a command that ends prints."""
        return self.start(*words).communicate(timeout=PATIENCE)[0].strip()

    def hear(self, topic: str, kind: str, *options: str) -> subprocess.Popen:
        """An echo; with the type, which it does not always find out in time."""
        return self.start("topic", "echo", topic, kind, *options, "--no-daemon")

    def ask(self, *words: str, until: Callable[[str], object] = bool) -> str:
        """The same for a question about the graph. Whoever has just come may need seconds to see all of it: it is asked
        again until the answer is as it should be."""
        end = time.monotonic() + PATIENCE
        while True:
            answer = self.ros2(*words, "--no-daemon", "--spin-time", "1")
            if until(answer) and "not found" not in answer:
                return answer
            assert time.monotonic() < end, f"ros2 {' '.join(words)}: {answer}"


@pytest.fixture
def operator(domain):
    return Operator(domain)


def test_lifecycle_by_hand(launch, operator):
    launch("namespace:=left", "autostart:=false")
    assert operator.ask("lifecycle", "nodes") == "/left/oxygen"
    assert operator.ask("lifecycle", "get", "/left/oxygen") == "unconfigured [1]"
    for transition, state, further in (
        ("configure", "inactive [2]", {"activate", "cleanup", "shutdown"}),
        ("activate", "active [3]", {"deactivate", "shutdown"}),
        ("deactivate", "inactive [2]", {"activate", "cleanup", "shutdown"}),
        ("cleanup", "unconfigured [1]", {"configure", "shutdown"}),
        ("shutdown", "finalized [4]", set()),
    ):
        assert operator.ask("lifecycle", "set", "/left/oxygen", transition) == "Transitioning successful"
        assert operator.ask("lifecycle", "get", "/left/oxygen") == state
        offered = operator.ask("lifecycle", "list", "/left/oxygen", until=lambda answer: True)
        assert set(re.findall(r"^- (\w+)", offered, re.M)) == further
    assert "Unknown transition" in operator.ask("lifecycle", "set", "/left/oxygen", "configure")


def test_parameters(launch, operator, tmp_path):
    robot = launch()
    robot.wait_for(lambda: "configured: aloha" in robot.output)
    node = "/oxygen"
    assert operator.ask("param", "get", node, "control_rate") == "Double value is: 10.0"
    assert operator.ask("param", "set", node, "control_rate", "5.0") == "Set parameter successful"
    for name, value, reason in (
        ("control_rate", "-5.0", "control_rate out of range Min: 0.01, Max: 1000.0, value: -5.0"),
        ("control_rate", "fast", "parameter control_rate is 'fast', expected a number"),
        ("denoise_steps", "3", "parameter denoise_steps cannot change while the node is configured; clean up first"),
    ):
        assert reason in operator.ask("param", "set", node, name, value)
    told = operator.ask("param", "describe", node, "control_rate")
    assert "Frames per second" in told and "at least 0.01; at most 1000" in told
    dumped = operator.ask("param", "dump", node)
    robot.interrupt()

    again = tmp_path / "dumped.yaml"
    again.write_text(dumped)
    robot = launch(f"params_file:={again}")
    robot.wait_for(lambda: "at 5 Hz" in robot.output)  # as it was


def test_topics_are_the_readme_s_and_its_commands_work(launch, operator):
    readme = (ROOT / "README.md").read_text()
    params = "config/aloha.yaml"
    robot = launch(f"params_file:={ROOT / params}")
    robot.wait_for(lambda: "configured: aloha" in robot.output)
    expected = {(f"/oxygen{name[1:]}" if name[0] == "~" else f"/{name.lstrip('/')}", f"{package}/msg/{kind}")
                for name, package, kind in TABLE_ROW.findall(readme)}
    expected -= {("/oxygen/joint_trajectory", "trajectory_msgs/msg/JointTrajectory")}  # a parameter asks for it
    assert len(expected) == 9
    listed = re.compile(r"^(\S+) \[(\S+)\]$", re.M)
    operator.ask("topic", "list", "-t", until=lambda answer: expected <= set(listed.findall(answer)))

    bag = str(ROOT / "resource/aloha_transfer_cube.mcap")
    play = subprocess.Popen([sys.executable, "-m", "oxygen_ros.replay.player", bag, "--restamp", "--times", "0"],
                            env=environment(robot.domain), stdout=subprocess.DEVNULL)
    try:
        # Without it an echo that finds the publisher late asks for no message of before.
        latched = re.search(r"^ros2 topic echo /oxygen/utterance (--\S+ \S+)", readme, re.M)[1].split()
        said = operator.hear("/oxygen/utterance", "std_msgs/msg/String", "--once", *latched)
        chunk = operator.hear("/oxygen/action_chunk", "oxygen_ros/msg/ActionChunk", "--once", "--field", "names")
        act, ask, stop = re.findall(r"^ros2 topic pub --once (\S+) (\S+) \"(.*)\" +# [A-Z]{3,}", readme, re.M)
        for words in (act, ask):
            assert "publishing #1" in operator.ros2("topic", "pub", "--once", *words)
        assert "left_waist" in chunk.communicate(timeout=PATIENCE)[0]
        assert said.communicate(timeout=PATIENCE)[0].startswith("data: ")
        rate = operator.start("topic", "hz", "/oxygen/action_chunk", "--window", "20")
        timer = threading.Timer(30, rate.kill)
        timer.start()
        assert any(line.startswith("average rate") for line in rate.stdout)
        rate.kill()
        timer.cancel()
        rate.communicate()
        assert "publishing #1" in operator.ros2("topic", "pub", "--once", *stop)
        robot.wait_for(lambda: "stopped; an ACT" in robot.output)
    finally:
        play.terminate()
        play.wait(timeout=PATIENCE)


def test_two_arms_side_by_side(launch, operator):
    arms = [launch(f"namespace:={name}") for name in ("left", "right")]
    for arm in arms:
        arm.wait_for(lambda arm=arm: "configured: aloha" in arm.output)
    operator.ask("lifecycle", "nodes", until=lambda answer: answer.split() == ["/left/oxygen", "/right/oxygen"])
    for name in ("left", "right"):
        operator.ask("lifecycle", "get", f"/{name}/oxygen", until=lambda answer: answer == "active [3]")
    assert operator.ask("lifecycle", "set", "/left/oxygen", "deactivate") == "Transitioning successful"
    assert operator.ask("lifecycle", "get", "/right/oxygen") == "active [3]"
    arms[0].interrupt()
    assert "process has finished cleanly" in arms[0].output
    assert operator.ask("lifecycle", "get", "/right/oxygen") == "active [3]"
