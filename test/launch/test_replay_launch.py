"""replay.launch.py under the real launch: node, player, recorder, and the report of what came out."""

import json
import os
import re

from test_robot_launch import ROOT, Launch, pytestmark  # noqa: F401: without launch_ros these are left out too


def start(tmp_path, *arguments):
    params = tmp_path / "params.yaml"
    aloha = (ROOT / "config" / "aloha.yaml").read_text()
    changed = "control_rate: 5.0\n    denoise_steps: 2\n    seed: 3\n    fixed_noise: true"
    params.write_text(re.sub(r"control_rate: .*", changed, aloha))
    folders = (f"params_file:={params}", f"out:={tmp_path}/out")
    return Launch(100 + os.getpid() % 100, *folders, *arguments, file="replay.launch.py")


def test_a_bag_is_played_recorded_and_evaluated(tmp_path):
    launch = start(tmp_path, f"bag:={ROOT}/resource/aloha_transfer_cube.mcap", "start:=5.01")
    try:
        assert launch.process.wait(timeout=120) == 0, launch.output
    finally:
        launch.close()
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    (bag,) = report["bags"]
    assert set(bag["sides"]) == {"oxygen", "live"}
    assert bag["difference"]["frames"] >= 5 and bag["difference"]["max"] <= 1e-5
    assert (tmp_path / "out" / "said.mcap").is_file() and "process has finished cleanly" in launch.output


def test_a_bag_that_cannot_be_read_ends_the_launch_with_its_line(tmp_path):
    launch = start(tmp_path, "bag:=/nowhere.mcap")
    try:
        assert launch.process.wait(timeout=60) == 1
    finally:
        launch.close()
    assert "/nowhere.mcap is not a file or folder" in launch.output
