"""What is said on the terminal: how far it is, a table, and what its reader should know."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..embodiment.errors import on_one_line
from ..machine import busy
from .evaluate import Side
from .report import MEANINGS, percent

_MOST_REMARKS = 10  # of a bag


def table(results: Sequence[dict[str, Any]], total: dict[str, Any] | None) -> str:
    head = ("bag", "side", "chunks", "MAE", "hold", "mean", "/ range", "jump", "p50 ms", "stale", "missed")
    rows = [head]
    for result in results:
        for side, found in result["sides"].items():
            name = on_one_line(Path(result["bag"]).name)
            rows.append(_row(name, side, found, found["motion"]["chunk_boundary_jump"]))
    if total and len(results) > 1:
        rows += [_row("all", side, found, found["chunk_boundary_jump"]) for side, found in total["sides"].items()]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = [
        "  ".join(c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))) for row in rows
    ]
    return "\n".join([*lines, *textwrap.wrap(f"{MEANINGS} p50: from a tick to its chunk.", 120)])


def _row(name: str, side: str, found: dict[str, Any], jump: dict[str, Any]) -> tuple[str, ...]:
    accuracy, timing = found["accuracy"] or {}, found["timing"]
    latency = (timing["first_chunk_latency_s"] or {}).get("p50")
    maes = [(accuracy.get(kind) or {}).get("mae") for kind in ("policy", "hold_position", "mean_action")]
    normal = (accuracy.get("policy") or {}).get("normalised_mae")
    return (
        name, side, f"{timing['chunks']}/{timing['ticks']}", *map(_number, maes),
        percent(normal), _number(jump["mean"]),
        "-" if latency is None else f"{latency * 1e3:.0f}", f"{timing['stale_input_rate']:.1%}",
        f"{timing['deadline_miss_rate']:.1%}",
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def remarks(result: dict[str, Any]) -> list[str]:
    """What a reader of the table should know of one bag."""
    lines = result["notes"] + [note for side in result["sides"].values() for note in side["notes"]]
    lines = list(dict.fromkeys(lines))
    if len(lines) > _MOST_REMARKS:
        lines[_MOST_REMARKS:] = [f"{len(lines) - _MOST_REMARKS} more remarks are in the report"]
    if result["not_used"]:
        lines.append(f"not used: {', '.join(result['not_used'])}")
    if found := result.get("difference"):
        lines.append(f"actions differ by at most {_number(found['max'])} over {found['frames']} frames, "
                     f"{found['frames_in_one_only']} were made by one of the two only; "
                     f"{len(found['texts']['different'])} texts differ")
    return lines


def warnings(report: dict[str, Any], sides: Sequence[Side]) -> list[str]:
    lines = []
    if report["partial"]:
        left = len(report["not_reached"])
        lines.append("This report is partial: it was stopped" + (f", {left} bags were not reached." if left else "."))
    if busy(machine := report["machine"]):
        lines.append(f"The machine was busy before (load {machine['load_average_before']:.1f}): times are too long.")
    random = [side.name for side in sides if not side.policy.trained]
    if random:
        lines.append(f"The weights of {' and '.join(random)} are random: data flow and timing are real, actions and "
                     "words mean nothing.")
    return lines


class Meter:
    """A bar on a terminal, a line for each bag elsewhere."""

    def __init__(self, bags: int) -> None:
        self._bags, self._done, self._shown, self._began = bags, 0, 0.0, time.monotonic()

    def show(self, bag: str, share: float) -> None:
        now = time.monotonic()
        if not sys.stderr.isatty() or now - self._shown < 0.1:
            return
        self._shown = now
        whole = (self._done + share) / max(self._bags, 1)
        left = (now - self._began) * (1 - whole) / whole if whole > 0.01 else None
        bar = "#" * round(24 * whole)
        line = (f"[{bar:<24}] {whole:4.0%}  bag {self._done + 1} of {self._bags}: {on_one_line(Path(bag).name)}"
                + (f", {left:.0f} s left" if left is not None else ""))
        print("\r\033[K" + line[: shutil.get_terminal_size().columns - 1], end="", file=sys.stderr, flush=True)

    def done(self, error: str | None) -> None:
        self._done += 1
        self.close()
        if error:
            print(f"oxygen-replay: {error}", file=sys.stderr, flush=True)
        elif not sys.stderr.isatty():
            say(f"{self._done} of {self._bags} bags, {time.monotonic() - self._began:.1f} s")

    def close(self) -> None:
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def say(line: str) -> None:
    print(on_one_line(line), file=sys.stderr, flush=True)
