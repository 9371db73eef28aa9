"""Language over DDS: questions, captions, cancelling, refusals, and who hears an instruction how often."""

import numpy as np
import pytest
from rcl_interfaces.msg import Log
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import serialize_message
from robot import POLICY, Robot, node_process

from oxygen_ros.children import claim_domain
from oxygen_ros.embodiment.tokenizer import Tokenizer
from oxygen_ros.msg import Instruction, LanguageToken
from oxygen_ros.stamps import nanoseconds

LATCHED = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
FINISHED = (LanguageToken.END_OF_TEXT, LanguageToken.LENGTH)


@pytest.fixture(scope="module")
def active(tmp_path_factory):
    domain = claim_domain()
    # Slow enough for a request to be caught while it is being answered.
    robot, node = Robot(domain), node_process(domain, tmp_path_factory.mktemp("language") / "log", settings={
        "language.steps_per_frame": 2, "language.max_waiting": 2, "language.max_requests": 2,
        "language.temperature": 0.7})
    robot.bring_up()
    yield robot
    robot.close()
    node.close()


@pytest.fixture
def robot(active):
    robot = active
    robot.reset()
    with robot.running():
        robot.wait_for_chunks(2)
        yield robot
        robot.wait_for(lambda: not robot.heard.stats[-1].active_requests + robot.heard.stats[-1].waiting_requests,
                       "the end")
    assert not robot.heard.said("frame", level=Log.ERROR), robot.heard.lines()


def tokens_of(robot: Robot, request_id: int) -> list[LanguageToken]:
    return [t for t in robot.heard.tokens if t.request_id == request_id]


def test_answer_streams_between_chunks(robot):
    before = len(robot.heard.chunks)
    robot.tell("where is the cube?", Instruction.ASK, id=11, max_tokens=20)
    robot.wait_for(lambda: robot.heard.last(11), "the answer")
    robot.wait_for(lambda: robot.heard.utterances, "the utterance")
    tokens = tokens_of(robot, 11)
    assert [t.index for t in tokens] == list(range(len(tokens)))
    assert [t.last for t in tokens] == [False] * (len(tokens) - 1) + [True]
    assert tokens[-1].finish_reason in FINISHED
    assert all(t.task == LanguageToken.ASK and t.header.frame_id == "base_link" for t in tokens)
    # One frame's picture is what the whole answer is about, though it goes on over several frames.
    assert {nanoseconds(t.header.stamp) for t in tokens} <= set(robot.sent["cam_high"])
    assert len({nanoseconds(t.header.stamp) for t in tokens}) == 1
    assert len(robot.heard.chunks) - before >= 3
    text = Tokenizer.load(POLICY).decode([t.token_id for t in tokens])
    assert robot.heard.text(11) == text
    assert robot.heard.utterances[-1] == text


def test_two_questions_are_answered_together(robot):
    robot.tell("where is the cube?", Instruction.ASK, id=21, max_tokens=100)
    robot.tell("what next?", Instruction.ASK, id=22, max_tokens=100)
    robot.wait_for(lambda: robot.heard.last(21) and robot.heard.last(22), "both answers")
    order = [t.request_id for t in robot.heard.tokens]
    assert sum(a != b for a, b in zip(order, order[1:])) > 5, order
    robot.wait_for(lambda: len(robot.heard.utterances) == 2, "both utterances")
    assert {robot.heard.text(21), robot.heard.text(22)} == set(robot.heard.utterances)


def test_cancel_ends_a_request_and_nothing_else(robot):
    robot.tell("tell me everything", Instruction.ASK, id=31, max_tokens=100)
    robot.tell("and you too", Instruction.ASK, id=32, max_tokens=24)
    robot.wait_for(lambda: robot.heard.text(31), "the beginning of an answer")
    robot.tell(task=Instruction.CANCEL, id=31)
    robot.wait_for(lambda: robot.heard.last(31) and robot.heard.last(32), "both ends")
    assert robot.heard.last(31).finish_reason == LanguageToken.CANCELLED
    assert robot.heard.last(31).token_id == -1
    assert robot.heard.last(32).finish_reason in FINISHED
    robot.wait_for(lambda: robot.heard.utterances, "the other's utterance")
    assert robot.heard.utterances == [robot.heard.text(32)]


def test_cancel_of_nothing_is_said(robot):
    robot.tell(task=Instruction.CANCEL, id=999)
    robot.wait_for(lambda: robot.heard.said("nothing to cancel: 999"), "the warning")


