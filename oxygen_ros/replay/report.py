"""The evaluation as one HTML file that needs nothing else: no script, no font, no picture from elsewhere."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import PurePath
from typing import Any

import numpy as np
from PIL import Image

from ..embodiment.errors import InputError
from ..plain_cdr import header_stamp_ns
from . import svg
from .evaluate import Evaluation
from .measures import executed
from .rollout import Moment, Rollout

_WORST = 4
_PICTURE = 300  # px
_SIDE_COLOURS = ("first", "second")
_MOST_ANSWERS = 20
MEANINGS = (
    "MAE: mean absolute difference to the recorded commands, in the robot's units; / range: as a share of the action's "
    "limits, or of its recorded range. hold: of staying where the robot is; mean: of the recording's own mean action. "
    "A policy that is not better than these is of no use. jump: between two chunks, where one takes over. stale: ticks "
    "without a chunk because an input was missing or old. missed: ticks for which this machine was too slow."
)

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #667085; --paper: #fff; --rule: #e2e6ec; --panel: #f6f8fa;
  --recorded: #8a94a3; --first: #0b6bcb; --second: #d9730d; --bad: #c62828; --good: #2e8b57; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #98a2b3; --paper: #14181f; --rule: #2c333d;
  --panel: #1b2129; --recorded: #78828f; --first: #5aa9f5; --second: #f2a154; --bad: #ef6b6b; --good: #5fbf8a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1080px; padding: 28px 24px 80px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 44px 0 8px; border-top: 2px solid var(--rule);
  padding-top: 18px; overflow-wrap: anywhere; } h3 { font-size: 15px; margin: 24px 0 6px; }
p { margin: 4px 0; } .soft, .empty, caption { color: var(--soft); } caption { text-align: left; padding: 2px 0; }
.warn { color: var(--bad); font-weight: 600; }
table { border-collapse: collapse; margin: 8px 0; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 12px 3px 0; text-align: right; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } th { font-weight: 600; }
td.name { white-space: normal; overflow-wrap: anywhere; min-width: 150px; max-width: 260px; }
.scroll { overflow-x: auto; }
.grid2 { display: grid; grid-template-columns: repeat(auto-fill, minmax(440px, 1fr)); gap: 6px 18px; }
figure { margin: 0; } figcaption { font-size: 13px; } svg { width: 100%; height: auto; display: block; }
.tick { fill: var(--soft); font: 11px system-ui, sans-serif; } .inbar { fill: #fff; font: 11px system-ui, sans-serif; }
.grid { stroke: var(--rule); } .mark { stroke: var(--soft); stroke-width: .8; fill: none; }
.line { fill: none; stroke-width: 1.5; stroke-linejoin: round; }
.recorded { stroke: var(--recorded); stroke-width: 2.2; } .first { stroke: var(--first); }
.second { stroke: var(--second); stroke-dasharray: 5 3; } .hold { stroke: var(--good); }
.mean { stroke: var(--soft); stroke-dasharray: 4 3; } .bar { fill: var(--first); }
.limit { stroke: var(--bad); stroke-dasharray: 4 3; }
rect.chunk { fill: var(--first); } rect.waiting { fill: var(--bad); } rect.failed { fill: var(--ink); }
rect.task { fill: var(--good); } rect.answer { fill: var(--second); }
.key i { display: inline-block; width: 18px; height: 3px; vertical-align: middle; margin: 0 4px 0 12px; }
.pictures { display: flex; gap: 8px; flex-wrap: wrap; }
.pictures img { width: 300px; max-width: 100%; border-radius: 4px; display: block; } td.words { white-space: normal; }
td.words, th.words { text-align: left; }
.moment { background: var(--panel); border-radius: 6px; padding: 10px 14px; margin: 10px 0; }
ul { margin: 4px 0; padding-left: 20px; }
"""


def page(about: Mapping[str, Any], total: Mapping[str, Any] | None, results: Sequence[Mapping[str, Any]],
         sections: Sequence[str]) -> str:
    """about: rows of the head. total: of `overall`. sections: those of `bag_section`, in their order."""
    failed = [result for result in results if "error" in result]
    rows = "".join(f"<tr><td>{escape(str(name))}</td><td class='words'>{escape(str(value))}</td></tr>"
                   for name, value in about["rows"].items())
    parts = [f"<h1>Replay evaluation</h1><p class='soft'>oxygen_ros, {escape(about['time'])}</p>"]
    parts += [f"<p class='warn'>{escape(line)}</p>" for line in about["warnings"]]
    parts.append(f"<table>{rows}</table>")
    if failed:
        parts.append("<h3>Not evaluated</h3>" + _list([result["error"] for result in failed], "warn"))
    if total:
        parts.append(_summary(total, results))
    return ("<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
            "content='width=device-width, initial-scale=1'><title>Replay evaluation</title>"
            f"<link rel='icon' href='data:,'><style>{_STYLE}</style></head><body>{''.join(parts)}{''.join(sections)}"
            "</body></html>\n")


