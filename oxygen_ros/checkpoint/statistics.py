"""Normalisation statistics: openpi's norm_stats.json and LeRobot's normaliser state files (pi05.md section 10)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from .errors import CheckpointError

Statistics = Mapping[str, Mapping[str, np.ndarray]]
"""`state` and `actions` -> `mean`, `std`, `q01`, `q99` (those that the folder gives) -> one number per dimension."""

_MEASURES = ("mean", "std", "q01", "q99")


def read_openpi_statistics(folder: Path) -> Statistics:
    """`norm_stats.json` of the folder, or of its only `assets/<asset_id>/`.

    Raises CheckpointError if there is none, or several to choose from.
    """
    direct = folder / "norm_stats.json"
    found = [direct] if direct.is_file() else sorted((folder / "assets").rglob("norm_stats.json"))
    if not found:
        raise CheckpointError(f"no normalisation statistics: neither {direct} nor {folder}/assets/*/norm_stats.json is there")
    if len(found) > 1:
        ids = ", ".join(str(path.parent.relative_to(folder / "assets")) for path in found)
        raise CheckpointError(f"{folder}/assets holds statistics for {ids}; keep the one of your robot")
    try:
        content = json.loads(found[0].read_text())
        content = content.get("norm_stats", content)
        return {
            name: {
                measure: np.asarray(content[name][measure], dtype=np.float64)
                for measure in _MEASURES
                if content[name].get(measure) is not None
            }
            for name in ("state", "actions")
        }
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{found[0]} does not hold norm_stats with state and actions: {error!r}") from error


def read_lerobot_statistics(folder: Path) -> Statistics:
    """The state files that policy_preprocessor.json and policy_postprocessor.json name.

    Raises CheckpointError if a file or a feature is missing.
    """
    state = _lerobot_state(folder, "policy_preprocessor.json", "normalizer_processor")
    actions = _lerobot_state(folder, "policy_postprocessor.json", "unnormalizer_processor")
    return {
        "state": _feature(state, "observation.state", folder),
        "actions": _feature(actions, "action", folder),
    }


def _lerobot_state(folder: Path, pipeline: str, step: str) -> Mapping[str, np.ndarray]:
    path = folder / pipeline
    try:
        steps = json.loads(path.read_text())["steps"]
        file = folder / next(s["state_file"] for s in steps if s.get("registry_name") == step)
        return load_file(file)
    except FileNotFoundError as error:
        raise CheckpointError(f"normalisation statistics are missing: {error.filename or path}") from error
    except (ValueError, KeyError, StopIteration) as error:
        raise CheckpointError(f"{path} names no state file for its {step}: {error!r}") from error


def _feature(state: Mapping[str, np.ndarray], feature: str, folder: Path) -> Mapping[str, np.ndarray]:
    measures = {m: state[f"{feature}.{m}"].astype(np.float64) for m in _MEASURES if f"{feature}.{m}" in state}
    if not measures:
        raise CheckpointError(f"the statistics of {folder} have nothing for {feature}; they have {', '.join(sorted(state))}")
    return measures
