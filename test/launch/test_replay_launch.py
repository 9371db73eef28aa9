"""replay.launch.py under the real launch: node, player, recorder, and the report of what came out."""

import json
import re

from launching import ROOT, needs_launch

pytestmark = needs_launch


def start(launch, tmp_path, *arguments):
    params = tmp_path / "params.yaml"
    aloha = (ROOT / "config" / "aloha.yaml").read_text()
    changed = "control_rate: 5.0\n    denoise_steps: 2\n    seed: 3\n    fixed_noise: true"
    params.write_text(re.sub(r"control_rate: .*", changed, aloha))
    folders = (f"params_file:={params}", f"out:={tmp_path}/out")
    return launch(*folders, *arguments, file="replay.launch.py")


def test_a_bag_is_played_recorded_and_evaluated(launch, tmp_path):
    played = start(launch, tmp_path, f"bag:={ROOT}/resource/aloha_transfer_cube.mcap", "start:=5.01")
    assert played.end(120) == 0, played.output
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    (bag,) = report["bags"]
    assert set(bag["sides"]) == {"oxygen", "live"}
    assert bag["difference"]["frames"] >= 5 and bag["difference"]["max"] <= 1e-5
    assert (tmp_path / "out" / "said.mcap").is_file() and "process has finished cleanly" in played.output


def test_a_bag_that_cannot_be_read_ends_the_launch_with_its_line(launch, tmp_path):
    played = start(launch, tmp_path, "bag:=/nowhere.mcap")
    assert played.end(60) == 1
    assert "/nowhere.mcap is not a file or folder" in played.output
