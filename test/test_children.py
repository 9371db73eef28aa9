"""Processes that a command starts end with it, on a network of their own, on a machine that others use too."""

import os
import signal
import subprocess
import sys

import pytest

from oxygen_ros import children


def test_no_two_processes_have_one_domain_until_one_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(children.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(children, "_DOMAINS", range(1, 4))
    monkeypatch.setattr(children, "_claims", [])
    program = (
        "import sys, tempfile\nfrom oxygen_ros import children\n"
        f"tempfile.tempdir, children._DOMAINS = {str(tmp_path)!r}, range(1, 4)\n"
        "print(children.claim_domain(), flush=True)\nsys.stdin.read()\n"
    )
    other = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    theirs = int(other.stdout.readline())
    assert {children.claim_domain(), children.claim_domain()} == {1, 2, 3} - {theirs}
    with pytest.raises(RuntimeError, match="from 1 to 3 are taken: set ROS_DOMAIN_ID"):
        children.claim_domain()
    other.communicate()
    assert children.claim_domain() == theirs


@pytest.fixture
def ours():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    children.end_on_signals()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("numbers", [[signal.SIGINT], [signal.SIGTERM, signal.SIGINT]], ids=["Ctrl-C", "both"])
def test_a_signal_while_a_child_is_being_made_ends_it_too(tmp_path, monkeypatch, ours, numbers):
    made = []

    class Interrupted(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            made.append(self)
            for number in numbers:
                os.kill(os.getpid(), number)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        with children.child_process([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "log"):
            pytest.fail("the block was entered")
    assert [child.poll() is not None for child in made] == [True]


def test_a_program_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        with children.child_process([str(tmp_path / "nothing")], tmp_path / "log"):
            pytest.fail("the block was entered")
