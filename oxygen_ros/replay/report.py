"""The evaluation as one HTML file that needs nothing else: no script, no font, no picture from elsewhere."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import PurePath
from typing import Any

import numpy as np
from PIL import Image

from ..embodiment.errors import InputError
from ..inputs import header_stamp_ns
from . import svg
from .evaluate import Evaluation
from .measures import executed
from .rollout import Moment, Rollout

_WORST = 4
_PICTURE = 300  # px
_SIDE_COLOURS = ("first", "second")

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
.line { fill: none; stroke-width: 1.5; stroke-linejoin: round; } .recorded { stroke: var(--recorded); stroke-width: 2.2; }
.first { stroke: var(--first); } .second { stroke: var(--second); stroke-dasharray: 5 3; } .hold { stroke: var(--good); }
.mean { stroke: var(--soft); stroke-dasharray: 4 3; } .bar { fill: var(--first); } .limit { stroke: var(--bad); stroke-dasharray: 4 3; }
rect.chunk { fill: var(--first); } rect.waiting { fill: var(--bad); } rect.failed { fill: var(--ink); }
rect.task { fill: var(--good); } rect.answer { fill: var(--second); }
.key i { display: inline-block; width: 18px; height: 3px; vertical-align: middle; margin: 0 4px 0 12px; }
.pictures { display: flex; gap: 8px; flex-wrap: wrap; } .pictures img { width: 300px; max-width: 100%; border-radius: 4px; display: block; }
.moment { background: var(--panel); border-radius: 6px; padding: 10px 14px; margin: 10px 0; }
ul { margin: 4px 0; padding-left: 20px; }
"""


def page(about: Mapping[str, Any], total: Mapping[str, Any] | None, results: Sequence[Mapping[str, Any]],
         sections: Sequence[str]) -> str:
    """about: rows of the head. total: of `overall`. sections: those of `bag_section`, in their order."""
    failed = [result for result in results if "error" in result]
    rows = "".join(f"<tr><td>{escape(str(k))}</td><td style='text-align:left;white-space:normal'>{escape(str(v))}</td></tr>"
                   for k, v in about["rows"].items())
    parts = [f"<h1>Replay evaluation</h1><p class='soft'>oxygen_ros, {escape(about['time'])}</p>"]
    parts += [f"<p class='warn'>{escape(line)}</p>" for line in about["warnings"]]
    parts.append(f"<table>{rows}</table>")
    if failed:
        parts.append("<h3>Not evaluated</h3><ul>" + "".join(f"<li class='warn'>{escape(r['error'])}</li>" for r in failed) + "</ul>")
    if total:
        parts.append(_summary(total, results))
    return ("<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
            "content='width=device-width, initial-scale=1'><title>Replay evaluation</title>"
            f"<link rel='icon' href='data:,'><style>{_STYLE}</style></head><body>{''.join(parts)}{''.join(sections)}"
            "</body></html>\n")


