"""Log lines that repeat, said once per topic, kind and period."""

from __future__ import annotations

import re
import threading
import time

_NUMBER = re.compile(r"\d+(\.\d+)?")
_KINDS = 8  # of one topic in a period: a message may be wrong in another way each time
_CROWD = 64  # lines of which to remember when each was said; older ones are forgotten first


class Throttle:
    """Lets one line per topic and kind through each `period` seconds, and says how many it held back.

    Lines that differ in nothing but numbers are of one kind; of one topic there are not more than a few. The caller
    logs: rclpy raises where one place in the code logs at two severities.
    """

    def __init__(self, period: float = 5.0) -> None:
        self._period = period
        self._lock = threading.Lock()
        self._said: dict[tuple[str, str], tuple[float, int]] = {}

    def __call__(self, topic: str, text: str) -> str | None:
        """The line to log now, or None."""
        now, key = time.monotonic(), (topic, _NUMBER.sub("#", text))
        with self._lock:
            if key not in self._said and self._kinds(topic, now) >= _KINDS:
                return None
            said, held = self._said.pop(key, (None, 0))
            if said is not None and now - said < self._period:
                self._said[key] = (said, held + 1)
                return None
            self._said[key] = (now, 0)
            while len(self._said) > _CROWD:
                del self._said[next(iter(self._said))]
        return f"{text} ({held} more like this since)" if held else text

    def _kinds(self, topic: str, now: float) -> int:
        return sum(key[0] == topic and now - said < self._period for key, (said, _) in self._said.items())
