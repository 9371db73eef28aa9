"""From records to the JSON of interfaces.md, and from that to a table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from .side_by_side import Record

BASE = "isolated_sequential"


def modes(records: Mapping[str, Record], horizon: int, steady: bool) -> dict[str, dict]:
    """The numbers of each mode; what was not measured is None.

    chunk_rate_hz is frames per second of the mode's own frames, action_rate_hz = horizon * chunk_rate_hz. The speedup
    is that of the median frame; where requests do not come evenly (`steady` false) that of the chunk rate, as the
    median frame may have none.
    """
    rows = {name: _mode(record, horizon) for name, record in records.items()}
    base = rows.get(BASE)
    for row in rows.values():
        ratio = None
        if base and base["chunk_rate_hz"] and row["chunk_rate_hz"]:
            by_rate = row["chunk_rate_hz"] / base["chunk_rate_hz"]
            ratio = base["frame_s"]["p50"] / row["frame_s"]["p50"] if steady else by_rate
        row["speedup_vs_isolated_sequential"] = ratio
    return rows


def _mode(record: Record, horizon: int) -> dict:
    frames = len(record.frames)
    total = sum(record.frames)
    rate = frames / total if frames else None
    joules = record.joules if frames else None
    return {
        "frame_s": percentiles(record.frames),
        "first_chunk_s": percentiles(record.first_chunks),
        "chunk_rate_hz": rate,
        "action_rate_hz": rate and horizon * rate,
        "tokens_per_s": record.tokens / total if frames else None,
        "requests_completed": record.completed,
        "request_latency_s": percentiles(record.latencies),
        "prefix_tokens": record.prefix_tokens,
        "peak_memory_bytes": record.peak_memory,
        "energy_per_frame_j": None if joules is None else joules / frames,
        "energy_per_request_j": None if joules is None or not record.completed else joules / record.completed,
    }


def percentiles(values: Sequence[float]) -> dict[str, float | None]:
    if not values:
        return {"p50": None, "p99": None}
    ordered = sorted(values)
    return {"p50": statistics.median(ordered), "p99": ordered[min(len(ordered) - 1, round(0.99 * (len(ordered) - 1)))]}


COLUMNS = (
    ("frame p50 ms", lambda m: _ms(m["frame_s"]["p50"])),
    ("p99", lambda m: _ms(m["frame_s"]["p99"])),
    ("chunk p50 ms", lambda m: _ms(m["first_chunk_s"]["p50"])),
    ("p99", lambda m: _ms(m["first_chunk_s"]["p99"])),
    ("chunks/s", lambda m: _number(m["chunk_rate_hz"])),
    ("actions/s", lambda m: _number(m["action_rate_hz"])),
    ("tokens/s", lambda m: _number(m["tokens_per_s"])),
    ("answers", lambda m: str(m["requests_completed"])),
    ("after p50 s", lambda m: _number(m["request_latency_s"]["p50"])),
    ("prefix", lambda m: _number(m["prefix_tokens"])),
    ("peak MB", lambda m: _number(m["peak_memory_bytes"] and m["peak_memory_bytes"] / 1e6)),
    ("J/frame", lambda m: _number(m["energy_per_frame_j"])),
    ("speedup", lambda m: _number(m["speedup_vs_isolated_sequential"])),
)


def table(result: Mapping) -> str:
    """The result for people."""
    machine, settings, lines = result["machine"], result["settings"], []
    threads = "1 thread" if machine["threads"] == 1 else f"{machine['threads']} threads"
    lines.append(f"{machine['cpu']}, {threads}, torch {machine['torch']}, {machine['date']}"
                 + (f", {machine['gpu']}" if machine["gpu"] else ""))
    lines.append(f"matmul {machine['matmul_flops'] / 1e9:.0f} GFLOP/s, bandwidth "
                 f"{machine['bandwidth_bytes_per_s'] / 1e9:.1f} GB/s, "
                 f"load average before {_number(machine['load_average_before'])}")
    known = [f"{name} {value}" for name, value in settings.items() if value is not None]
    lines.append(", ".join([result["model"], result["workload"], *known]))
    if result["modes"]:
        heads = ["mode", *(name for name, _ in COLUMNS)]
        rows = [[name, *(show(mode) for _, show in COLUMNS)] for name, mode in result["modes"].items()]
        lines += ["", *_aligned([heads, *rows]), f"actions/s = {settings['horizon']} actions a chunk x chunks/s"]
    if result["breakdown"]:
        rows = [[name, _ms(item["with_s"]), _ms(item["without_s"]), _number(item["without_s"] / item["with_s"])]
                for name, item in result["breakdown"].items()]
        lines += ["", *_aligned([["what it saves", "ms with", "without", "ratio"], *rows])]
    if result["roofline"]:
        rows = [[name, _ms(part["bound_s"]), _ms(part["measured_s"]), f"{100 * part['fraction']:.0f} %",
                 f"{100 * part['cached_bound_s'] / part['measured_s']:.0f} %"]
                for name, part in result["roofline"].items() if isinstance(part, dict)]
        lines += ["", *_aligned([["limit", "bound ms", "measured", "reached", "if read from a cache"], *rows])]
    if told := result.get("beside"):
        lines += ["", f"first chunk alone {_ms(told['alone_s'])} ms, beside {told['requests']} live requests "
                  f"{_ms(told['beside_s'])} ms: {100 * told['change']:+.1f} %"]
    if told := result.get("endurance"):
        grown = "-" if told["growth_bytes"] is None else f"{told['growth_bytes'] / 1e6:+.2f} MB"
        lines += ["", f"{told['minutes']:g} minutes, {told['frames']} frames, {told['frames_at_full_pool']} of them at "
                  f"a full pool, {told['requests']} requests: memory {grown}"]
    return "\n".join(lines)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))])
        for row in rows
    ]


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.1f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