def _summary(total: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> str:
    head = ("<tr><th>bag</th><th>side</th><th>chunks</th><th>MAE</th><th>hold</th><th>mean</th><th>MAE / range</th>"
            "<th>jump mean</th><th>first chunk p50</th><th>p99</th><th>stale</th><th>missed</th><th>tokens/s</th></tr>")
    rows = []
    for result in results:
        for side, found in result.get("sides", {}).items():
            rows.append(_summary_row(PurePath(result["bag"]).name, side, found, found["motion"]["chunk_boundary_jump"]))
    for side, found in total["sides"].items():
        rows.append(_summary_row(f"all {total['bags']}", side, found, found["chunk_boundary_jump"]))
    note = ("<p class='soft'>MAE: mean absolute difference to the recorded commands, in the robot's units. hold: of staying "
            "where the robot is; mean: of the recording's own mean action. A policy that is not better than these is of no "
            "use. jump: between two chunks where one takes over. stale: ticks without a chunk because an input was missing or "
            "old. missed: ticks for which this machine was too slow.</p>")
    return (f"<h3>Summary</h3><div class='scroll'><table>{head}{''.join(rows)}</table></div>{note}"
            + _difference(total.get("difference")))


def _summary_row(name: str, side: str, found: Mapping[str, Any], jump: Mapping[str, Any]) -> str:
    accuracy, timing = found["accuracy"] or {}, found["timing"]
    latency = timing["first_chunk_latency_s"] or {}
    cells = [f"{timing['chunks']}/{timing['ticks']}", *(_n((accuracy.get(k) or {}).get("mae")) for k in ("policy", "hold_position", "mean_action")),
             _percent((accuracy.get("policy") or {}).get("normalised_mae")), _n(jump["mean"]), _ms(latency.get("p50")), _ms(latency.get("p99")),
             _percent(timing["stale_input_rate"]), _percent(timing["deadline_miss_rate"]), _n(found["language"]["tokens_per_s"])]
    return f"<tr><td class='name'>{escape(name)}</td><td>{escape(side)}</td>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>"


def _difference(found: Mapping[str, Any] | None) -> str:
    if not found:
        return ""
    texts = found["different_texts"] if "different_texts" in found else len(found["texts"]["different"])
    return (f"<p><b>Second side less first</b>, over {found['frames']} frames: actions differ by at most {_n(found['max'])}, "
            f"{_n(found['mean'])} on average; {texts} texts differ."
            + (f" {found['frames_in_one_only']} frames were made by one of the two only." if found.get("frames_in_one_only") else "")
            + "</p>")


def bag_section(done: Evaluation, key: str) -> str:
    """Everything about one bag, as a piece of HTML."""
    result, robot = done.result, done.sides[0].policy.robot
    parts = [f"<h2 id='{escape(key)}'>{escape(result['bag'])}</h2>",
             f"<p class='soft'>{result['duration_s']:.1f} s, {sum(t['count'] for t in result['topics'].values())} messages"
             + (f"; not used: {escape(', '.join(result['not_used']))}" if result["not_used"] else "") + "</p>"]
    if result["partial"]:
        parts.append("<p class='warn'>Partial: stopped before the end of the bag.</p>")
    notes = result["notes"] + [note for side in result["sides"].values() for note in side["notes"]]
    if notes:
        parts.append("<ul>" + "".join(f"<li>{escape(n)}</li>" for n in dict.fromkeys(notes)) + "</ul>")
    parts.append(_difference(result.get("difference")))
    parts.append(_key(done) + "<div class='grid2'>" + "".join(_joint(done, d) for d in range(robot.action_dim)) + "</div>")
    parts.append("<h3>Error by dimension and by step of the chunk</h3>" + _errors(done))
    parts.append("<h3>Time to the first chunk</h3><div class='grid2'>" + "".join(
        f"<figure><figcaption>{escape(side.name)}</figcaption>" + svg.histogram(
            [f["first_chunk_latency"] * 1e3 for f in result["sides"][side.name]["frames"] if f["first_chunk_latency"] is not None],
            about=f"time to the first chunk of {side.name}", across="ms", mark=rollout.period_ns / 1e6) + "</figure>"
        for side, rollout in zip(done.sides, done.rollouts)) + "</div><p class='soft'>The dashed line is the control period.</p>")
    parts.append("<h3>Frames and words</h3>" + "".join(
        f"<figure><figcaption>{escape(side.name)}</figcaption>{_timeline(rollout)}</figure>"
        for side, rollout in zip(done.sides, done.rollouts)))
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
    return f"<figure><figcaption>{escape(name)}</figcaption>{svg.lines(drawn, about=name, across='s', marks=marks)}</figure>"


def _errors(done: Evaluation) -> str:
    tables, plots = [], []
    for name, side in done.result["sides"].items():
        if not side["accuracy"]:
            tables.append(f"<p class='soft'>{escape(name)}: not compared, there are no recorded commands to compare with</p>")
            continue
        kinds = side["accuracy"]
        rows = "".join(
            f"<tr><td>{escape(action)}</td>" + "".join(f"<td>{_n(kinds['policy']['per_dimension'][m][d])}</td>" for m in ("mae", "rmse"))
            + f"<td>{_percent(kinds['policy']['per_dimension']['normalised_mae'][d])}</td>"
            + "".join(f"<td>{_n(kinds[k]['per_dimension']['mae'][d])}</td>" for k in ("hold_position", "mean_action")) + "</tr>"
            for d, action in enumerate(done.result["actions"][: len(kinds["policy"]["per_dimension"]["mae"])]))
        tables.append(f"<div class='scroll'><table><caption>{escape(name)}</caption><tr><th>action</th><th>MAE</th><th>RMSE</th>"
                      f"<th>MAE / range</th><th>hold MAE</th><th>mean MAE</th></tr>{rows}</table></div>")
        steps = [svg.Line(k, css, np.arange(len(kinds[k]["per_step"]["mae"])) * done.result["step_dt"],
                          np.array(kinds[k]["per_step"]["mae"], float))
                 for k, css in (("policy", "first"), ("hold_position", "hold"), ("mean_action", "mean"))]
        plots.append(f"<figure><figcaption>{escape(name)}: MAE over the chunk; blue the policy, green hold, dashed mean action</figcaption>"
                     + svg.lines(steps, about=f"error by step of {name}", across="s", from_zero=True) + "</figure>")
    return "<div class='grid2'>" + "".join(plots) + "</div>" + "".join(tables)


def _timeline(rollout: Rollout) -> str:
    period, start_ns = rollout.period_ns / 1e9, rollout.start_ns
    frames = []
    for moment in rollout.moments:
        t = (moment.tick_ns - start_ns) / 1e9
        kind = "chunk" if moment.actions is not None else "waiting" if moment.stats else "failed"
        used = "; ".join(f"{topic} {(moment.tick_ns - stamp) / 1e6:.0f} ms old" for topic, stamp in moment.used.items())
        frames.append(svg.Bar(t, t + period * 0.85, kind, about=f"{t:.2f} s: " + (used or "no chunk: " + "; ".join(moment.reasons))))
    end = max((rollout.moments[-1].tick_ns - start_ns) / 1e9 + period,
              *(max((a.last_ns - start_ns) / 1e9, 0.0) for a in rollout.answers), 0.0)
    told = sorted(rollout.instructions.values(), key=lambda item: item[1])
    until = [ns for _, ns in told[1:]] + [rollout.moments[-1].tick_ns]
    tasks = [svg.Bar((ns - start_ns) / 1e9, max((to - start_ns) / 1e9, 0.0), "task", text) for (text, ns), to in zip(told, until)]
    rows: list[tuple[str, list[svg.Bar]]] = [("frames", frames), ("task", tasks)]
    rows += [(f"{a.task} {a.request_id}", [svg.Bar((a.asked_ns - start_ns) / 1e9, (max(a.last_ns, a.asked_ns) - start_ns) / 1e9,
                                                  "answer", _flat(a.text) or a.detail)]) for a in rollout.answers[:20]]
    return svg.timeline(rows, about="frames and words over time", across="s", end=max(end, period))


def _flat(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _answers(done: Evaluation) -> str:
    rows = []
    for side, rollout in zip(done.sides, done.rollouts):
        for a in rollout.answers:
            first = f"{(a.first_ns - a.asked_ns) / 1e6:.0f} ms" if a.first_ns else "-"
            rows.append(f"<tr><td>{escape(side.name)}</td><td>{a.task} {a.request_id}</td><td>{(a.asked_ns - rollout.start_ns) / 1e9:.2f} s</td>"
                        f"<td>{first}</td><td>{a.tokens}</td><td>{a.finish_reason}</td>"
                        f"<td style='text-align:left;white-space:normal'>{escape(_flat(a.text) or a.detail)}</td></tr>")
    if not rows:
        return ""
    return ("<div class='scroll'><table><tr><th>side</th><th>request</th><th>asked</th><th>first token</th><th>tokens</th><th>end</th>"
            f"<th style='text-align:left'>text</th></tr>{''.join(rows)}</table></div>")


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
            f"<figure><img alt='{escape(name)}' src='data:image/jpeg;base64,{data}'><figcaption class='soft'>{escape(name)}, stamp "
            f"{moment.used[done.sources[0].cameras[name].topic]}</figcaption></figure>"
            for name in done.sources[0].cameras if (data := pictures.get((done.sources[0].cameras[name].topic, moment.tick_ns))))
        parts.append(f"<div class='moment'><b>{frame['t']:.2f} s</b>, frame {moment.sequence}: MAE / range "
                     f"{_percent(frame['normalised_mae'])}<div class='pictures'>{images}</div></div>")
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
    for message in done.bag.messages(list(cameras)) if wanted else ():
        stamp_ns = header_stamp_ns(message.data) or message.received_ns
        for tick_ns in wanted.get((message.topic, stamp_ns), ()):
            if (message.topic, tick_ns) not in found and message.received_ns <= tick_ns:
                try:
                    found[message.topic, tick_ns] = _jpeg(cameras[message.topic].decode(message.data))
                except InputError:
                    continue
        if len(found) == sum(map(len, wanted.values())):
            break
    return found


def _jpeg(pixels: np.ndarray) -> str:
    picture = Image.fromarray(np.ascontiguousarray(pixels))
    picture.thumbnail((_PICTURE * 2, _PICTURE * 2))
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=80)
    return base64.b64encode(file.getvalue()).decode()


def _n(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value * 1e3:.0f} ms"
