"""The node with a meter at its engine: FILE gets a line a frame, see `Frame`. FILE, then the node's own arguments."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from ..engine.engine import Engine
from ..engine.outputs import Actions, Output
from ..node.main import main

_frame = Engine.frame


@dataclass(frozen=True)
class Frame:
    """What the engine took, in seconds of its thread's CPU, waiting for nobody.

    chunk: until the actions. whole: until the end of the frame. queued: ready to go on before the actions, while other
    threads and processes had all cores. ready: `time.time` of the actions.
    """

    chunk: float
    whole: float
    queued: float
    ready: float


def frames(file: Path) -> list[Frame]:
    return [Frame(**json.loads(line)) for line in file.read_text().splitlines()]


def _queued() -> float:
    """Seconds that this thread has waited for a core so far, as Linux counts them."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


def _meter(file: Path) -> None:
    lines = file.open("w", buffering=1)

    def frame(self: Engine, *arguments, **options) -> Iterator[Output]:
        outputs, took, queue, made = _frame(self, *arguments, **options), 0.0, _queued(), (0.0, 0.0, 0.0)
        while True:
            began = time.thread_time()
            output = next(outputs, None)
            took += time.thread_time() - began
            if output is None:
                break
            if isinstance(output, Actions):
                made = took, _queued() - queue, time.time()
            yield output
        lines.write(json.dumps(asdict(Frame(made[0], took, *made[1:]))) + "\n")

    Engine.frame = frame


if __name__ == "__main__":
    _meter(Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
