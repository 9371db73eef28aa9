"""`oxygen-demo` as a newcomer runs it: separate processes, real DDS, the sample bag."""

import json
import os
import signal
import subprocess
import sys
import time
from array import array
from pathlib import Path

import pytest
from builtin_interfaces.msg import Duration, Time

from oxygen_ros.demo import action_error
from oxygen_ros.msg import ActionChunk

DEMO = [sys.executable, "-m", "oxygen_ros.demo"]
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "ROS_DOMAIN_ID"}


def demo(*arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run([*DEMO, *map(str, arguments)], env=ENVIRONMENT, capture_output=True, text=True, timeout=120)


def config(folder: Path, **changes: str) -> Path:
    """The shipped parameter file with some lines changed."""
    text = (Path(__file__).parents[1] / "config" / "aloha.yaml").read_text()
    for old, new in changes.values():
        assert text.count(old) == 1
        text = text.replace(old, new)
    file = folder / "robot.yaml"
    file.write_text(text)
    return file


def test_the_main_job(tmp_path):
    # Slower than shipped, so that a busy machine too has time left for language in each period.
    slow = config(tmp_path, rate=("control_rate: 10.0", "control_rate: 4.0"))
    done = demo("--out", tmp_path, "--times", 1, "--config", slow)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert list(summary) == [
        "frames", "chunks_received", "chunk_rate_hz", "action_rate_hz", "first_chunk_latency_s", "deadline_misses",
        "tokens_received", "tokens_per_s", "requests_completed", "stale_inputs", "weights", "action_mae",
    ]
    assert 10 <= summary["chunks_received"] <= 34
    assert abs(summary["frames"] - summary["chunks_received"]) <= 2  # stats are best effort
    assert summary["action_rate_hz"] == pytest.approx(50 * summary["chunk_rate_hz"])
    assert 2 <= summary["tokens_received"] <= 2 * 96  # sampled: either may end before its limit
    assert summary["requests_completed"] == 2
    assert 0 < summary["first_chunk_latency_s"]["p50"] <= summary["first_chunk_latency_s"]["p99"]
    assert summary["weights"] == "random"
    assert 0.05 < summary["action_mae"] < 2.0  # radians: random actions are near the robot's range, not on its path
    assert "weights are random" in done.stdout
    assert "question 101" in done.stdout and "chunks/s" in done.stdout


@pytest.mark.parametrize("numbers", [[signal.SIGINT], [signal.SIGTERM, signal.SIGINT]], ids=["Ctrl-C", "twice"])
def test_signal_ends_it_and_its_children(tmp_path, numbers):
    process = subprocess.Popen(
        [*DEMO, "--out", tmp_path], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    end = time.monotonic() + 60
    while not (tmp_path / "player.log").is_file() and time.monotonic() < end:
        time.sleep(0.05)
    for number in numbers:
        process.send_signal(number)
        time.sleep(0.2)  # two signals sent at once may arrive as one
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "chunks_received" in stdout and not (tmp_path / "summary.json").exists()
    assert "interrupted" in stderr and "Traceback" not in stderr
    assert str(tmp_path) not in subprocess.run(["ps", "-ax", "-o", "args"], capture_output=True, text=True).stdout


@pytest.mark.parametrize("arguments, said", [
    (["--bag", "nowhere.mcap"], "nowhere.mcap is not a file"),
    (["--config", "nowhere.yaml"], "nowhere.yaml"),
])
def test_what_cannot_be_run_is_one_line(tmp_path, arguments, said):
    done = demo("--out", tmp_path, *arguments)
    assert done.returncode == 1
    assert said in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_policy_that_is_missing_is_told_from_the_node(tmp_path):
    missing = config(tmp_path, policy=("package://oxygen_ros/resource/pi05_aloha_tiny", str(tmp_path / "nothing")))
    done = demo("--out", tmp_path, "--config", missing)
    assert done.returncode == 1
    assert f"{tmp_path}/nothing is not a folder" in done.stderr


def test_action_error_compares_with_the_command_of_the_moment():
    """Actions are due at start + i * step; a command holds until the next; joints are matched by name."""
    chunk = ActionChunk(
        names=["b", "a"], horizon=3, action_dim=2, step_dt=Duration(nanosec=20_000_000),
        start=Time(sec=1), data=array("f", [1.0, 10.0, 2.0, 20.0, 3.0, 30.0]),
    )
    commands = [
        (990_000_000, {"a": 10.0, "b": 1.0}),
        (1_010_000_000, {"a": 26.0, "b": 2.0}),
        # The third action is due 40 ms after the start, more than two steps after nothing: it still counts.
        (1_035_000_000, {"a": 30.0, "b": 6.0}),
    ]
    assert action_error([chunk], commands) == pytest.approx((0 + 0 + 6 + 0 + 0 + 3) / 6)
    assert action_error([chunk], [(5_000_000_000, {"a": 0.0, "b": 0.0})]) is None
    assert action_error([], commands) is None