@pytest.mark.parametrize("text, fields, reason", [
    ("word " * 200, {}, "one request has room for 192"),
    ("x" * 100_000, {}, "one request has room for 192"),
    ("why?", {"max_tokens": 100_000}, "one request has room for 192"),
    ("", {}, "empty or blank"),
    (" \n ", {}, "empty or blank"),
])
def test_rejected(robot, text, fields, reason):
    robot.tell(text, Instruction.ASK, id=41, **fields)
    robot.wait_for(lambda: robot.heard.last(41), "the rejection")
    token = robot.heard.last(41)
    assert token.finish_reason == LanguageToken.REJECTED
    assert reason in token.detail
    assert (token.index, token.token_id, token.text) == (0, -1, "")


def test_too_many_waiting(robot):
    for request_id in range(51, 59):
        robot.tell("what now?", Instruction.ASK, id=request_id, max_tokens=12)
    robot.wait_for(lambda: all(robot.heard.last(i) for i in range(51, 59)), "an end for each")
    reasons = [robot.heard.last(i).finish_reason for i in range(51, 59)]
    rejected = [robot.heard.last(i).detail for i in range(51, 59) if robot.heard.last(i).finish_reason not in FINISHED]
    assert reasons.count(LanguageToken.REJECTED) == len(rejected) >= 1
    assert all("waiting already" in detail for detail in rejected)
    assert sum(r in FINISHED for r in reasons) >= 2


def test_second_request_of_a_living_id_leaves_it_alone(robot):
    robot.tell("tell me everything", Instruction.ASK, id=61, max_tokens=24)
    robot.wait_for(lambda: tokens_of(robot, 61), "the beginning of an answer")
    robot.tell("something else", Instruction.ASK, id=61, max_tokens=24)
    robot.wait_for(lambda: robot.heard.last(61), "the answer")
    assert robot.heard.said("request 61 ignored")
    tokens = tokens_of(robot, 61)
    assert sum(t.last for t in tokens) == 1
    assert [t.index for t in tokens] == list(range(len(tokens)))
    robot.wait_for(lambda: robot.heard.utterances, "the utterance")
    assert robot.heard.utterances == [robot.heard.text(61)]
    robot.tell("once more", Instruction.ASK, id=61, max_tokens=4)
    robot.wait_for(lambda: sum(t.last for t in tokens_of(robot, 61)) == 2, "an answer under the id that is free again")


def test_ids_that_the_node_assigns(robot):
    robot.tell("why?", Instruction.ASK, id=2**64 - 1, max_tokens=4)
    robot.wait_for(lambda: robot.heard.last(2**64 - 1), "the answer to the largest id")
    robot.tell("why?", Instruction.ASK, max_tokens=4)
    robot.wait_for(lambda: len({t.request_id for t in robot.heard.tokens if t.last}) == 2, "the answer to the next one")
    assert 0 not in {t.request_id for t in robot.heard.tokens}


def test_caption_is_kept_for_those_who_come_later(robot):
    robot.tell("", Instruction.REMEMBER, id=71, max_tokens=12)
    robot.wait_for(lambda: robot.heard.memory, "the caption")
    caption = robot.heard.memory[-1]
    assert (caption.request_id, caption.task, caption.last) == (71, LanguageToken.REMEMBER, True)
    assert caption.text == robot.heard.text(71)
    assert not robot.heard.utterances
    late = []
    subscription = robot.node.create_subscription(LanguageToken, "/oxygen/memory", late.append, LATCHED)
    robot.wait_for(lambda: late, "the caption, again")
    robot.node.destroy_subscription(subscription)
    assert late[-1].text == caption.text


@pytest.mark.parametrize("profile", [10, LATCHED], ids=["volatile", "latched"])
def test_each_publisher_is_heard_once(robot, profile):
    publisher = robot.node.create_publisher(Instruction, "instruction", profile)
    robot.wait_for(lambda: publisher.get_subscription_count() >= (2 if profile is LATCHED else 1), "the node listening")
    publisher.publish(Instruction(task=Instruction.ASK, id=81, text="why?", max_tokens=4))
    robot.wait_for(lambda: robot.heard.last(81), "the answer")
    seen = len(robot.heard.stats)
    robot.wait_for(lambda: len(robot.heard.stats) > seen + 5, "some frames")
    robot.node.destroy_publisher(publisher)
    assert sum(t.last for t in tokens_of(robot, 81)) == 1
    assert not robot.heard.said("81")


