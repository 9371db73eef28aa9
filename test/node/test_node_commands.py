"""Commands over DDS: chunks that join, trajectories that a controller takes, a hold at once, and none in a dry run."""

import numpy as np
import pytest
from controller import Controller
from rcl_interfaces.msg import Log
from rclpy.serialization import deserialize_message
from robot import JOINTS, Robot, node_process
from sensor_msgs.msg import JointState
from trajectory_msgs.msg import JointTrajectory
from visualization_msgs.msg import MarkerArray

from oxygen_ros.children import claim_domain
from oxygen_ros.msg import ActionChunk, Instruction
from oxygen_ros.stamps import nanoseconds

STEP = 20_000_000
RTC = {"chunk_continuity": "rtc", "joint_trajectory": True, "trajectory_velocities": True}


def values(chunk) -> np.ndarray:
    return np.array(chunk.data, np.float32).reshape(chunk.horizon, chunk.action_dim)


def started(tmp_path_factory, name: str, settings: dict):
    domain = claim_domain()
    node, robot = node_process(domain, tmp_path_factory.mktemp(name) / "log", settings=settings), Robot(domain)
    return robot, node


@pytest.fixture(scope="module")
def joined(tmp_path_factory):
    robot, node = started(tmp_path_factory, "rtc", {**RTC, "fixed_noise": False})
    robot.bring_up()
    yield robot
    robot.close()
    node.close()


def test_a_chunk_begins_with_what_the_robot_executes_meanwhile(joined):
    joined.reset()
    with joined.running():
        chunks = joined.wait_for_chunks(12)
        joined.wait_for(lambda: joined.heard.stats[-1].sequence >= chunks[-1].sequence, "its stats")
    stats = {s.sequence: s for s in joined.heard.stats}
    seams = 0
    for old, new in zip(chunks, chunks[1:]):
        told = stats.get(new.sequence)
        if told is None or nanoseconds(new.start) != nanoseconds(new.header.stamp):
            continue
        steps = (nanoseconds(new.start) - nanoseconds(old.start)) / STEP + np.arange(told.committed_actions)
        expected = np.array([np.interp(steps, np.arange(50), column) for column in values(old).T]).T
        np.testing.assert_allclose(values(new)[: len(expected)], expected, atol=1e-5)
        # Inference takes a step or more, and the old rows reach at least as far as it took.
        assert told.committed_actions * STEP >= nanoseconds(new.latency)
        there = [np.interp(steps[-1] + 1, np.arange(50), column) for column in values(old).T]
        jump = np.abs(values(new)[len(expected)] - there).max()
        assert told.boundary_jump == pytest.approx(jump, abs=1e-4)
        seams += 1
    assert seams >= 5


def test_guidance_makes_the_seam_smaller(joined):
    """On random weights and fresh noise chunks are far apart; guided ones are not."""
    def jumps(kind: str) -> float:
        joined.reset()
        joined.set_parameter("chunk_continuity", kind)
        with joined.running():
            joined.wait_for_chunks(3)
            count = len(joined.heard.stats)
            joined.wait_for(lambda: len(joined.heard.stats) > count + 12, "frames")
        return float(np.median([s.boundary_jump for s in joined.heard.stats[count:] if s.denoise]))

    apart = jumps("none")
    assert jumps("rtc") < 0.5 * apart
    assert jumps("blend") < 0.5 * apart
    joined.set_parameter("chunk_continuity", "rtc")


