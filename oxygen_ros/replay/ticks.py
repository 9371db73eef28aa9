"""Control ticks over a recording, and what had come by each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from .bag import Recorded


def period_ns(control_rate: float) -> int:
    """As the node's timer has it."""
    return int(1e9 / control_rate)


def ticks(messages: Iterable[Recorded], start_ns: int, end_ns: int, every_ns: int, patience_ns: int,
          silent: Callable[[int, int, int], None]) -> Iterator[tuple[int, list[Recorded]]]:
    """(time of a tick, messages received since the tick before, and by it), from `start_ns` + `every_ns` to `end_ns`.

    The first has everything that was received before. messages: in the order of receipt. Where none is received for
    longer than `patience_ns`, the ticks after that are left out: one stray message may lie months after the others.
    silent: is told of such a gap, with its begin, its end and how many ticks were left out.
    """
    pending = iter(messages)
    ahead, heard_ns, tick_ns = next(pending, None), start_ns, start_ns + every_ns
    while tick_ns <= end_ns:
        come: list[Recorded] = []
        while ahead is not None and ahead.received_ns <= tick_ns:
            come.append(ahead)
            ahead = next(pending, None)
        if come:
            heard_ns = come[-1].received_ns
        next_ns = end_ns + 1 if ahead is None else min(ahead.received_ns, end_ns + 1)
        if tick_ns <= heard_ns + patience_ns or come:
            yield tick_ns, come
            tick_ns += every_ns
        else:
            left_out = -(-(next_ns - tick_ns) // every_ns)
            silent(heard_ns, min(next_ns, end_ns), left_out)
            tick_ns += left_out * every_ns
