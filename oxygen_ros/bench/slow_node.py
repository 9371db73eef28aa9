"""The node with inference that takes longer: OXYGEN_SLOW seconds of work on every core before each frame."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

import torch

from ..engine.engine import Engine
from ..engine.outputs import Output
from ..node.main import main

_SECONDS = float(os.environ.get("OXYGEN_SLOW", "2"))
_frame = Engine.frame


def _slow_frame(self: Engine, *arguments, **options) -> Iterator[Output]:
    end, matrix = time.monotonic() + _SECONDS, torch.ones(512, 512)
    while time.monotonic() < end:
        matrix = (matrix @ matrix).clamp(0, 1)
    yield from _frame(self, *arguments, **options)


if __name__ == "__main__":
    Engine.frame = _slow_frame
    sys.exit(main())
