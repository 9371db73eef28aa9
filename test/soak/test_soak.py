"""oxygen-soak, shortened: what it finds in a node that keeps its promises, and in messages that break them."""

import array
import json
import signal
import subprocess
import sys

import pytest
import rclpy
from rclpy.context import Context

from oxygen_ros.children import claim_domain
from oxygen_ros.msg import ActionChunk, LanguageToken
from oxygen_ros.soak import main
from oxygen_ros.soak.ledger import Allowed, Ledger
from oxygen_ros.soak.main import growth

DIES = """
import itertools, os, sys
from oxygen_ros.commander import Commander
from oxygen_ros.node.main import main
send, sent = Commander.send, itertools.count()
Commander.send = lambda *arguments: os._exit(3) if next(sent) == 20 else send(*arguments)
sys.exit(main())
"""
SHORT = ("killed", "dropped", "frozen", "reordered", "garbled", "one joint missing")


def soak(*arguments, timeout=240):
    return subprocess.run([sys.executable, "-m", "oxygen_ros.soak.main", *map(str, arguments)], capture_output=True,
                          text=True, timeout=timeout)


def test_a_short_run_keeps_every_promise(tmp_path):
    run = soak("--seconds", 1, "--faults", ",".join(SHORT), "--out", tmp_path, "--json", tmp_path / "soak.json")
    assert run.returncode == 0, run.stdout + run.stderr
    report = json.loads((tmp_path / "soak.json").read_text())
    assert report["broken"] == [] and report["state"] == "active" and not report["partial"]
    assert set(report["faults"]) == set(SHORT)
    assert all(tally == {"made": 1, "counted": 1, "named": 1, "recovered": 1} for tally in report["faults"].values())
    assert report["stops"] == 1 and report["chunks"] > 20
    ended = {key: count for key, count in report["language"].items() if key.startswith("ended")}
    assert sum(ended.values()) == report["language"]["requests"] == 4 * len(SHORT)
    assert ended["ended rejected"] == len(SHORT)  # a question that asks for too much, each time
    assert "every promise was kept" in run.stdout


def test_interrupted_it_says_what_came_until_then(tmp_path):
    options = ("--seconds", "600", "--faults", "frozen", "--out", tmp_path, "--json", tmp_path / "soak.json")
    run = subprocess.Popen([sys.executable, "-u", "-m", "oxygen_ros.soak.main", *map(str, options)],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "frozen" in run.stdout.readline()
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    report = json.loads((tmp_path / "soak.json").read_text())
    assert run.returncode == 130 and "interrupted; this is what came until then" in err
    assert report["partial"] and report["seconds"] > 3 and report["chunks"] > 5
    assert f"{report['seconds']:.0f} s, {report['chunks']} chunks, memory grew by" in out and "every promise" in out


def test_an_unknown_fault_is_named(tmp_path):
    run = soak("--faults", "gremlins", "--out", tmp_path)
    assert run.returncode == 1
    assert run.stderr.startswith("oxygen-soak: --faults gremlins is not known; there are all, silent, killed")
    assert run.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def node():
    context = Context()
    rclpy.init(context=context, domain_id=claim_domain())
    node = rclpy.create_node("soak_test", context=context)
    yield node
    node.destroy_node()
    context.shutdown()


def chunk(node, sequence, value=0.5, instruction_id=1, ahead=0):
    stamp = node.get_clock().now().nanoseconds + ahead
    message = ActionChunk(sequence=sequence, instruction_id=instruction_id, data=array.array("f", [value] * 10),
                          names=["b", "a"], horizon=5, action_dim=2)
    message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp, 10**9)
    message.start, message.step_dt.nanosec = message.header.stamp, 10**8
    return message


def moving_chunk(node, sequence, first, change, instruction_id=1):
    """Of five actions, `change` apart, of which the one named a has `first` due now; the next chunk is due with it."""
    message = chunk(node, sequence, instruction_id=instruction_id)
    message.data = array.array("f", [number for i in range(5) for number in (9.0, first + i * change)])
    return message


def token(request, index, last=False, **fields):
    return LanguageToken(request_id=request, index=index, token_id=5, last=last, **fields)


def test_broken_promises_are_written_down(node):
    ledger = Ledger(node, "/nobody")
    ledger._on_chunk(chunk(node, 1))
    assert ledger.broken == []
    ledger._on_chunk(chunk(node, 1))
    ledger._on_chunk(chunk(node, 2, float("nan")))
    ledger._on_chunk(chunk(node, 3, ahead=10**9))
    assert [line.split(" ", 2)[2] for line in ledger.broken] == [
        "came after chunk 1", "holds NaN or infinity, or nothing", "is stamped in the future"]
    ledger.broken.clear()
    allowed = ledger.forbid(node.get_clock().now().nanoseconds - 10**10, 0.5, "the camera was dead")
    ledger._on_chunk(chunk(node, 4))
    allowed()
    ledger._on_chunk(chunk(node, 5))
    assert ledger.broken == ["chunk 4 was published although the camera was dead"]
    ledger.broken.clear()
    ledger.stop(77)
    ledger._on_chunk(chunk(node, 6))  # on its way when STOP was said
    ledger._on_chunk(chunk(node, 7, instruction_id=77))
    assert ledger.broken == [] and ledger.hold.sequence == 7
    ledger._on_chunk(chunk(node, 8))
    assert ledger.broken == ["chunk 8 came after STOP 77"]


