"""The paper's figures, drawn from runs of the modes at several decode lengths and budgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

DECODE_LENGTHS = (5, 10, 20, 30, 60, 120)
BUDGETS = (1, 2, 3, 5, 10, 30)
ALIVE = 6
"""Requests alive in mode oxygen along the decode lengths: as many as 30 tokens at 5 steps a frame keep."""

Run = Callable[[Sequence[str], int, int], Mapping[str, dict]]
"""Modes, decode tokens and steps per frame -> the numbers of each mode (report.modes)."""


def sweep(run: Run, modes: Sequence[str], tokens: int, say: Callable[[str], None]) -> dict:
    """Every mode at each decode length; mode oxygen at each number of steps per frame, with `tokens` to decode."""
    lengths, budgets = [], []
    for length in DECODE_LENGTHS:
        per_frame = max(1, round(length / ALIVE))
        say(f"{length} decode tokens, {per_frame} steps a frame")
        lengths.append({"decode_tokens": length, "steps_per_frame": per_frame, "modes": run(modes, length, per_frame)})
    for steps in (steps for steps in BUDGETS if steps <= tokens):
        say(f"{tokens} decode tokens, {steps} steps a frame")
        budgets.append({"decode_tokens": tokens, "steps_per_frame": steps, "modes": run(["oxygen"], tokens, steps)})
    return {"decode_length": lengths, "steps_per_frame": budgets}


def draw(result: Mapping, directory: Path) -> list[Path]:
    """action_rate.png, ablation.png and steps_per_frame.png of a sweep, in `directory`. Needs matplotlib."""
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    directory.mkdir(parents=True, exist_ok=True)
    swept, horizon = result["sweep"], result["settings"]["horizon"]
    where = f"{result['model']}, {result['workload']}, {result['machine']['gpu'] or result['machine']['cpu']}"

    def figure(name: str, title: str) -> tuple[Axes, Callable[[], Path]]:
        made = Figure(figsize=(6.4, 4.2), layout="constrained")
        axes = made.add_subplot(title=f"{title}\n{where}")

        def save() -> Path:
            made.savefig(directory / name, dpi=150)
            return directory / name

        return axes, save

    files = []
    lengths = swept["decode_length"]
    modes = list(lengths[0]["modes"])
    axes, save = figure("action_rate.png", "Action rate by decode length")
    for mode in modes:
        axes.plot([p["decode_tokens"] for p in lengths], [p["modes"][mode]["action_rate_hz"] for p in lengths],
                  marker="o", label=mode)
    axes.set(xlabel="decode tokens per request, one request a frame", ylabel=f"actions/s ({horizon} a chunk)",
             xscale="log", ylim=(0, None))
    axes.set_xticks([p["decode_tokens"] for p in lengths], [str(p["decode_tokens"]) for p in lengths])
    axes.legend()
    files.append(save())

    axes, save = figure("ablation.png", "What sharing and batching bring")
    width = 0.8 / len(modes)
    for index, mode in enumerate(modes):
        ratios = [p["modes"][mode]["speedup_vs_isolated_sequential"] for p in lengths]
        places = [place + (index - (len(modes) - 1) / 2) * width for place in range(len(lengths))]
        axes.bar(places, [ratio or 0.0 for ratio in ratios], width, label=mode)
    axes.set(xlabel="decode tokens per request", ylabel="speedup over isolated_sequential")
    axes.set_xticks(range(len(lengths)), [str(p["decode_tokens"]) for p in lengths])
    axes.legend()
    files.append(save())

    budgets = swept["steps_per_frame"]
    axes, save = figure("steps_per_frame.png", f"Actions against language, {budgets[0]['decode_tokens']} tokens")
    steps = [p["steps_per_frame"] for p in budgets]
    axes.plot(steps, [p["modes"]["oxygen"]["action_rate_hz"] for p in budgets], marker="o", label="actions/s")
    axes.plot(steps, [p["modes"]["oxygen"]["tokens_per_s"] for p in budgets], marker="s", label="tokens/s")
    axes.set(xlabel="decode steps per frame", ylabel="per second", ylim=(0, None))
    latency = axes.twinx()
    latency.plot(steps, [p["modes"]["oxygen"]["request_latency_s"]["p50"] for p in budgets], color="gray", marker="^")
    latency.set(ylabel="request latency, s (triangles)", ylim=(0, None))
    axes.legend()
    files.append(save())
    return files
