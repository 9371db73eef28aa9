"""Processes that a command starts and ends, on a network of their own."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_STOP = (signal.SIGINT, signal.SIGTERM)
_DOMAINS = range(1, 102)  # higher ones need ports that Linux hands out itself
_claims: list[ExitStack] = []  # files locked until the process ends


def claim_domain() -> int:
    """A ROS domain that no other command and no test on this machine uses until this process ends.

    Raises RuntimeError where all are taken.
    """
    for number in random.sample(_DOMAINS, len(_DOMAINS)):
        path = Path(tempfile.gettempdir(), f"oxygen_ros_domain_{number}")
        with suppress(PermissionError):  # another user's, who may be long gone
            path.touch()
        with suppress(BlockingIOError), ExitStack() as files:
            claim = files.enter_context(path.open())
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _claims.append(files.pop_all())
            return number
    raise RuntimeError(f"all ROS domains from {_DOMAINS[0]} to {_DOMAINS[-1]} are taken: set ROS_DOMAIN_ID")


def keep_to_ourselves() -> None:
    """For us and our children: neither hear nor move the robots of the network that we happen to run on."""
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    if "ROS_DOMAIN_ID" not in os.environ:
        os.environ["ROS_DOMAIN_ID"] = str(claim_domain())


@contextmanager
def child_process(command: list[str], log: Path) -> Iterator[subprocess.Popen]:
    """A child that is told to end, and if need be made to, when the block is left."""
    child = None
    with log.open("w") as file:
        try:
            with signals_held_back():
                # A session of its own: Ctrl-C is for us, and we end our children in order.
                child = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
            yield child
        finally:
            if child is not None:
                _end(child)


def _end(child: subprocess.Popen) -> None:
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
    try:
        child.wait(timeout=15)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


@contextmanager
def signals_held_back() -> Iterator[None]:
    """What comes meanwhile is handled afterwards: raised while a child is being made, it would leave it to nobody."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, frame: came.append(number)) for number in _STOP}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in came:
            signal.raise_signal(number)


def end_on_signals() -> None:
    """Ctrl-C and SIGTERM raise KeyboardInterrupt, once."""
    for number in _STOP:
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: object) -> None:
    """Ctrl-C or SIGTERM: from then on our children are being ended, which a second one must not stop."""
    for again in _STOP:
        signal.signal(again, signal.SIG_IGN)
    raise KeyboardInterrupt


def last_error(log: Path) -> str:
    """What a child's log says went wrong, on one line."""
    lines = [line for line in log.read_text().splitlines() if line.strip()]
    errors = [line for line in lines if "ERROR" in line] or lines[-1:]
    return f"{errors[-1].partition(']: ')[2] or errors[-1]} (all of it: {log})" if errors else f"see {log}"