def test_a_trajectory_controller_takes_every_one(joined):
    """At 100 Hz it goes from its command on to where each chunk is, within the one step until its next point."""
    joined.reset()
    period, taken, commanded = 0.01, [], []
    controller = None

    def receive(message: JointTrajectory) -> None:
        nonlocal controller
        controller = controller or Controller(list(message.joint_names), message.points[0].positions, period=period,
                                              interpolate_from_desired_state=True)
        controller.receive(message, joined.now())  # what it raises ends the spinning, and with it the test
        taken.append(message)

    def update() -> None:
        now = joined.now()
        if controller is not None:
            commanded.append((now, taken[-1], controller.update(now)))

    subscription = joined.node.create_subscription(JointTrajectory, "/oxygen/joint_trajectory", receive, 10)
    timer = joined.node.create_timer(period, update)
    with joined.running():
        joined.wait_for(lambda: len(taken) >= 10, "trajectories")
    joined.node.destroy_timer(timer)
    joined.node.destroy_subscription(subscription)
    at_points = 0
    for now, message, (positions, velocities) in commanded:
        due = [nanoseconds(message.header.stamp) + nanoseconds(p.time_from_start) for p in message.points]
        at, inside = now + round(period * 1e9), [p.positions for p in message.points]
        if due[0] <= at <= due[-1]:
            row = min(np.searchsorted(due, at, "right") - 1, len(due) - 2)
            near, bend = np.array(inside[row: row + 2]), np.array([p.velocities for p in message.points[row: row + 2]])
            allowed = np.abs(bend).max() * STEP / 1e9 + 1e-6  # that a cubic leaves the straight line by
            assert (positions >= near.min(0) - allowed).all() and (positions <= near.max(0) + allowed).all()
            at_points += 1
    assert at_points > 0.8 * len(commanded) > 40
    waits = [nanoseconds(m.points[0].time_from_start) + nanoseconds(m.header.stamp) for m in taken]
    assert len(taken[-1].joint_names) == 14 and (np.diff(waits) > 0).all()


def test_stop_is_answered_with_a_hold_that_obeys_it(joined):
    joined.reset()
    with joined.running():
        last = joined.wait_for_chunks(3)[-1]
        count = len(joined.heard.chunks)
        joined.tell(task=Instruction.STOP, id=4711)
        joined.wait_for(lambda: any(c.instruction_id == 4711 for c in joined.heard.chunks[count:]), "the hold")
        hold = next(c for c in joined.heard.chunks[count:] if c.instruction_id == 4711)
        after = len(joined.heard.chunks)
        joined.wait_for(lambda: joined.heard.said("stopped", level=Log.INFO), "a line")
        sequence = joined.heard.stats[-1].sequence
        joined.wait_for(lambda: joined.heard.stats[-1].sequence > sequence + 5, "frames without a task")
        assert len(joined.heard.chunks) == after  # it is the last word
        assert (values(hold) == values(hold)[0]).all() and hold.sequence > last.sequence
    with joined.running():
        joined.tell("transfer the cube")
        first = joined.wait_for_chunks()[-1]
    assert nanoseconds(first.start) == nanoseconds(first.header.stamp) + nanoseconds(first.latency)


def test_stop_of_a_robot_that_stands_still_is_answered_too(joined):
    """From its joints, or where it was last told to be when they are not heard."""
    joined.reset()
    with joined.running():
        joined.tell("transfer the cube")
        joined.wait_for_chunks(2)
        joined.still = 7
        holds = []
        for number in (4801, 4802):
            joined.tell(task=Instruction.STOP, id=number)
            joined.wait_for(lambda: any(c.instruction_id == number for c in joined.heard.chunks), "the hold")
            holds.append(next(c for c in joined.heard.chunks if c.instruction_id == number))
            ended = nanoseconds(holds[0].start) + holds[0].horizon * STEP
            joined.wait_for(lambda: joined.now() > ended + 10 * STEP, "its end")
    state = deserialize_message(joined.messages[JOINTS][7], JointState)
    places = dict(zip(state.name, state.position))
    arms = [i for i, name in enumerate(holds[1].names) if "gripper" not in name]
    expected = np.float32([places[holds[1].names[i]] for i in arms])
    assert (values(holds[1])[:, arms] == expected).all() and not (values(holds[0])[:, arms] == expected).all()
    assert len(holds[1].data) == len(holds[0].data)
    joined.wait_for(lambda: joined.now() > nanoseconds(holds[1].start) + 2 * 10**9, "joints that are too old")
    joined.tell(task=Instruction.STOP, id=4803)
    joined.wait_for(lambda: any(c.instruction_id == 4803 for c in joined.heard.chunks), "the last hold")
    assert (values(joined.heard.chunks[-1]) == values(holds[1])).all()


@pytest.mark.parametrize("kind", ["rtc", "blend"])
def test_every_activation_begins_like_the_first(joined, kind):
    """F35: warm, from standstill, and with nothing left of before that the second chunk could stumble over."""
    joined.reset()
    joined.set_parameter("chunk_continuity", kind)
    for _ in range(2):
        assert joined.lifecycle.change("deactivate") and joined.lifecycle.change("activate")
        joined.tell("transfer the cube")
        with joined.running():
            chunks = joined.wait_for_chunks(5)[:5]
        latencies = [nanoseconds(chunk.latency) for chunk in chunks]
        assert latencies[0] < 10 * np.median(latencies)
        assert nanoseconds(chunks[0].start) == nanoseconds(chunks[0].header.stamp) + latencies[0]
        assert nanoseconds(chunks[1].start) == nanoseconds(chunks[1].header.stamp)
        assert all(np.isfinite(chunk.data).all() for chunk in chunks)
    joined.set_parameter("chunk_continuity", "rtc")


