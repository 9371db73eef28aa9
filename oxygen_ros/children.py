"""Processes that a command starts and ends, on a network of their own."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STOP = (signal.SIGINT, signal.SIGTERM)


def keep_to_ourselves() -> None:
    """For us and our children: neither hear nor move the robots of the network that we happen to run on."""
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    os.environ.setdefault("ROS_DOMAIN_ID", str(random.randint(1, 101)))


@contextmanager
def child_process(command: list[str], log: Path) -> Iterator[subprocess.Popen]:
    """A child that is told to end, and if need be made to, when the block is left."""
    with log.open("w") as file:
        # A session of its own: Ctrl-C is for us, and we end our children in order.
        child = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            yield child
        finally:
            if child.poll() is None:
                child.send_signal(signal.SIGINT)
            try:
                child.wait(timeout=15)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


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
