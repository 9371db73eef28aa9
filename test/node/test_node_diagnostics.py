"""What /diagnostics holds: rates and counts, time against the period, memory, identity; levels that mean something."""

import hashlib
import itertools
import time

import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from robot import CAMERAS, POLICY, InProcess, Robot, stamped

from oxygen_ros.children import claim_domain
from oxygen_ros.msg import Instruction

WARN, OK = DiagnosticStatus.WARN, DiagnosticStatus.OK
HIGH = "/cam_high/image_raw/compressed"
SETTINGS = {"camera.cam_right_wrist.optional": True, "camera.cam_high.frozen_after": 6, "camera_skew": 0.3}


@pytest.fixture(scope="module")
def made():
    domain = claim_domain()
    robot, node = Robot(domain, "/told"), InProcess(domain, "told", SETTINGS)
    robot.bring_up()
    yield robot, node
    robot.close()
    node.close()


@pytest.fixture
def robot(made):
    robot, node = made
    robot.reset()
    with robot.running():
        robot.wait_for_chunks(2)
        node.node.session._throttle._said.clear()
        robot.heard.diagnostics.clear()
        yield robot


def values(robot: Robot, part: str) -> dict[str, str]:
    """Of the next two reports' second: rates need an interval."""
    robot.heard.diagnostics.clear()

    def found():
        return [s for array in list(robot.heard.diagnostics) for s in array.status if s.name == f"/told: {part}"][1:]

    robot.wait_for(found, "two reports")
    return {pair.key: pair.value for pair in found()[0].values}


def test_inputs_have_rates_ages_and_counts(robot):
    told = values(robot, "inputs")
    for name in CAMERAS:
        topic = f"/{name}/image_raw/compressed"
        assert 10 < float(told[f"{topic} rate (Hz)"]) < 30  # sent at 25 Hz
        assert float(told[f"{topic} age (s)"]) < 1.0
        assert int(told[f"{topic} received"]) > 0 and told[f"{topic} refused"] == "0"


def test_the_engine_tells_what_it_runs_and_how_it_is(robot):
    told = values(robot, "engine")
    assert told["weights sha256"] == hashlib.sha256((POLICY / "model.safetensors").read_bytes()).hexdigest()
    assert told["period (s)"] == "0.2000" and 0 < float(told["frame (s)"]) < 1.0
    assert told["KV slots used"].endswith("of 8") and told["last error"] == "none"
    assert 50 < int(told["process memory (MiB)"]) < 10_000
    assert told["commands"] == "published" and told["weights"] == "random"
    # Weights that nobody trained are worth a warning for as long as they are there.
    assert robot.heard.reported("engine", "active", "the weights are random numbers", level=WARN)


def test_missed_ticks_are_a_warning_while_they_grow(robot, made, monkeypatch):
    _, node = made
    frame = node.engine.frame

    def slow(*arguments, **options):
        time.sleep(0.45)
        return frame(*arguments, **options)

    monkeypatch.setattr(node.engine, "frame", slow)
    robot.wait_for(lambda: robot.heard.reported("engine", "control ticks missed", "the period is 0.200 s", level=WARN),
                   "a warning")
    monkeypatch.undo()
    misses = lambda: node.node.session.loop.misses  # noqa: E731
    before = None
    for _ in range(20):  # a busy machine may miss one
        robot.heard.diagnostics.clear()
        before = misses()
        robot.wait_for(lambda: len(robot.heard.diagnostics) >= 2, "reports")
        if misses() == before:
            break
    assert not any("missed" in s.message for s in robot.heard.diagnostics[-1].status)


def test_a_frozen_camera_is_told_from_one_that_stands_still(robot, made):
    _, node = made
    camera = node.node.session.inputs.cameras["cam_high"]
    robot.instead = {"cam_high": lambda stamp: stamped(robot.messages["cam_high"][3], stamp)}
    robot.wait_for(lambda: robot.heard.said(f"no chunk: {HIGH}: frozen: its last", "frozen_after is 6"), "a line")
    robot.wait_for(lambda: robot.heard.reported("inputs", HIGH, "frozen", level=WARN), "a status")
    count, chunks = camera.unusable, len(robot.heard.chunks)
    robot.wait_for(lambda: camera.unusable > count + 3, "a count")
    assert len(robot.heard.chunks) == chunks
    robot.instead = {}
    robot.wait_for_chunks(2)


def test_pictures_too_far_apart_are_no_frame(robot):
    robot.offset_ns = {"cam_left_wrist": -400_000_000}
    robot.wait_for(lambda: robot.heard.said("no chunk: /cam_left_wrist/image_raw/compressed: stamped 0.",
                                            "camera_skew is 0.3 s"), "a line")
    robot.offset_ns = {}
    robot.wait_for_chunks(2)


def test_an_optional_camera_is_done_without(robot):
    before = robot.heard.stats[-1].masked_frames
    robot.off = {"cam_right_wrist"}
    robot.wait_for(lambda: robot.heard.stats[-1].masked_frames > before + 3, "frames without it")
    count = len(robot.heard.chunks)
    robot.wait_for_chunks(3, since=count)
    robot.wait_for(lambda: robot.heard.reported("inputs", "left out: /cam_right_wrist", level=WARN), "a status")
    assert not robot.heard.said("no chunk")
    robot.tell("why?", Instruction.ASK, id=88, max_tokens=5)
    robot.wait_for(lambda: robot.heard.last(88), "an answer from two cameras")
    robot.off = set()
    robot.wait_for(lambda: robot.heard.diagnostics and robot.heard.diagnostics[-1].status[0].level == OK, "all used")


def test_what_fails_every_other_frame_is_in_each_report(robot):
    """Though the frame just before the report was fine: two clocks in one topic."""
    topic, ahead = "/cam_left_wrist/image_raw/compressed", itertools.cycle((0, 0, 0, 0, 3600 * 10**9, 3600 * 10**9, 0))
    robot.instead = {"cam_left_wrist": lambda stamp: stamped(robot.messages["cam_left_wrist"][0], stamp + next(ahead))}
    robot.wait_for(lambda: robot.heard.said("no chunk", topic, "after this node's clock"), "a line")
    robot.heard.diagnostics.clear()
    chunks = len(robot.heard.chunks)
    robot.wait_for(lambda: len(robot.heard.diagnostics) >= 8, "reports")
    assert len(robot.heard.chunks) > chunks + 5
    warned = [any(s.level == WARN and topic in s.message for s in a.status) for a in robot.heard.diagnostics]
    assert warned.count(True) >= 7, warned
    robot.instead = {}
    robot.wait_for(lambda: robot.heard.reported("inputs", "all inputs are used", level=OK, last=1), "a good status")


def test_pictures_that_come_late_are_counted(robot, made):
    _, node = made
    camera = node.node.session.inputs.cameras["cam_left_wrist"]
    late = camera.late
    robot.instead = {"cam_left_wrist": lambda stamp: stamped(
        robot.messages["cam_left_wrist"][0], stamp - (200_000_000 if stamp // 40_000_000 % 2 else 0))}
    robot.wait_for(lambda: camera.late > late + 5, "a count")
    chunks = robot.wait_for_chunks(3)
    assert all(chunk.header.stamp for chunk in chunks)
    assert int(values(robot, "inputs")["/cam_left_wrist/image_raw/compressed overtaken"]) > late