def test_dry_run_publishes_everything_but_commands(tmp_path_factory):
    robot, node = started(tmp_path_factory, "dry", {**RTC, "dry_run": True})
    paths, commands = [], []
    robot.node.create_subscription(MarkerArray, "/oxygen/predicted_path", paths.append, 10)
    for kind, topic in ((ActionChunk, "action_chunk"), (JointTrajectory, "joint_trajectory")):
        robot.node.create_subscription(kind, f"/oxygen/{topic}", commands.append, 10)
    try:
        assert robot.lifecycle.change("configure"), node.log
        assert robot.lifecycle.change("activate")
        robot.wait_for(lambda: robot.node.count_publishers("/oxygen/frame_stats"), "the node")
        with robot.running():
            robot.tell("transfer the cube")
            robot.tell("why?", Instruction.ASK, id=9, max_tokens=5)
            robot.wait_for(lambda: len(paths) > 5 and robot.heard.last(9), "paths and words")
            robot.wait_for(lambda: any(s.denoise > 0 and s.boundary_jump > 0 for s in robot.heard.stats), "seams")
            robot.wait_for(lambda: robot.heard.reported("engine", "dry_run: no commands are published"), "a status")
        assert not commands
        assert not robot.node.count_publishers("/oxygen/action_chunk")
        assert not robot.node.count_publishers("/oxygen/joint_trajectory")
    finally:
        robot.close()
        node.close()


def test_a_robot_of_hand_movements_has_no_joint_trajectory(tmp_path_factory):
    robot, node = started(tmp_path_factory, "hand", {"representation": "end_effector_delta", "joint_trajectory": True})
    try:
        assert not robot.lifecycle.change("configure")
        robot.wait_for(lambda: "parameter joint_trajectory: found actions that are end_effector_delta" in node.log,
                       "a line")
        assert robot.lifecycle.state() == "unconfigured"
    finally:
        robot.close()
        node.close()


def test_two_arms_side_by_side(tmp_path_factory):
    """F49: two namespaces and remaps in one domain; each hears its own sensors and is told by its own name."""
    domain, folder = claim_domain(), tmp_path_factory.mktemp("arms")
    arms = []
    try:
        for side, index in (("left", 0), ("right", 11)):
            remaps = ["-r", f"__ns:=/{side}", "-r", "joint_states:=state", "-r", "instruction:=/orders",
                      "-r", "cam_high/image_raw/compressed:=/shared/high"]
            node = node_process(domain, folder / side, *remaps)
            wrists = {f"cam_{arm}_wrist": f"/{side}/cam_{arm}_wrist/image_raw/compressed" for arm in ("left", "right")}
            topics = {"cam_high": "/shared/high" if side == "left" else "/unused", **wrists,
                      "joint_states": f"/{side}/state"}
            arms.append((Robot(domain, f"/{side}/oxygen", topics, "/orders", f"robot_{side}"), node))
            arms[-1][0].still = index
        for robot, _ in arms:
            assert robot.lifecycle.change("configure") and robot.lifecycle.change("activate")
        for robot, _ in arms:
            robot.wait_for(lambda: robot.node.count_subscribers("/orders") >= 4, "both nodes")
        arms[0][0].tell("transfer the cube", id=3)
        with arms[0][0].running(), arms[1][0].running():
            chunks = [robot.wait_for_chunks(3)[-1] for robot, _ in arms]
            arms[1][0].off = {"joint_states"}
            arms[1][0].wait_for(lambda: arms[1][0].heard.reported("inputs", "/right/state"), "the right arm's state")
            arms[0][0].wait_for_chunks(3)
        assert [chunk.instruction_id for chunk in chunks] == [3, 3]
        assert np.abs(values(chunks[0]) - values(chunks[1])).max() > 1e-3  # other joints, other pictures
        names = {s.name for array in arms[0][0].heard.diagnostics for s in array.status}
        assert {"/left/oxygen: inputs", "/right/oxygen: inputs"} <= names
    finally:
        for robot, node in arms:
            robot.close()
            node.close()