def test_motion_beyond_what_is_allowed_is_written_down(node):
    ledger = Ledger(node, "/nobody", {"a": Allowed(-1.0, 1.0, 2.0)})  # 0.2 an action
    ledger._on_chunk(moving_chunk(node, 1, 0.0, 0.2))
    ledger._on_chunk(moving_chunk(node, 2, 0.0, 0.1))  # within a moment: it follows the same row
    assert ledger.broken == []
    ledger._on_chunk(moving_chunk(node, 3, 0.0, 0.3))
    ledger._on_chunk(moving_chunk(node, 4, 0.9, 0.1))
    ledger._on_chunk(moving_chunk(node, 6, 0.9, 0.0))  # one was lost on its way: who knows what it follows
    assert ledger.broken == [
        "chunk 3: a leaves [-1, 1]", "chunk 3: a changes faster than 2 a second", "chunk 4: a leaves [-1, 1]",
        "chunk 4: a changes faster than 2 a second"]
    ledger.broken.clear()
    late = moving_chunk(node, 7, 0.9, 0.0)
    late.latency.nanosec = 3 * 10**8  # the rows that leave are past
    late.data = array.array("f", [0.0, 5.0] * 3 + [0.0, 0.9] * 2)
    ledger._on_chunk(late)
    assert ledger.broken == []


def test_a_chunk_that_obeys_another_instruction_is_written_down(node):
    ledger = Ledger(node, "/nobody")
    ledger.act("wave", 5)
    ledger._on_chunk(chunk(node, 1, instruction_id=5))
    ledger.stop(6)
    ledger._on_chunk(chunk(node, 2, instruction_id=6))
    ledger.act("wave", 7)
    assert ledger.broken == []
    ledger._on_chunk(chunk(node, 3, instruction_id=5))
    assert ledger.broken == ["chunk 3 obeys instruction 5, the last is 7"]


def test_whole_texts_are_those_of_the_tokens(node):
    ledger = Ledger(node, "/nobody")
    for request, task, reason in ((1, 1, LanguageToken.LENGTH), (2, 2, LanguageToken.END_OF_TEXT),
                                  (3, 1, LanguageToken.CANCELLED)):
        ledger.ask(task, request, "why?", 10)
        ledger._on_token(token(request, 0, text="so", task=task))
        ledger._on_token(token(request, 1, last=True, text=f" {request}", task=task, finish_reason=reason))
    assert ledger.unspoken() == ["so 1", "so 2"]
    ledger._on_text(1, "so 1")
    ledger._on_text(2, "so 2")
    assert ledger.unspoken() == [] == ledger.broken
    ledger._on_text(1, "so 3")  # it was cancelled
    assert ledger.unspoken() == ["so 3"]


def test_a_node_that_ends_is_told_in_a_line(tmp_path, monkeypatch, capfd):
    command = main._node_command()
    monkeypatch.setattr(main, "_node_command", lambda: [sys.executable, "-c", DIES, *command[3:]])
    assert main.main(["--seconds", "1", "--faults", "reordered", "--out", str(tmp_path)]) == 1
    said = capfd.readouterr()
    assert "BROKEN: the node's process ended within" in said.out and "BROKEN: the node ended with 3" in said.out
    assert "Traceback" not in said.out + said.err


def test_lost_and_doubled_words_are_written_down(node):
    ledger = Ledger(node, "/nobody")
    ledger.ask(1, 5, "why?", 10)
    ledger.ask(1, 6, "why?", 10)
    for said in (token(5, 0), token(5, 1, last=True), token(6, 0)):
        ledger._on_token(said)
    assert ledger.broken == [] and ledger.unanswered() == [6]
    ledger._on_token(token(6, 2))
    ledger._on_token(token(5, 2))
    assert ledger.broken == ["request 6: token 2 came where 1 was next",
                             "a token of request 5, which has ended or was never made"]


def test_memory_that_grows_is_told_from_memory_that_warms_up():
    flat = [(float(i), 100.0 + 50 * min(i, 10) / 10) for i in range(40)]
    assert growth(flat) == 0
    assert growth([(float(i), 100.0 + i) for i in range(40)]) == 20
    assert growth(flat[:3]) == 0
