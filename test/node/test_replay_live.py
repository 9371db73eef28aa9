"""`oxygen-replay-live` with a node in a process of its own: what it said is recorded, and equal to offline replay."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from robot import BAG, CONFIG, node_process

from oxygen_ros.children import claim_domain
from oxygen_ros.replay.bag import open_bag

COMMAND = [sys.executable, "-m", "oxygen_ros.replay.live"]


@pytest.fixture
def config(tmp_path):
    """Slow enough for a busy machine; each tick, from --start 5.01 on, lies 10 ms from the next message; one noise."""
    changed = "control_rate: 5.0\n    denoise_steps: 2\n    seed: 3\n    fixed_noise: true"
    text = CONFIG.read_text().replace("control_rate: 10.0", changed)
    path = tmp_path / "robot.yaml"
    path.write_text(text)
    return path


@pytest.fixture
def domain():
    return claim_domain()


def environment(domain: int) -> dict:
    return {**os.environ, "ROS_DOMAIN_ID": str(domain), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}


def node_with(domain, tmp_path, config):
    return node_process(domain, tmp_path / "log", "--params-file", config, "-p", "use_sim_time:=true",
                        settings={"control_rate": 5.0, "denoise_steps": 2, "seed": 3})


def test_what_a_live_node_says_is_recorded_and_equal_to_offline(domain, tmp_path, config):
    node = node_with(domain, tmp_path, config)
    try:
        done = subprocess.run([*COMMAND, BAG, "--start", "5.01", "--rate", "0.5", "--config", config, "--out",
                               tmp_path / "out", "--expect-equal", "1e-5"],
                              env=environment(domain), capture_output=True, text=True, timeout=120)
    finally:
        node.close()
    assert done.returncode == 0, done.stdout + done.stderr + node.log
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    (bag,) = report["bags"]
    assert list(bag["sides"]) == ["oxygen", "live"] and report["gate"]["passed"]
    assert bag["difference"]["frames"] >= 10 and bag["difference"]["max"] <= 1e-5
    assert not any("noise" in note for note in bag["notes"])
    said = open_bag(tmp_path / "out" / "said.mcap")
    assert said.counts["/oxygen/action_chunk"] == bag["sides"]["live"]["timing"]["chunks"]
    assert said.counts["/oxygen/frame_stats"] >= said.counts["/oxygen/action_chunk"]
    # Its time is the recording's.
    first = open_bag(BAG).start_ns
    assert first < said.start_ns <= said.end_ns < open_bag(BAG).end_ns + 2 * 10**9


def test_noise_that_differs_is_told(domain, tmp_path, config):
    config.write_text(config.read_text().replace("fixed_noise: true", "fixed_noise: false"))
    node = node_with(domain, tmp_path, config)
    try:
        done = subprocess.run([*COMMAND, BAG, "--start", "6.51", "--config", config, "--out", tmp_path / "out"],
                              env=environment(domain), capture_output=True, text=True, timeout=120)
    finally:
        node.close()
    assert done.returncode == 0, done.stdout + done.stderr + node.log
    assert "a live node draws noise of its own" in done.stdout and "fixed_noise: true and one seed" in done.stdout


def test_ctrl_c_leaves_a_whole_recording_and_a_report(domain, tmp_path, config):
    node = node_with(domain, tmp_path, config)
    process = subprocess.Popen([*COMMAND, BAG, "--rate", "0.2", "--config", config, "--out", tmp_path / "out",
                                "--seconds", "1"], env=environment(domain), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    try:
        while "instruction 1" not in node.log:
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        node.close()
    assert process.returncode in (1, 130) and "Traceback" not in err, err
    assert (tmp_path / "out" / "said.mcap").read_bytes().endswith(b"\x89MCAP0\r\n")


def test_without_a_node_it_says_so(domain, tmp_path):
    done = subprocess.run([*COMMAND, BAG, "--node", "/nobody", "--out", tmp_path], env=environment(domain),
                          capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("oxygen-replay-live: /nobody has no service") and "is it running?" in last


@pytest.mark.parametrize("further, code, said", [
    (["--nonsense"], 2, "oxygen-replay: unrecognized arguments: --nonsense"),
    (["--config", "/nowhere.yaml"], 1, "oxygen-replay-live: /nowhere.yaml cannot be read"),
])
def test_what_the_evaluation_would_refuse_is_refused_before_anything_is_played(tmp_path, further, code, said):
    out = tmp_path / "out"
    done = subprocess.run([*COMMAND, BAG, "--out", out, *further], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (code, "") and done.stderr.startswith(said) and not out.exists()
