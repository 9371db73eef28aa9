"""Normalisation statistics as every layout gives them, and openpi's norm_stats.json (pi05.md section 10.1)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .errors import CheckpointError
from .files import read_json

Measures = Mapping[str, np.ndarray]
"""`mean`, `std`, `q01`, `q99` (those that the folder gives) -> one number per dimension, float64."""

Statistics = Mapping[str, Measures]
"""`state` and `actions` -> their measures."""

FILE = "norm_stats.json"
MEASURES = ("mean", "std", "q01", "q99")
_LEVELS = ("", "*/", "*/*/", "*/*/*/")
IDENTITY_REMEDY = "give the folder its statistics, or set identity_statistics if the policy was trained without"


class NoStatistics(CheckpointError):
    """There are none at all: the one fault that a user may accept on purpose."""


def find_norm_stats(folder: Path, asset_id: str = "") -> Path:
    """openpi's norm_stats.json: in the folder, in its assets/<asset_id>/, or in those beside it.

    openpi keeps assets beside the checkpoint, its trainer inside. An asset id may hold `/`. Raises NoStatistics with
    the paths looked at, CheckpointError with the ids where several could be meant or the given one is not there.
    """
    places = [folder / "assets", folder.resolve().parent / "assets"]
    if not asset_id and (folder / FILE).is_file():
        return folder / FILE
    found = [_assets(place) for place in places]
    looked = ", ".join(str(path) for path in (folder / FILE, *(place / "<asset_id>" / FILE for place in places)))
    if asset_id:
        path = next((paths[asset_id] for paths in found if asset_id in paths), None)
        if path is None:
            ids = ", ".join(sorted({i for paths in found for i in paths})) or "none"
            raise CheckpointError(f"{folder} has statistics of {ids}, not of asset_id {asset_id!r}; looked at {looked}")
        return path
    paths = next(filter(None, found), {})
    if not paths:
        raise NoStatistics(f"no normalisation statistics in {folder}: looked at {looked}; {IDENTITY_REMEDY}")
    if len(paths) > 1:
        raise CheckpointError(
            f"{folder} has statistics for several robots: {', '.join(paths)}; say which one with the parameter asset_id"
        )
    return next(iter(paths.values()))


def _assets(place: Path) -> dict[str, Path]:
    """Asset id -> file. By levels, because rglob passes by assets that are links."""
    files = [path for level in _LEVELS for path in place.glob(level + FILE)]
    return {path.parent.relative_to(place).as_posix(): path for path in sorted(files)}


def read_norm_stats(path: Path) -> Statistics:
    """`{"norm_stats": {"state": {...}, "actions": {...}}}`, or the inner object alone.

    Raises CheckpointError for anything else: a feature without statistics, ragged lists, what is not a number.
    """
    content = read_json(path)
    content = content.get("norm_stats", content)
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: norm_stats is {type(content).__name__}, expected an object")
    return {feature: _measures(content, feature, path) for feature in ("state", "actions")}


def _measures(content: Mapping[str, Any], feature: str, path: Path) -> Measures:
    given = content.get(feature)
    if not isinstance(given, dict):
        raise CheckpointError(f"{path} has no statistics of {feature}; it has {', '.join(content) or 'nothing'}")
    try:
        return vectors({m: given[m] for m in MEASURES if given.get(m) is not None})
    except ValueError as error:
        raise CheckpointError(f"{path}: statistics of {feature}: {error}") from error


def vectors(measures: Mapping[str, Any]) -> Measures:
    """One float64 vector per measure. Raises ValueError for ragged lists, no numbers, and unequal lengths."""
    result = {}
    for measure, values in measures.items():
        try:
            array = np.asarray(values, np.float64)
        except (ValueError, TypeError):
            raise ValueError(f"{measure} is ragged or holds something else than numbers") from None
        if array.ndim != 1:
            raise ValueError(f"{measure} has shape {list(array.shape)}, expected one number per dimension")
        result[measure] = array
    lengths = {measure: len(array) for measure, array in result.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"unequal lengths {', '.join(f'{m} {n}' for m, n in lengths.items())}")
    return result


def write_norm_stats(path: Path, statistics: Statistics) -> None:
    """In openpi's form, which holds LeRobot's statistics just as well; the numbers survive exactly."""
    content = {
        feature: {measure: values.tolist() for measure, values in measures.items()}
        for feature, measures in statistics.items()
    }
    path.write_text(json.dumps({"norm_stats": content}, indent=1) + "\n")


def check_rules(statistics: Statistics, rules: Mapping[str, str], folder: Path) -> None:
    """Raises CheckpointError where a feature lacks the measures of its normalisation rule."""
    for feature, rule in rules.items():
        needs = () if rule == "identity" else ("q01", "q99") if "quantile" in rule else ("mean", "std")
        missing = [measure for measure in needs if measure not in statistics[feature]]
        if missing:
            raise CheckpointError(
                f"{folder}: the statistics of {feature} have no {' and '.join(missing)}, which rule {rule} needs; "
                f"they have {', '.join(statistics[feature]) or 'nothing'}"
            )
