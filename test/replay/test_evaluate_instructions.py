"""What is obeyed and answered in an evaluation (F56)."""

from dataclasses import replace

import numpy as np
import pytest
from bags import BAG, beginning, write_mcap
from evaluating import SECONDS, TYPES, instruction, report, start, without

from oxygen_ros.replay.bag import BagError, Recorded
from oxygen_ros.replay.rollout import Part
from oxygen_ros.replay.sources import Names


def test_the_newest_instruction_before_the_start_is_obeyed_and_said(tmp_path, side):
    told = [instruction("first task", start() + 50_000_000), instruction("second task", start() + 150_000_000),
            instruction("a question?", start() + 160_000_000, task=1), instruction("third task", start() + 450_000_000)]
    messages = sorted(without("/instruction") + told, key=lambda m: m.received_ns)
    result = report(write_mcap(tmp_path / "x.mcap", messages, TYPES), side, Part(start=0.2))
    found = result["sides"]["oxygen"]
    assert [i["text"] for i in found["instructions"].values()] == ["second task", "third task"]
    assert found["language"]["requests"] == 0  # what was asked before the start is not asked again
    assert any("before the start: second task" in note for note in found["notes"])
    assert [f["instruction_id"] for f in found["frames"]] == [2, 2, 3]


def test_the_instruction_of_the_command_line_wins(side):
    found = report(BAG, side, Part(start=0.2, seconds=0.3, instruction="fold the towel"))["sides"]["oxygen"]
    assert [i["text"] for i in found["instructions"].values()] == ["fold the towel"]
    assert "instruction of the command line: fold the towel" in found["notes"]
    assert len(found["frames"]) == 3 and all(f["chunk"] for f in found["frames"])


def test_an_instruction_as_a_string(tmp_path, side):
    told = instruction("wave", start() + 1, "std_msgs/msg/String", "/task")
    messages = sorted([*without("/instruction"), told], key=lambda m: m.received_ns)
    path = write_mcap(tmp_path / "x.mcap", messages, {**TYPES, "/task": "std_msgs/msg/String"})
    found = report(path, side, names=Names(instruction="task"))["sides"]["oxygen"]
    assert [i["text"] for i in found["instructions"].values()] == ["wave"]


def test_without_any_instruction_it_is_refused_before_inference(tmp_path, side):
    path = write_mcap(tmp_path / "x.mcap", without("/instruction"), TYPES)
    with pytest.raises(BagError, match="has no instruction.*give one with --instruction TEXT"):
        report(path, side)


def test_answers_beside_recorded_ones(tmp_path, side):
    """What it said once, recorded: the second time it says exactly that."""
    asked = [instruction("where is the cube?", start() + 120_000_000, task=1),
             instruction("and the arm?", start() + 130_000_000, task=1)]
    messages = sorted(beginning(SECONDS) + asked, key=lambda m: m.received_ns)
    language = report(write_mcap(tmp_path / "x.mcap", messages), side)["sides"]["oxygen"]["language"]
    assert language["requests"] == language["finished"] == 2 and language["tokens"] == 8
    texts = [a["text"] for a in language["answers"]]
    assert language["against_recorded"] is None and language["time_to_first_token_s"]["max"] < 1

    said_once = [instruction(texts[0], start() + 500_000_000, "std_msgs/msg/String", "/said"),
                 instruction(texts[1] + "!", start() + 510_000_000, "std_msgs/msg/String", "/said")]
    again = sorted(messages + said_once, key=lambda m: m.received_ns)
    path = write_mcap(tmp_path / "y.mcap", again, {**TYPES, "/said": "std_msgs/msg/String"})
    found = report(path, side, names=Names(text="/said"))["sides"]["oxygen"]["language"]
    assert [a["text"] for a in found["answers"]] == texts  # sampled, but from a seed
    assert found["against_recorded"]["exact"] == 0.5 and found["against_recorded"]["pairs"] == 2
    assert found["against_recorded"]["edit_distance"] == pytest.approx(0.5 / (len(texts[1]) + 1))


def test_what_comes_unasked_comes_by_the_time_of_the_recording(side):
    often = replace(side, settings=replace(side.settings, language=replace(
        side.settings.language, memory_period=0.5, max_tokens=2)))
    found = report(BAG, often, Part(seconds=2.05))["sides"]["oxygen"]["language"]
    assert [a["task"] for a in found["answers"]] == ["remember"] * 4
    asked = [a["asked_ns"] for a in found["answers"]]
    assert np.diff(asked).tolist() == [500_000_000] * 3


def broken(data: bytes) -> Recorded:
    return Recorded("/instruction", start() + 50_000_000, data)


def not_utf8() -> Recorded:
    data = bytearray(instruction("abcdef", 0, "std_msgs/msg/String").data)
    data[8:10] = b"\x80\x81"
    return broken(bytes(data))


@pytest.mark.parametrize("told, kind, said", [
    (instruction("  ", start() + 50_000_000), "oxygen_ros/msg/Instruction", "found an empty or blank text"),
    (instruction("  ", start() + 250_000_000), "oxygen_ros/msg/Instruction", "found an empty or blank text"),
    (instruction("x", start() + 50_000_000, task=77), "oxygen_ros/msg/Instruction", "task is 77, expected one of 0, 1"),
    (not_utf8(), "std_msgs/msg/String", "found 15 bytes that do not deserialise .*utf-8"),
    (broken(instruction("abcdef", 0, "std_msgs/msg/String").data[:9]), "std_msgs/msg/String", "found 9 bytes that do"),
    (broken(b""), "std_msgs/msg/String", "found 0 bytes that do not deserialise"),
])
def test_a_refused_instruction_is_not_called_absent(tmp_path, side, told, kind, said):
    messages = sorted([*without("/instruction"), told], key=lambda m: m.received_ns)
    with pytest.raises(BagError, match=f"has no instruction that can be obeyed: /instruction: .*{said}"):
        report(write_mcap(tmp_path / "x.mcap", messages, {**TYPES, "/instruction": kind}), side)
