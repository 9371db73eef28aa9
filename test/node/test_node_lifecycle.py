"""Transitions, slow and failing frames: the node in this process, so that a test can slow it down or break it."""

import functools
import gc
import threading
import time
import weakref

import numpy as np
import pytest
import torch
from diagnostic_msgs.msg import DiagnosticStatus
from lifecycle_msgs.msg import Transition, TransitionEvent
from lifecycle_msgs.srv import GetState
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from robot import InProcess, Robot
from visualization_msgs.msg import MarkerArray

from oxygen_ros.children import claim_domain
from oxygen_ros.engine.outputs import Task, Token
from oxygen_ros.msg import Instruction, LanguageToken
from oxygen_ros.node import session
from oxygen_ros.stamps import nanoseconds

FINISHED = (LanguageToken.END_OF_TEXT, LanguageToken.LENGTH)


@pytest.fixture(scope="module")
def made():
    domain = claim_domain()
    robot, node = Robot(domain, "/slowed"), InProcess(domain, "slowed")
    assert robot.lifecycle.change("configure"), robot.heard.lines()
    yield robot, node
    robot.close()
    node.close()


@pytest.fixture
def active(made):
    """An active node that makes chunks."""
    robot, node = made
    robot.reset()
    if robot.lifecycle.state() == "unconfigured":
        assert robot.lifecycle.change("configure")
    if robot.lifecycle.state() == "inactive":
        assert robot.lifecycle.change("activate")
    robot.wait_for_topics()
    robot.tell("transfer the cube")
    with robot.running():
        robot.wait_for_chunks(2)
        node.node.session._throttle._said.clear()
        robot.heard.log.clear()
        yield robot, node


def slowed(function, seconds: float):
    @functools.wraps(function)
    def run(*arguments, **options):
        time.sleep(seconds)
        return function(*arguments, **options)

    return run


def test_two_rounds_leave_nothing_behind(active):
    robot, node = active
    threads, numbers = [], set()
    for _ in range(2):
        network = weakref.ref(node.engine.model)
        pool = node.engine._pool
        assert robot.lifecycle.change("deactivate")
        assert pool.slots_used == 0
        assert robot.lifecycle.change("cleanup")
        assert robot.lifecycle.state() == "unconfigured"
        assert network() is None  # freed now, not when Python next collects
        robot.wait_for(lambda: not robot.node.count_publishers("/slowed/action_chunk"), "the topics gone")
        assert not [i for i in robot.node.get_subscriptions_info_by_topic("/joint_states") if i.node_name == "slowed"]
        threads.append(threading.active_count())
        robot.wait_for(lambda: robot.heard.reported("engine", "not configured", level=DiagnosticStatus.OK), "a status")
        numbers |= {chunk.sequence for chunk in robot.heard.chunks}
        robot.reset()
        assert robot.lifecycle.change("configure")
        assert robot.lifecycle.change("activate")
        robot.wait_for_topics()
        robot.tell("transfer the cube")
        chunks = robot.wait_for_chunks(5, since=0)
        assert min(chunk.sequence for chunk in chunks) > max(numbers)  # no number comes twice
        # F35: warmed up before the first one, so that it is as quick as the others.
        latencies = [nanoseconds(chunk.latency) for chunk in chunks]
        assert latencies[0] < 10 * np.median(latencies)
    assert threads[0] == threads[1]


def test_transition_that_is_not_possible_is_refused(active):
    robot, _ = active
    future = robot.begin(Transition.TRANSITION_CLEANUP)  # only from inactive
    robot.wait_for(future.done, "an answer")
    assert not future.result().success
    assert robot.lifecycle.state() == "active"
    robot.wait_for_chunks(2)


