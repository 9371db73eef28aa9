"""The node with inference that takes longer: SECONDS of work on every core before each frame. SECONDS, then the node's
own arguments."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import torch

from ..engine.engine import Engine
from ..engine.outputs import Output
from ..node.main import main

_frame = Engine.frame


def _slow_down(seconds: float) -> None:
    def frame(self: Engine, *arguments, **options) -> Iterator[Output]:
        end, matrix = time.monotonic() + seconds, torch.ones(512, 512)
        while time.monotonic() < end:
            matrix = (matrix @ matrix).clamp(0, 1)
        yield from _frame(self, *arguments, **options)

    Engine.frame = frame


if __name__ == "__main__":
    _slow_down(float(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
