"""Control ticks over a recording, and what had come by each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .bag import Recorded


def period_ns(control_rate: float) -> int:
    """As the node's timer has it."""
    return int(1e9 / control_rate)


def ticks(messages: Iterable[Recorded], start_ns: int, end_ns: int, every_ns: int
          ) -> Iterator[tuple[int, list[Recorded]]]:
    """(time of a tick, messages received since the tick before, and by it), from `start_ns` + `every_ns` to `end_ns`.

    The first has everything that was received before. messages: in the order of receipt.
    """
    pending, ahead = iter(messages), None
    for tick_ns in range(start_ns + every_ns, end_ns + 1, every_ns):
        come: list[Recorded] = []
        while ahead is not None or (ahead := next(pending, None)) is not None:
            if ahead.received_ns > tick_ns:
                break
            come.append(ahead)
            ahead = None
        yield tick_ns, come