def test_services_answer_while_loading(active, monkeypatch):
    """F43, F46: and a second transition is refused meanwhile."""
    robot, _ = active
    assert robot.lifecycle.change("deactivate")
    assert robot.lifecycle.change("cleanup")
    going_on = threading.Event()
    load = session.load_policy

    def held_up(*arguments):
        going_on.wait(20)
        return load(*arguments)

    monkeypatch.setattr(session, "load_policy", held_up)
    future = robot.begin(Transition.TRANSITION_CONFIGURE)
    robot.wait_for(lambda: robot.lifecycle.state() == "configuring", "configuring")
    began = time.monotonic()
    assert robot.call(GetState, "get_state", GetState.Request()).current_state.label == "configuring"
    assert time.monotonic() - began < 1.0
    # What was read is what counts: nothing can be set that nobody would hear of.
    for name, value in (("control_rate", 4.0), ("denoise_steps", 3)):
        request = SetParameters.Request(parameters=[Parameter(name, value=value).to_parameter_msg()])
        refused = robot.call(SetParameters, "set_parameters", request).results[0]
        assert not refused.successful
        assert f"parameter {name} cannot change while the node is being configured" in refused.reason
    second = robot.begin(Transition.TRANSITION_CONFIGURE)
    robot.wait_for(second.done, "an answer to the second one")
    assert not second.result().success
    robot.wait_for(lambda: robot.heard.said("another one is under way"), "the refusal in the log")
    going_on.set()
    robot.wait_for(future.done, "the answer")
    assert future.result().success
    assert robot.lifecycle.state() == "inactive"


def test_the_next_transition_may_be_asked_for_as_soon_as_one_is_told(active, monkeypatch):
    """As launch does: ~/transition_event says inactive a moment before configure has ended."""
    robot, node = active
    assert robot.lifecycle.change("deactivate")
    assert robot.lifecycle.change("cleanup")
    answers = []

    def hear(event: TransitionEvent) -> None:
        if event.goal_state.label == "inactive":
            answers.append(robot.begin(Transition.TRANSITION_ACTIVATE))

    subscription = robot.node.create_subscription(TransitionEvent, "/slowed/transition_event", hear, 10)
    transition = node.node._transition

    def lingering(*arguments):
        response = transition(*arguments)
        time.sleep(0.2)
        return response

    monkeypatch.setattr(node.node, "_transition", lingering)
    assert robot.lifecycle.change("configure")
    robot.wait_for(lambda: answers and answers[0].done(), "the answer")
    robot.node.destroy_subscription(subscription)
    assert answers[0].result().success
    assert robot.lifecycle.state() == "active"


def test_failure_in_a_transition_gives_a_clean_unconfigured_node(active, monkeypatch):
    robot, node = active

    def broken():
        raise RuntimeError("no such luck")

    monkeypatch.setattr(node.node.session, "activate", broken)
    assert robot.lifecycle.change("deactivate")
    future = robot.begin(Transition.TRANSITION_ACTIVATE)
    robot.wait_for(future.done, "the answer")
    assert not future.result().success
    robot.wait_for(lambda: robot.lifecycle.state() == "unconfigured", "unconfigured")
    robot.wait_for(lambda: robot.heard.reported("engine", "no such luck", level=DiagnosticStatus.ERROR), "a status")
    assert robot.heard.said("activate failed", "no such luck", "Traceback")


def test_live_parameters_change_and_others_do_not(active):
    robot, node = active

    def set_parameter(name, value):
        request = SetParameters.Request(parameters=[Parameter(name, value=value).to_parameter_msg()])
        return robot.call(SetParameters, "set_parameters", request).results[0]

    assert set_parameter("language.max_tokens", 3).successful
    robot.tell("why?", Instruction.ASK, id=41)
    robot.wait_for(lambda: robot.heard.last(41), "the answer")
    assert robot.heard.last(41).index <= 2
    refused = set_parameter("denoise_steps", 5)
    assert not refused.successful and "denoise_steps" in refused.reason and "clean up first" in refused.reason
    together = set_parameter("language.max_tokens", 192)  # fine alone
    assert not together.successful and "less than language.max_request_tokens, 192" in together.reason
    wrong = set_parameter("language.max_tokens", "many")
    assert not wrong.successful and "language.max_tokens is 'many', expected a whole number" in wrong.reason
    assert set_parameter("language.max_tokens", 64).successful
    outside = set_parameter("action_limits.left_waist", [4.0, 5.0])  # against the robot's own
    assert not outside.successful
    assert ("action_limits.left_waist is [4, 5], expected some of limits.left_waist, [-3.14158, 3.14158]"
            in outside.reason)


