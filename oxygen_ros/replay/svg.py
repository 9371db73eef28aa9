"""Small plots as inline SVG: lines, histograms, timelines. Colours are classes of the page's style sheet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

_MOST_POINTS = 1200  # of a line; more than a screen has
_LEFT, _BOTTOM, _TOP, _RIGHT = 52, 20, 8, 8
_UNIT = 36  # where the unit of the x axis stands, from the right


@dataclass(frozen=True)
class Line:
    """x, y: [n], NaN in y breaks the line. kind: CSS class."""

    label: str
    kind: str
    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class Bar:
    """A span of a timeline with what is written in it and said of it."""

    start: float
    end: float
    kind: str
    text: str = ""
    about: str = ""


@dataclass(frozen=True)
class _Frame:
    """Data ranges onto a picture."""

    width: int
    height: int
    low: tuple[float, float]
    high: tuple[float, float]

    def x(self, value: np.ndarray | float) -> np.ndarray | float:
        return _LEFT + (value - self.low[0]) / (self.high[0] - self.low[0]) * (self.width - _LEFT - _RIGHT)

    def y(self, value: np.ndarray | float) -> np.ndarray | float:
        share = (value - self.low[1]) / (self.high[1] - self.low[1])
        return self.height - _BOTTOM - share * (self.height - _BOTTOM - _TOP)

    def axes(self, across: str) -> str:
        parts = []
        for value in _round_values(self.low[1], self.high[1], max(2, self.height // 28)):
            y = self.y(value)
            parts.append(f'<line class="grid" x1="{_LEFT}" x2="{self.width - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
                         + _tick(_LEFT - 5, y + 3, f"{value:g}", "end"))
        for value in _round_values(self.low[0], self.high[0], max(2, self.width // 90)):
            if self.x(value) < self.width - _UNIT:
                parts.append(_tick(self.x(value), self.height - 6, f"{value:g}"))
        return "".join(parts) + _tick(self.width - _RIGHT, self.height - 6, across, "end")

    def svg(self, inner: str, about: str) -> str:
        return _svg(self.width, self.height, inner, about)


def _svg(width: int, height: int, inner: str, about: str) -> str:
    about = escape(about)
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{about}"><title>{about}</title>{inner}</svg>'


def _tick(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text class="tick" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def lines(drawn: Sequence[Line], *, about: str, across: str, marks: Sequence[float] = (), width: int = 480,
          height: int = 150, from_zero: bool = False) -> str:
    """marks: places on the x axis with a small tick."""
    x = np.concatenate([line.x for line in drawn] or [np.zeros(0)])
    y = np.concatenate([line.y[np.isfinite(line.y)] for line in drawn] or [np.zeros(0)])
    if not len(x) or not len(y):
        return f"<p class='empty'>{escape(about)}: nothing to draw</p>"
    low, high = min(y.min(), 0) if from_zero else y.min(), y.max()
    margin = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    frame = _Frame(width, height, (x.min(), low if from_zero and low == 0 else low - margin),
                   (x.max() if x.max() > x.min() else x.min() + 1, high + margin))
    bottom = height - _BOTTOM
    inner = frame.axes(across)
    if len(marks):
        inner += '<path class="mark" d="' + "".join(f"M{frame.x(m):.1f} {bottom}v-5" for m in marks) + '"/>'
    for line in drawn:
        inner += f'<path class="line {line.kind}" d="{_path(frame, *_thinned(line.x, line.y))}"/>'
    return frame.svg(inner, about)


def histogram(values: Sequence[float], *, about: str, across: str, mark: float | None = None, width: int = 480,
              height: int = 150) -> str:
    """mark: a place that is drawn as a line, such as a limit."""
    if not len(values):
        return f"<p class='empty'>{escape(about)}: nothing to draw</p>"
    low, high = min(values), max(max(values), mark or 0)
    counts, edges = np.histogram(values, bins=40, range=(low, high if high > low else low + 1e-9))
    frame = _Frame(width, height, (edges[0], 0.0), (edges[-1], float(max(counts)) * 1.05))
    bars = "".join(
        f'<rect class="bar" x="{frame.x(a):.1f}" y="{frame.y(n):.1f}" height="{frame.y(0) - frame.y(n):.1f}" '
        f'width="{max(frame.x(b) - frame.x(a) - 1, 0.5):.1f}"><title>{n} frames, {a:.4g} to {b:.4g}</title></rect>'
        for n, a, b in zip(counts, edges, edges[1:]) if n)
    if mark is not None:
        x = frame.x(mark)
        bars += f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{height - _BOTTOM}"/>'
    return frame.svg(frame.axes(across) + bars, about)


def timeline(rows: Sequence[tuple[str, Sequence[Bar]]], *, about: str, across: str, end: float, width: int = 980
             ) -> str:
    """rows: name and its bars, times from 0 to `end`."""
    row_height, left = 24, 92
    height = row_height * len(rows) + 24
    scale = (width - left - _RIGHT) / end
    inner = []
    for number, (name, bars) in enumerate(rows):
        top = number * row_height + 4
        inner.append(_tick(left - 6, top + 13, name, "end"))
        for bar in bars:
            x, wide = left + bar.start * scale, max((bar.end - bar.start) * scale, 0.7)
            fits = int(wide / 6.2)
            text = bar.text if len(bar.text) <= fits else bar.text[: max(fits - 1, 0)] + "…" if fits > 3 else ""
            written = f'<text class="inbar" x="{x + 3:.1f}" y="{top + 13}">{escape(text)}</text>' if text else ""
            inner.append(f'<g><title>{escape(bar.about or bar.text)}</title><rect class="{bar.kind}" x="{x:.1f}" '
                         f'y="{top}" width="{wide:.1f}" height="{row_height - 6}"/>{written}</g>')
    for value in _round_values(0, end, 10):
        if left + value * scale < width - _UNIT:
            inner.append(_tick(left + value * scale, height - 6, f"{value:g}"))
    inner.append(_tick(width - _RIGHT, height - 6, across, "end"))
    return _svg(width, height, "".join(inner), about)


def _thinned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest of each stretch, so that no peak is lost."""
    if len(x) <= _MOST_POINTS:
        return x, y
    keep = []
    for piece in np.array_split(np.arange(len(x)), _MOST_POINTS // 2):
        known = piece[np.isfinite(y[piece])]
        keep += sorted({known[y[known].argmin()], known[y[known].argmax()]}) if len(known) else [piece[0]]
    return x[keep], y[keep]


def _path(frame: _Frame, x: np.ndarray, y: np.ndarray) -> str:
    steps, pen = [], "M"
    for across, up in zip(np.atleast_1d(frame.x(x)), np.atleast_1d(frame.y(y))):
        if np.isfinite(up):
            steps.append(f"{pen}{across:.1f} {up:.1f}")
            pen = "L"
        else:
            pen = "M"
    return "".join(steps)


def _round_values(low: float, high: float, most: int) -> list[float]:
    """At most so many numbers with few digits between two."""
    rough = (high - low) / most
    unit = 10.0 ** np.floor(np.log10(rough)) if rough > 0 else 1.0
    step = next(unit * f for f in (1, 2, 5, 10) if unit * f >= rough * 0.999)
    first = int(np.ceil(low / step - 1e-9))
    return [round(n * step, 12) for n in range(first, int(np.floor(high / step + 1e-9)) + 1)]
