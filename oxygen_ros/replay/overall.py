"""Many bags' results as one: means by how much was compared, percentiles over all frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .measures import percentiles, plain


_RATES = ("skipped_frame_rate", "stale_input_rate", "failed_frame_rate", "deadline_miss_rate")


def overall(results: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Of bags that were evaluated; None of none. By side, and the difference where there are two."""
    names = list(dict.fromkeys(name for result in results for name in result["sides"]))
    if not names:
        return None
    sides = {name: _side([r["sides"][name] for r in results if name in r["sides"]]) for name in names}
    differences = [r["difference"] for r in results if r.get("difference")]
    found: dict[str, Any] = {"bags": len(results), "sides": sides}
    if differences:
        counted = [(d["mean"], d["frames"]) for d in differences if d["mean"] is not None]
        found["difference"] = {
            "frames": sum(d["frames"] for d in differences),
            "max": max((d["max"] for d in differences if d["max"] is not None), default=None),
            "mean": _weighted(*zip(*counted)) if counted else None,
            "different_texts": sum(len(d["texts"]["different"]) for d in differences),
        }
    return plain(found)


def _side(sides: Sequence[dict[str, Any]]) -> dict[str, Any]:
    known = [side["accuracy"] for side in sides if side["accuracy"]]
    kinds = list(known[0]) if known else []
    frames = [frame for side in sides for frame in side["frames"]]
    timing = [side["timing"] for side in sides]
    ticks = sum(t["ticks"] for t in timing)
    jumps = [side["motion"]["chunk_boundary_jump"] for side in sides]
    jumps = [j for j in jumps if j["count"]]
    language = [side["language"] for side in sides]
    tokens = [(x["tokens_per_s"], x["tokens"]) for x in language if x["tokens_per_s"]]

    def rate(key: str) -> float:
        return sum(t[key] * t["ticks"] for t in timing) / ticks

    return {
        "accuracy": {kind: _accuracy([accuracy[kind] for accuracy in known]) for kind in kinds} or None,
        "chunk_boundary_jump": {
            "count": sum(j["count"] for j in jumps),
            "mean": _weighted([j["mean"] for j in jumps], [j["count"] for j in jumps]),
            "max": max((j["max"] for j in jumps), default=None),
        },
        "timing": {
            "ticks": ticks, "chunks": sum(t["chunks"] for t in timing),
            **{key: rate(key) for key in _RATES},
            "first_chunk_latency_s": percentiles([f["first_chunk_latency"] for f in frames
                                                  if f["first_chunk_latency"] is not None]),
        },
        "language": {
            **{key: sum(x[key] for x in language) for key in ("requests", "finished", "tokens")},
            "tokens_per_s": _weighted(*zip(*tokens)) if tokens else None,
        },
    }


def _accuracy(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for where in ("per_dimension", "per_step"):
        width = max(len(p[where]["mae"]) for p in parts)
        same = [p for p in parts if len(p[where]["mae"]) == width]  # one policy has one size
        count = np.sum([p[where]["count"] for p in same], 0)
        rmse = np.sqrt(_each(same, where, "rmse", 2))
        found[where] = {"mae": _each(same, where, "mae"), "rmse": rmse, "count": count}
        if where == "per_dimension":
            found[where]["normalised_mae"] = _each(same, where, "normalised_mae")
    count = [p["count"] for p in parts]
    normal = np.array(found["per_dimension"]["normalised_mae"])
    return {
        "mae": _weighted([p["mae"] for p in parts], count),
        "rmse": (squared := _weighted([p["rmse"] and p["rmse"] ** 2 for p in parts], count)) and squared**0.5,
        "normalised_mae": float(np.nanmean(normal)) if np.isfinite(normal).any() else None,
        "count": sum(count), **found,
    }


def _each(parts: Sequence[dict[str, Any]], where: str, key: str, power: int = 1) -> np.ndarray:
    """Weighted means of lists, place by place."""
    values = np.array([p[where][key] for p in parts], float) ** power
    weights = np.where(np.isfinite(values), np.array([p[where]["count"] for p in parts], float), 0)
    total = weights.sum(0)
    return np.divide((np.where(weights > 0, values, 0) * weights).sum(0), total, out=np.full(len(total), np.nan),
                     where=total > 0)


def _weighted(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    known = [(v, w) for v, w in zip(values, weights) if v is not None and w]
    return sum(v * w for v, w in known) / sum(w for _, w in known) if known else None