def test_rates_ages_and_limits_change_while_active(active):
    robot, node = active
    set_parameter = robot.set_parameter

    def period():
        count = len(robot.heard.stats)
        robot.wait_for(lambda: len(robot.heard.stats) > count + 8, "frames")
        return np.median([stats.period for stats in robot.heard.stats[count + 2 :]])

    before = period()
    set_parameter("control_rate", 2.5)
    assert period() > 1.5 * before
    set_parameter("control_rate", 5.0)
    set_parameter("action_limits.left_waist", [0.125, 0.25])
    set_parameter("rate_limits.left_elbow", 0.5)
    count = robot.heard.stats[-1].clamped_actions
    robot.wait_for_chunks(2)
    waist, elbow = (column(robot.wait_for_chunks()[-1], name) for name in ("left_waist", "left_elbow"))
    assert (waist >= 0.125).all() and (waist <= 0.25).all()
    first = -(-nanoseconds(robot.heard.chunks[-1].latency) // 20_000_000)
    assert np.abs(np.diff(elbow[first:])).max() <= 0.5 * 0.02 + 1e-6
    robot.wait_for(lambda: robot.heard.stats[-1].clamped_actions > count, "a count")
    assert robot.heard.stats[-1].slowed_actions > 0
    set_parameter("rate_limits.left_elbow", 0.0)
    set_parameter("action_limits.left_waist", [-3.0, 3.0])
    set_parameter("joint_state_max_age", 0.001)
    robot.wait_for(lambda: robot.heard.said("no chunk: /joint_states", "the limit is 0.001 s"), "a line")
    set_parameter("joint_state_max_age", 0.5)
    robot.wait_for_chunks(2)


def test_a_parameter_that_is_deleted_has_its_default_again(active):
    """The node told itself of the new one, and waited for itself to have declared it: nothing was answered any more."""
    robot, node = active
    for name, value, refused in (("action_limits.left_waist", [0.125, 0.25], ""), ("language.stop", ["x"], ""),
                                 ("control_rate", 4.0, "control_rate is (), expected a number")):
        robot.set_parameter(name, value)
        deleted = Parameter(name, Parameter.Type.NOT_SET).to_parameter_msg()
        result = robot.call(SetParameters, "set_parameters", SetParameters.Request(parameters=[deleted])).results[0]
        assert (result.successful, refused in result.reason) == (not refused, True)
    settings = node.node.session.settings
    assert (settings.action_limits, settings.language.stop, settings.control_rate) == ({}, (), 4.0)
    waist = column(robot.wait_for_chunks(2)[-1], "left_waist")
    assert (waist < 0.125).any() or (waist > 0.25).any()
    robot.set_parameter("control_rate", 5.0)


def column(chunk, name: str) -> np.ndarray:
    return np.array(chunk.data).reshape(chunk.horizon, -1)[:, list(chunk.names).index(name)]


def test_slow_frames_are_missed_ticks_and_use_the_newest_picture(active, monkeypatch):
    """F43"""
    robot, node = active
    monkeypatch.setattr(node.engine, "frame", slowed(node.engine.frame, 0.45))  # 2.25 periods
    misses = robot.heard.stats[-1].deadline_misses
    robot.heard.chunks.clear()
    chunks = robot.wait_for_chunks(5, since=0)
    stats = robot.heard.stats[-1]
    stamps = [nanoseconds(chunk.header.stamp) for chunk in chunks]
    assert len(set(stamps)) == 5
    assert all(b - a > 400_000_000 for a, b in zip(stamps, stamps[1:]))
    assert all(0.44 < nanoseconds(chunk.latency) / 1e9 < 2.0 for chunk in chunks)
    # Two ticks come while a frame runs: missed, not made up for afterwards.
    assert stats.deadline_misses - misses >= 2 * 4
    assert stats.slack < 0
    assert [b.sequence - a.sequence for a, b in zip(chunks, chunks[1:])] == [1, 1, 1, 1]
    for _ in range(3):
        began = time.monotonic()
        robot.call(GetState, "get_state", GetState.Request())
        assert time.monotonic() - began < 1.0
    # Pictures that no frame uses are not decoded.
    camera = node.node.session.inputs.cameras["cam_high"]
    decoded, received = [], camera.received
    monkeypatch.setattr(camera, "_decode", lambda data, decode=camera._decode: decoded.append(1) or decode(data))
    robot.wait_for_chunks(3)
    assert 2 <= len(decoded) <= 5 < camera.received - received


@pytest.mark.parametrize("delay", [0.05, 0.2, 0.35])
def test_deactivate_in_flight_is_the_end_of_it(active, monkeypatch, delay):
    """F46"""
    robot, node = active
    robot.tell("tell me everything", Instruction.ASK, id=51, max_tokens=100)
    monkeypatch.setattr(node.engine, "frame", slowed(node.engine.frame, 0.3))
    robot.wait_for_chunks()
    time.sleep(delay)  # the moment within a frame is the point
    assert robot.lifecycle.change("deactivate")
    returned = robot.now()
    chunks, tokens = len(robot.heard.chunks), len(robot.heard.tokens)
    assert robot.lifecycle.change("cleanup")
    assert robot.lifecycle.change("configure")
    robot.wait_for(lambda: robot.heard.last(51), "the end of the answer")
    late = [t for t in robot.heard.tokens[tokens:] if not (t.last and t.finish_reason == LanguageToken.CANCELLED)]
    published = [nanoseconds(c.header.stamp) + nanoseconds(c.latency) for c in robot.heard.chunks[chunks:]]
    assert all(ns <= returned for ns in published)
    assert not late
    assert robot.heard.last(51).finish_reason in (LanguageToken.CANCELLED, *FINISHED)


def test_first_chunk_after_activation_is_of_data_of_after(active):
    """F46"""
    robot, _ = active
    assert robot.lifecycle.change("deactivate")
    robot.off, old = set(robot.sensors), robot.now()
    assert robot.lifecycle.change("activate")
    count = len(robot.heard.chunks)
    robot.wait_for(lambda: robot.heard.reported("inputs", "no message yet"), "no message yet")
    assert len(robot.heard.chunks) == count
    robot.off = set()
    chunk = robot.wait_for_chunks(since=count)[0]
    assert nanoseconds(chunk.header.stamp) > old
    assert nanoseconds(chunk.start) == nanoseconds(chunk.header.stamp) + nanoseconds(chunk.latency)  # from standstill


@pytest.mark.parametrize("stage, error", [
    ("prefill", RuntimeError("cosmic ray")),
    ("denoise", torch.OutOfMemoryError("no memory left")),
    ("decode", RuntimeError("cosmic ray")),
])
def test_one_frame_that_fails(active, monkeypatch, stage, error):
    """F37: it is told, its requests end, its slot is free, and the next frame is fine."""
    robot, node = active
    model, name = node.engine.model, {"prefill": "embed_images", "denoise": "denoise", "decode": "advance"}[stage]
    working, failed = getattr(model, name), []

    def broken(*arguments, **options):
        if failed:
            return working(*arguments, **options)
        failed.append(1)
        raise type(error)(*error.args)  # one that was raised keeps its frames alive

    robot.heard.diagnostics.clear()
    before = len(robot.heard.chunks)
    frame = node.engine.frame

    def with_a_request(*arguments, **options):
        """Break the first frame that the request joins."""
        if node.engine._scheduler.waiting:
            monkeypatch.setattr(model, name, broken)
        return frame(*arguments, **options)

    monkeypatch.setattr(node.engine, "frame", with_a_request)
    robot.tell("why?", Instruction.ASK, id=61, max_tokens=5)
    robot.wait_for(lambda: robot.heard.last(61), "the end of the request")
    assert failed and robot.heard.last(61).finish_reason == LanguageToken.ERROR
    assert stage in robot.heard.last(61).detail and str(error) in robot.heard.last(61).detail
    left = "after its chunk" if stage == "decode" else "no chunk of it is published"
    robot.wait_for(lambda: robot.heard.said("failed", left, stage, str(error)), "a line")
    robot.wait_for(lambda: robot.heard.reported("engine", stage, str(error), level=DiagnosticStatus.ERROR), "a status")
    robot.wait_for_chunks(3)
    numbers = [chunk.sequence for chunk in robot.heard.chunks[before:]]
    assert len(set(numbers)) == len(numbers) and numbers == sorted(numbers)
    robot.tell("and now?", Instruction.ASK, id=62, max_tokens=5)
    robot.wait_for(lambda: robot.heard.last(62), "the answer to the next one")
    assert robot.heard.last(62).finish_reason in FINISHED
    robot.wait_for(lambda: robot.heard.stats[-1].slots_used == 0, "all slots free")


def test_chunks_that_cannot_be_published_take_no_slots(active, monkeypatch):
    """The frame that made one was left where it was, with its slot, for as long as somebody held its exception."""
    robot, node = active
    held = []

    def broken(message):
        held.append(RuntimeError("no such luck"))
        raise held[-1]

    monkeypatch.setattr(node.node.session.frames._listener._chunk, "publish", broken)
    robot.wait_for(lambda: len(held) > node.engine.settings.slots + 1, "more failures than slots")
    assert node.engine._pool.slots_used <= 1
    monkeypatch.undo()
    robot.wait_for_chunks(2)
    assert robot.heard.said("failed, no chunk of it is published: RuntimeError: no such luck")


def test_what_fails_ahead_of_a_frame_is_left_to_the_frame(active, monkeypatch):
    robot, node = active
    tried = []

    def broken(images):
        tried.append(images)
        raise KeyError("nobody foresaw this")

    monkeypatch.setattr(node.node.session.policy.pipeline, "prepare", broken)
    robot.wait_for(lambda: len(tried) > 2, "some tries")
    robot.wait_for_chunks(2)
    assert robot.lifecycle.state() == "active" and not robot.heard.said("nobody foresaw this")


def test_what_nobody_foresaw_goes_through_on_error_to_unconfigured(active, monkeypatch):
    robot, node = active
    robot.tell("tell me everything", Instruction.ASK, id=63, max_tokens=150)
    robot.wait_for(lambda: robot.heard.text(63), "the beginning of an answer")
    network = weakref.ref(node.engine.model)

    def broken(tick):
        raise KeyError("nobody foresaw this")

    monkeypatch.setattr(node.node.session.frames, "make", broken)
    robot.wait_for(lambda: robot.lifecycle.state() == "unconfigured", "unconfigured")
    robot.wait_for(lambda: robot.heard.last(63), "the end of the answer")
    robot.wait_for(lambda: robot.heard.reported("engine", "no longer active", "nobody foresaw this",
                                                level=DiagnosticStatus.ERROR), "a status")
    assert robot.heard.said("no longer active", "nobody foresaw this", "Traceback")
    assert node.node.session is None
    monkeypatch.undo()  # which remembers what it changed
    robot.wait_for(lambda: gc.collect() >= 0 and network() is None, "the network freed")
    assert not robot.node.count_publishers("/slowed/action_chunk")
    assert robot.lifecycle.change("configure") and robot.lifecycle.change("activate")
    robot.tell("transfer the cube")
    robot.wait_for_chunks(2)


def test_who_asks_while_the_node_is_inactive_hears_how_it_ends(active):
    robot, _ = active
    assert robot.lifecycle.change("deactivate")
    robot.tell("why?", Instruction.ASK, id=64, max_tokens=5)
    robot.tell("why not?", Instruction.ASK, id=65, max_tokens=10_000)
    robot.wait_for(lambda: robot.heard.last(65), "the refusal")
    assert robot.heard.last(65).finish_reason == LanguageToken.REJECTED
    assert robot.heard.last(64) is None  # it waits for the node to be active
    assert robot.lifecycle.change("cleanup")
    robot.wait_for(lambda: robot.heard.last(64), "the end of the request")
    assert robot.heard.last(64).finish_reason == LanguageToken.CANCELLED


def test_a_zero_in_an_answer_does_not_cut_it_short(active):
    """A ROS string ends at its first: what followed was lost, and the pieces did not add up to the whole."""
    robot, node = active
    node.node.session.speech._utterance("we\0rip")
    node.node.session.speech._token(Token(66, Task.ASK, 0, 5, 0), "\0")
    robot.wait_for(lambda: "we\ufffdrip" in robot.heard.utterances, "the whole answer")
    robot.wait_for(lambda: robot.heard.text(66) == "\ufffd", "its piece")


def test_actions_that_are_no_numbers_are_never_published(active, monkeypatch):
    """F37: on no topic."""
    robot, node = active
    paths = []
    listener = robot.node.create_subscription(MarkerArray, "/slowed/predicted_path", paths.append, 10)
    robot.wait_for(lambda: paths, "a path")
    model, denoise = node.engine.model, node.engine.model.denoise
    monkeypatch.setattr(model, "denoise", lambda *a, **o: denoise(*a, **o).mul_(float("nan")))
    robot.heard.diagnostics.clear()
    robot.wait_for(lambda: robot.heard.reported("engine", "denoise failed", "NaN", "frames failed in a row",
                                                level=DiagnosticStatus.ERROR), "a status")
    count = len(robot.heard.chunks)
    assert robot.lifecycle.state() == "active"
    monkeypatch.undo()
    robot.wait_for_chunks(2)
    assert all(np.isfinite(chunk.data).all() for chunk in robot.heard.chunks)
    # Finite in the model's units, not in the robot's.
    act = node.node.session.policy.pipeline.act
    monkeypatch.setattr(node.node.session.policy.pipeline, "act", lambda *a: act(*a) * np.float32("inf"))
    robot.wait_for(lambda: robot.heard.said("actions in robot units hold NaN or infinity"), "a line")
    monkeypatch.undo()
    robot.wait_for_chunks(2)
    robot.node.destroy_subscription(listener)
    assert all(np.isfinite(chunk.data).all() for chunk in robot.heard.chunks[count:])
    points = [point for path in paths for marker in path.markers for point in marker.points]
    assert points and all(np.isfinite([point.x, point.y, point.z]).all() for point in points)


def test_chunk_that_comes_too_late_is_counted_and_not_sent(active, monkeypatch):
    """F35"""
    robot, node = active
    monkeypatch.setattr(node.engine, "frame", slowed(node.engine.frame, 1.2))  # chunk_lifespan is 1 s
    robot.wait_for(lambda: robot.heard.said("chunk not sent", "chunk_lifespan is 1 s; raise it, or lower denoise"),
                   "a line")
    robot.wait_for(lambda: robot.heard.reported("engine", "in a row not sent", "chunk_lifespan, 1 s; raise it",
                                                level=DiagnosticStatus.WARN), "a status")
    count = len(robot.heard.chunks)
    robot.wait_for(lambda: node.node.session.frames.health.late_chunks >= 2, "a count")
    assert len(robot.heard.chunks) == count
    monkeypatch.undo()
    robot.wait_for_chunks(2)


def hold_up(node, monkeypatch) -> threading.Event:
    """Returns when a frame waits for the event."""
    reached, going_on, frame = threading.Event(), threading.Event(), node.engine.frame

    def held_up(*arguments, **options):
        reached.set()
        going_on.wait(5)
        return frame(*arguments, **options)

    monkeypatch.setattr(node.engine, "frame", held_up)
    assert reached.wait(5)
    return going_on


def test_limits_set_within_a_frame_hold_for_its_chunk(active, monkeypatch):
    robot, node = active
    going_on, count = hold_up(node, monkeypatch), len(robot.heard.chunks)
    robot.set_parameter("action_limits.left_waist", [2.0, 2.125])
    monkeypatch.undo()
    going_on.set()
    waist = column(robot.wait_for_chunks(since=count)[0], "left_waist")
    assert (waist >= 2.0).all() and (waist <= 2.125).all()
    robot.set_parameter("action_limits.left_waist", [-3.0, 3.0])


def test_stop_within_a_frame_keeps_its_chunk_back(active, monkeypatch):
    robot, node = active
    going_on, old = hold_up(node, monkeypatch), robot.now()
    count = len(robot.heard.chunks)
    robot.tell(task=Instruction.STOP, id=70)
    hold = robot.wait_for_chunks(since=count)[0]  # though the frame thread is held up
    actions = np.array(hold.data).reshape(50, 14)
    assert hold.instruction_id == 70 and (actions == actions[0]).all()
    before, now = robot.heard.chunks[count - 1], nanoseconds(hold.start)
    due = min((now - nanoseconds(before.start)) / 20_000_000, 49)
    there = np.array(before.data).reshape(50, 14)[[int(due), min(int(due) + 1, 49)]]
    np.testing.assert_allclose(actions[0], there[0] + (due - int(due)) * (there[1] - there[0]), atol=1e-4)
    count += 1
    robot.tell("transfer the cube", id=71)
    instructions = node.node.session.instructions
    robot.wait_for(lambda: instructions.task and instructions.task.instruction_id == 71, "the next task")
    monkeypatch.undo()
    going_on.set()
    chunk = robot.wait_for_chunks(since=count)[0]
    assert chunk.instruction_id == 71
    assert nanoseconds(chunk.start) > old  # from standstill: the time of its publication
    assert nanoseconds(chunk.start) == nanoseconds(chunk.header.stamp) + nanoseconds(chunk.latency)
