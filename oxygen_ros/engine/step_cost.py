"""How long the next decode step will take, from those already taken on this machine."""

from __future__ import annotations


class StepCost:
    """Seconds of a batched decode step as a function of its rows, learnt as it goes and pessimistic.

    A slower step is believed at once, a faster one slowly: a deadline is missed by an estimate that is too low.
    """

    def __init__(self, forget: float = 0.1) -> None:
        self._forget = forget
        self._seconds: dict[int, float] = {}

    def learn(self, rows: int, seconds: float) -> None:
        known = self._seconds.get(rows, seconds)
        self._seconds[rows] = max(seconds, known + self._forget * (seconds - known))

    def doubt(self) -> None:
        """A step was not taken for what it would cost: believe a little less, lest one slow step end all others."""
        self._seconds = {rows: seconds * (1 - self._forget / 2) for rows, seconds in self._seconds.items()}

    def estimate(self, rows: int) -> float:
        """The known cost of at least as many rows, or the largest known one scaled up; 0 if nothing is known."""
        at_least = [n for n in self._seconds if n >= rows]
        if at_least:
            return self._seconds[min(at_least)]
        if not self._seconds:
            return 0.0
        largest = max(self._seconds)
        return self._seconds[largest] * rows / largest
