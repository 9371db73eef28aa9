"""Log lines that repeat, said once per kind and period."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Throttle:
    """Lets one line per key through each `period` seconds, and says how many it held back."""

    def __init__(self, period: float = 5.0) -> None:
        self._period = period
        self._lock = threading.Lock()
        self._said: dict[str, tuple[float, int]] = {}

    def __call__(self, log: Callable[[str], object], key: str, text: str) -> None:
        now = time.monotonic()
        with self._lock:
            last, held = self._said.get(key, (None, 0))
            if last is not None and now - last < self._period:
                self._said[key] = (last, held + 1)
                return
            self._said[key] = (now, 0)
        log(f"{text} ({held} more like this since)" if held else text)
