"""oxygen-record-sim as an operator meets it."""
from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys

import pytest
from sim_bags import ROOT, picture, positions, read

pytest.importorskip(
    "gym_aloha", reason="the simulator is not installed: make test installs it, or pip install gym-aloha")

from oxygen_ros.sim import expert, gl, record, recording, robot  # noqa: E402

try:
    gl.require()
except RuntimeError as error:
    pytest.skip(str(error), allow_module_level=True)

SHORT = ["--seconds", "0.4", "--size", "160x120"]


def content(path):
    heard, types, _ = read(path)
    return {topic: [(m.received, m.published, m.raw) for m in messages] for topic, messages in heard.items()}, types


def test_a_seed_is_a_bag(tmp_path):
    for name, seed in (("a", "7"), ("b", "7"), ("c", "8")):
        assert record.main(["--seed", seed, "--out", str(tmp_path / f"{name}.mcap"), *SHORT]) == 0
    a, b, c = (content(tmp_path / f"{name}.mcap") for name in "abc")
    assert a == b
    assert a != c
    messages, _ = a
    assert {topic: len(of) for topic, of in messages.items()} == {
        "/cam_high/image_raw/compressed": 10, "/cam_left_wrist/image_raw/compressed": 10,
        "/cam_right_wrist/image_raw/compressed": 10, "/joint_states": 20, "/joint_commands": 20, "/instruction": 1,
        "/phase": 1}
    assert sorted(os.listdir(tmp_path)) == ["a.mcap", "b.mcap", "c.mcap"]  # nothing half made is left


def test_episodes_follow_each_other_with_the_options_asked_for(tmp_path, capsys):
    out = tmp_path / "two.mcap"
    assert record.main(["--seed", "1", "--episodes", "2", "--image-rate", "10", "--out", str(out), *SHORT]) == 0
    heard, _, _ = read(out)
    stamps = [m.stamp for m in heard["/joint_states"]]
    gaps = [b - a for a, b in zip(stamps, stamps[1:])]
    assert len(stamps) == 40 and gaps.pop(19) > 10**9 and set(gaps) == {20_000_000}
    states = positions(heard["/joint_states"])
    assert (states[0] == states[20]).all() and (states[19] != states[39]).any()  # from rest again, to another cube
    assert len(heard["/instruction"]) == len(heard["/phase"]) == 2
    pictures = heard["/cam_high/image_raw/compressed"]
    assert len(pictures) == 8 and picture(pictures[0]).shape == (120, 160, 3)
    assert "episode 2 of 2, seed 2: 0 of 0.4 s, reach the cube" in capsys.readouterr().err


def clumsy_below(limit):
    """The expert, with a left gripper that stays open for seeds below the limit: the cube falls."""
    def demonstrate(seed):
        shown = expert.demonstrate(seed)
        targets = shown.targets.copy()
        if seed < limit:
            targets[:, robot.GRIPPERS[0]] = robot.finger_position(1.0)
        return dataclasses.replace(shown, targets=targets)
    return demonstrate


def test_a_failed_demonstration_is_refused_with_a_word_and_the_next_seed_taken():
    said = []
    seed, shown = next(recording.successful(3, said.append, clumsy_below(5)))
    assert seed == 5 and (shown.targets == expert.demonstrate(5).targets).all()
    assert [line.split(":")[0] for line in said] == ["seed 3", "seed 4"] and all("refused" in line for line in said)


def test_an_expert_that_always_fails_is_given_up():
    with pytest.raises(RuntimeError, match="ten seeds in a row, 0 to 9"):
        next(recording.successful(0, lambda line: None, clumsy_below(99)))


def test_ctrl_c_ends_cleanly_with_what_there_is(tmp_path):
    out = tmp_path / "cut.mcap"
    running = subprocess.Popen(
        [sys.executable, "-m", "oxygen_ros.sim.record", "--out", str(out), "--size", "160x120", "--episodes", "99"],
        cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        while "1 of 8 s" not in running.stderr.readline():
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=10)
    finally:
        running.kill()
    assert running.returncode == 130
    assert "cut short by Ctrl-C" in said and "Traceback" not in said
    heard, _, _ = read(out)
    assert 50 <= len(heard["/joint_states"]) < 400


def test_an_output_that_cannot_be_written_is_one_line(tmp_path, capsys):
    assert record.main(["--out", str(tmp_path / "nowhere" / "a.mcap"), *SHORT]) == 1
    said = capsys.readouterr().err.strip()
    assert said.startswith("oxygen-record-sim: ") and "nowhere" in said and "\n" not in said


@pytest.mark.parametrize("wrong, named", [
    (["--seed", "-1"], "--seed"), (["--episodes", "0"], "--episodes"), (["--seconds", "0"], "--seconds"),
    (["--size", "big"], "--size"), (["--image-rate", "30"], "--image-rate"),
    (["--jpeg-quality", "0"], "--jpeg-quality"), (["--seconds", "nan"], "--seconds")])
def test_wrong_arguments_are_named(tmp_path, capsys, wrong, named):
    with pytest.raises(SystemExit) as ended:
        record.main(["--out", str(tmp_path / "a.mcap"), *wrong])
    assert ended.value.code == 2 and named in capsys.readouterr().err
    assert not os.listdir(tmp_path)