def test_latched_publisher_of_before_is_heard(tmp_path):
    domain = claim_domain()
    robot = Robot(domain)
    publisher = robot.node.create_publisher(Instruction, "instruction", LATCHED)
    publisher.publish(Instruction(id=9, text="transfer the cube"))
    publisher.publish(Instruction(id=10, text="why?", task=Instruction.ASK, max_tokens=4))
    node = node_process(domain, tmp_path / "log")
    try:
        robot.bring_up(instruction=None)
        with robot.running():
            robot.wait_for(lambda: robot.heard.last(10), "the answer")
            assert robot.wait_for_chunks(5)[-1].instruction_id == 9
        assert sum(t.last for t in tokens_of(robot, 10)) == 1
    finally:
        robot.close()
        node.close()


def test_fewer_slots_than_requests_answer_them_one_after_the_other(tmp_path):
    """F37: none is lost, and chunks go on."""
    domain = claim_domain()
    robot, node = Robot(domain), node_process(domain, tmp_path / "log", settings={"kv_slots": 2})
    try:
        robot.bring_up()
        with robot.running():
            for number in range(91, 96):
                robot.tell(f"question {number}?", Instruction.ASK, id=number, max_tokens=8)
                robot.wait_for_chunks()  # each asks of a frame of its own
            robot.wait_for(lambda: all(robot.heard.last(number) for number in range(91, 96)), "an end of each")
            assert {robot.heard.last(number).finish_reason for number in range(91, 96)} <= set(FINISHED)
            robot.wait_for(lambda: robot.heard.stats[-1].slots_used == 0, "free slots")
            assert robot.heard.stats[-1].slots_total == 2
            robot.wait_for_chunks(2)
    finally:
        robot.close()
        node.close()


@pytest.mark.parametrize("number, text, shown", [
    (201, "a" * 100_000, "100000 characters"),
    (203, "🚀🦾 transfer the cube 잠", "🚀🦾 transfer the cube 잠"),
    (205, b"\x80\x81", "UTF-8"),
    (207, b"A\x00", "instruction 207: A"),
], ids=["100kB", "emoji", "not UTF-8", "zero byte"])
def test_odd_instructions_are_not_fatal(robot, number, text, shown):
    """F18, and texts that are odd in other ways."""
    if isinstance(text, bytes):
        robot.instruction.publish(serialize_message(Instruction(id=number, text="##")).replace(b"##", text))
    else:
        robot.tell(text, id=number)
        robot.wait_for(lambda: robot.heard.chunks[-1].instruction_id == number, "its chunks")
    # Bytes that are no text are obeyed as U+FFFD or refused, depending on the ROS distribution.
    level = Log.WARN if shown == "UTF-8" else Log.INFO
    robot.wait_for(lambda: robot.heard.said(shown, level=level), "a line about it")
    robot.tell("transfer the cube", id=number + 1)
    robot.wait_for(lambda: robot.heard.chunks[-1].instruction_id == number + 1, "chunks of the next good instruction")
    if number == 201:
        assert robot.heard.said("of 100000 characters only 25600 are read")
        assert robot.heard.said("the prompt has 25", "more than 200")


@pytest.mark.parametrize("text", ["", "  \n", "\u200b"])
def test_blank_instruction_leaves_the_one_before(robot, text):
    robot.tell("transfer the cube", id=101)
    robot.wait_for(lambda: robot.heard.chunks[-1].instruction_id == 101, "chunks of 101")
    robot.heard.diagnostics.clear()
    robot.tell(text, id=102)
    robot.wait_for(lambda: robot.heard.reported("engine", "instruction refused", "blank", "what the robot should do"),
                   "WARN")
    assert robot.wait_for_chunks()[-1].instruction_id == 101


def test_unknown_task_and_bytes_of_another_type(robot):
    robot.tell("x", task=77, id=1)
    robot.wait_for(lambda: robot.heard.said("instruction 1 refused: task is 77", "expected ACT 0"), "the refusal")
    robot.instruction.publish(b"\x00\x01\x00\x00\xff\xff")
    robot.wait_for(lambda: robot.heard.said("bytes that do not deserialise", "oxygen_ros/msg/Instruction"),
                   "the refusal")
    robot.wait_for_chunks(2)


def test_language_runs_on_while_no_observation_can_be_used(robot):
    """F40"""
    robot.tell("tell me everything", Instruction.ASK, id=111, max_tokens=60)
    robot.wait_for(lambda: tokens_of(robot, 111), "the beginning of an answer")
    robot.off = set(robot.sensors)
    robot.wait_for(lambda: robot.heard.last(111), "the end of the answer")
    assert robot.heard.last(111).finish_reason in FINISHED
    assert np.isfinite(robot.heard.stats[-1].observation_age)