def _summary(total: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> str:
    head = ("bag", "side", "chunks", "MAE", "hold", "mean", "MAE / range", "jump mean", "first chunk p50", "p99",
            "stale", "missed", "tokens/s")
    rows = []
    for result in results:
        for side, found in result.get("sides", {}).items():
            rows.append(_summary_row(PurePath(result["bag"]).name, side, found, found["motion"]["chunk_boundary_jump"]))
    for side, found in total["sides"].items():
        rows.append(_summary_row(f"all {total['bags']}", side, found, found["chunk_boundary_jump"]))
    return f"<h3>Summary</h3>{_table(head, rows)}<p class='soft'>{MEANINGS}</p>{_difference(total.get('difference'))}"


def _summary_row(name: str, side: str, found: Mapping[str, Any], jump: Mapping[str, Any]) -> list[str]:
    accuracy, timing = found["accuracy"] or {}, found["timing"]
    latency = timing["first_chunk_latency_s"] or {}
    errors = [(accuracy.get(kind) or {}).get("mae") for kind in ("policy", "hold_position", "mean_action")]
    return [
        name, side, f"{timing['chunks']}/{timing['ticks']}", *map(_n, errors),
        percent((accuracy.get("policy") or {}).get("normalised_mae")), _n(jump["mean"]), _ms(latency.get("p50")),
        _ms(latency.get("p99")), percent(timing["stale_input_rate"]), percent(timing["deadline_miss_rate"]),
        _n(found["language"]["tokens_per_s"]),
    ]


def _difference(found: Mapping[str, Any] | None) -> str:
    if not found:
        return ""
    texts = found["different_texts"] if "different_texts" in found else len(found["texts"]["different"])
    alone = found.get("frames_in_one_only")
    return (f"<p><b>Second side less first</b>, over {found['frames']} frames: actions differ by at most "
            f"{_n(found['max'])}, {_n(found['mean'])} on average; {texts} texts differ."
            + (f" {alone} frames were made by one of the two only." if alone else "") + "</p>")


def bag_section(done: Evaluation, key: str) -> str:
    """Everything about one bag, as a piece of HTML."""
    result, robot = done.result, done.sides[0].policy.robot
    count = sum(topic["count"] for topic in result["topics"].values())
    unused = f"; not used: {escape(', '.join(result['not_used']))}" if result["not_used"] else ""
    parts = [f"<h2 id='{escape(key)}'>{escape(result['bag'])}</h2>",
             f"<p class='soft'>{result['duration_s']:.1f} s, {count} messages{unused}</p>"]
    if result["partial"]:
        parts.append("<p class='warn'>Partial: stopped before the end of the bag.</p>")
    notes = result["notes"] + [note for side in result["sides"].values() for note in side["notes"]]
    if notes:
        parts.append(_list(list(dict.fromkeys(notes))))
    parts.append(_difference(result.get("difference")))
    parts.append(_key(done) + _grid([_joint(done, dim) for dim in range(robot.action_dim)]))
    parts.append("<h3>Error by dimension and by step of the chunk</h3>" + _errors(done))
    parts.append("<h3>Time to the first chunk</h3>" + _grid([
        _figure(side.name, _latency(result["sides"][side.name]["frames"], side.name, rollout))
        for side, rollout in zip(done.sides, done.rollouts)
    ]) + "<p class='soft'>The dashed line is the control period.</p>")
    parts.append("<h3>Frames and words</h3>" + "".join(
        _figure(side.name, _timeline(rollout)) for side, rollout in zip(done.sides, done.rollouts)))
    parts.append(_answers(done))
    parts.append(_worst(done))
    return "".join(parts)


def _key(done: Evaluation) -> str:
    colours = [("recorded", "var(--recorded)")] if done.commands else []
    colours += [(side.name, f"var(--{colour})") for side, colour in zip(done.sides, _SIDE_COLOURS)]
    return ("<h3>Recorded and predicted</h3><p class='key soft'>" + "".join(
        f"<i style='background:{value}'></i>{escape(name)}" for name, value in colours)
        + "; each tick on the axis is where a chunk takes over</p>")


def _joint(done: Evaluation, dim: int) -> str:
    robot = done.sides[0].policy.robot
    drawn, marks = [], np.zeros(0)
    for side, rollout, colour in zip(done.sides, done.rollouts, _SIDE_COLOURS):
        if dim >= side.policy.robot.action_dim:
            continue
        rows = executed(rollout, side.policy.robot)
        t = (rows.times_ns - rollout.start_ns) / 1e9
        drawn.append(svg.Line(side.name, colour, t, rows.values[:, dim]))
        if not len(marks):
            marks = t[rows.first]
    if done.commands:
        start_ns, last_ns = done.rollouts[0].start_ns, done.rollouts[0].moments[-1].tick_ns
        there = (done.commands.times_ns >= start_ns) & (done.commands.times_ns <= last_ns)
        t = (done.commands.times_ns[there] - start_ns) / 1e9
        drawn.insert(0, svg.Line("recorded", "recorded", t, done.commands.values[there, dim]))
    name = robot.actions[dim]
    return _figure(name, svg.lines(drawn, about=name, across="s", marks=marks))


def _latency(frames: Sequence[Mapping[str, Any]], side: str, rollout: Rollout) -> str:
    spent = [f["first_chunk_latency"] * 1e3 for f in frames if f["first_chunk_latency"] is not None]
    return svg.histogram(spent, about=f"time to the first chunk of {side}", across="ms", mark=rollout.period_ns / 1e6)


def _errors(done: Evaluation) -> str:
    tables, plots = [], []
    for name, side in done.result["sides"].items():
        if not side["accuracy"]:
            tables.append(f"<p class='soft'>{escape(name)}: there are no recorded commands to compare with</p>")
            continue
        kinds = side["accuracy"]
        policy, hold, mean = (kinds[kind]["per_dimension"] for kind in ("policy", "hold_position", "mean_action"))
        rows = [[action, _n(policy["mae"][d]), _n(policy["rmse"][d]), percent(policy["normalised_mae"][d]),
                 _n(hold["mae"][d]), _n(mean["mae"][d])] for d, action in enumerate(done.result["actions"])]
        head = ("action", "MAE", "RMSE", "MAE / range", "hold MAE", "mean MAE")
        tables.append(f"<p class='soft'>{escape(name)}</p>" + _table(head, rows))
        drawn = []
        for kind, css in (("policy", "first"), ("hold_position", "hold"), ("mean_action", "mean")):
            errors = np.array(kinds[kind]["per_step"]["mae"], float)
            drawn.append(svg.Line(kind, css, np.arange(len(errors)) * done.result["step_dt"], errors))
        plots.append(_figure(f"{name}: MAE over the chunk; blue the policy, green hold, dashed mean action", svg.lines(
            drawn, about=f"error by step of {name}", across="s", from_zero=True)))
    return _grid(plots) + "".join(tables)


def _timeline(rollout: Rollout) -> str:
    period, last_ns = rollout.period_ns / 1e9, rollout.moments[-1].tick_ns

    def seconds(ns: int) -> float:
        return max((ns - rollout.start_ns) / 1e9, 0.0)

    frames = []
    for moment in rollout.moments:
        t = seconds(moment.tick_ns)
        kind = "chunk" if moment.actions is not None else "waiting" if moment.stats else "failed"
        about = [f"{topic} {(moment.tick_ns - stamp) / 1e6:.0f} ms old" for topic, stamp in moment.used.items()]
        about += [f"no chunk: {reason}" for reason in moment.reasons]
        frames.append(svg.Bar(t, t + period * 0.85, kind, about=f"{t:.2f} s: {'; '.join(about)}"))
    told = sorted(rollout.instructions.values(), key=lambda item: item[1])
    until = [ns for _, ns in told[1:]] + [last_ns]
    tasks = [svg.Bar(seconds(ns), seconds(to), "task", text) for (text, ns), to in zip(told, until)]
    rows: list[tuple[str, list[svg.Bar]]] = [("frames", frames), ("task", tasks)]
    for answer in rollout.answers[:_MOST_ANSWERS]:
        ended = max(answer.last_ns, answer.asked_ns)
        words = svg.Bar(seconds(answer.asked_ns), seconds(ended), "answer", _flat(answer.text) or answer.detail)
        rows.append((f"{answer.task} {answer.request_id}", [words]))
    end = max(seconds(last_ns) + period, *(bar.end for _, bars in rows for bar in bars))
    return svg.timeline(rows, about="frames and words over time", across="s", end=end)


def _flat(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _answers(done: Evaluation) -> str:
    rows = []
    for side, rollout in zip(done.sides, done.rollouts):
        for answer in rollout.answers[:_MOST_ANSWERS]:
            asked = f"{(answer.asked_ns - rollout.start_ns) / 1e9:.2f} s"
            first = f"{(answer.first_ns - answer.asked_ns) / 1e6:.0f} ms" if answer.first_ns else "-"
            rows.append([side.name, f"{answer.task} {answer.request_id}", asked, first, str(answer.tokens),
                         answer.finish_reason, _flat(answer.text) or answer.detail])
    head = ("side", "request", "asked", "first token", "tokens", "end", "text")
    return _table(head, rows, words=True) if rows else ""


def _worst(done: Evaluation) -> str:
    """The chunks of the first side that are farthest from what was recorded, and what the robot saw then."""
    rollout, side = done.rollouts[0], done.result["sides"][done.sides[0].name]
    ranked = sorted((f["normalised_mae"], i) for i, f in enumerate(side["frames"]) if f["normalised_mae"] is not None)
    apart: list[int] = []
    for _, index in reversed(ranked):  # neighbours would show the same again
        if all(abs(index - other) * rollout.period_ns >= 0.5e9 for other in apart):
            apart.append(index)
        if len(apart) == _WORST:
            break
    pictures = _pictures(done, [rollout.moments[i] for i in apart])
    parts = []
    for index in apart:
        moment, frame = rollout.moments[index], side["frames"][index]
        images = "".join(
            _figure(f"{name}, stamp {moment.used[source.topic]}",
                    f"<img alt='{escape(name)}' src='data:image/jpeg;base64,{pictures[source.topic, moment.tick_ns]}'>")
            for name, source in done.sources[0].cameras.items() if (source.topic, moment.tick_ns) in pictures)
        parts.append(f"<div class='moment'><b>{frame['t']:.2f} s</b>, frame {moment.sequence}: MAE / range "
                     f"{percent(frame['normalised_mae'])}<div class='pictures'>{images}</div></div>")
    return f"<h3>Worst moments</h3>{''.join(parts)}" if parts else ""


def _pictures(done: Evaluation, moments: Sequence[Moment]) -> dict[tuple[str, int], str]:
    """(topic, tick) -> JPEG in base64, of the very message that the frame used."""
    cameras = {source.topic: source for source in done.sources[0].cameras.values()}
    wanted: dict[tuple[str, int], list[int]] = {}
    for moment in moments:
        for topic in cameras:
            if topic in moment.used:
                wanted.setdefault((topic, moment.used[topic]), []).append(moment.tick_ns)
    found: dict[tuple[str, int], str] = {}
    last_ns = max((moment.tick_ns for moment in moments), default=0)
    bag = replace(done.bag, wanted=lambda: True)  # a report that was asked for is made to its end
    for message in bag.messages(list(cameras)) if wanted else ():
        stamp_ns = header_stamp_ns(message.data) or message.received_ns
        for tick_ns in wanted.get((message.topic, stamp_ns), ()):
            if (message.topic, tick_ns) not in found and message.received_ns <= tick_ns:
                try:
                    found[message.topic, tick_ns] = _jpeg(cameras[message.topic].decode(message.data))
                except InputError:
                    continue
        if message.received_ns > last_ns or len(found) == sum(map(len, wanted.values())):
            break
    return found


def _figure(caption: str, inner: str) -> str:
    return f"<figure><figcaption>{escape(caption)}</figcaption>{inner}</figure>"


def _grid(figures: Sequence[str]) -> str:
    return f"<div class='grid2'>{''.join(figures)}</div>"


def _list(lines: Sequence[str], kind: str = "") -> str:
    return "<ul>" + "".join(f"<li class='{kind}'>{escape(line)}</li>" for line in lines) + "</ul>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], words: bool = False) -> str:
    """words: the last column is text."""
    kinds = ["name"] + [""] * (len(head) - 1)
    if words:
        kinds[-1] = "words"

    def row(cells: Sequence[str], tag: str) -> str:
        return "".join(f"<{tag} class='{kind}'>{escape(cell)}</{tag}>" for kind, cell in zip(kinds, cells))

    lines = [row(head, "th"), *(row(cells, "td") for cells in rows)]
    return f"<div class='scroll'><table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table></div>"


def _jpeg(pixels: np.ndarray) -> str:
    picture = Image.fromarray(np.ascontiguousarray(pixels))
    picture.thumbnail((_PICTURE * 2, _PICTURE * 2))
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=80)
    return base64.b64encode(file.getvalue()).decode()


def _n(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}" if value < 100 else f"{value * 100:.4g}%"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value * 1e3:.0f} ms"
