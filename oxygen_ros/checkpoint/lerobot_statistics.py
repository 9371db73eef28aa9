"""Where LeRobot keeps normalisation statistics: state files of its processors, or, long ago, the weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from .errors import CheckpointError
from .files import reading_safetensors
from .inventory import some
from .lerobot_processors import POSTPROCESSOR, PREPROCESSOR, Processors, Step
from .statistics import IDENTITY_REMEDY, Measures, NoStatistics, vectors
from .tensors import TensorFolder

# LeRobot's normalisation mode -> our measure <- its statistic. The formula of min and max, and of the 10 % quantiles,
# is that of the 1 % quantiles, so they take the place of q01 and q99.
MODES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "QUANTILES": ("lerobot_quantiles", {"q01": "q01", "q99": "q99"}),
    "QUANTILE10": ("lerobot_quantiles", {"q01": "q10", "q99": "q90"}),
    "MIN_MAX": ("lerobot_quantiles", {"q01": "min", "q99": "max"}),
    "MEAN_STD": ("lerobot_mean_std", {}),
    "IDENTITY": ("identity", {}),
}
FEATURES = {"state": "observation.state", "actions": "action"}
_BUFFERS = {"state": ("normalize_inputs.",), "actions": ("unnormalize_outputs.", "normalize_targets.")}


def read_feature(ours: str, mode: str, processors: Processors, tensors: TensorFolder, say: Callable[[str], None]
                 ) -> Measures:
    """Statistics of `state` or `actions` as the normalisation mode needs them.

    say is told which were taken where the names leave room for doubt. Raises NoStatistics where there are none at
    all, CheckpointError where several could be meant or the named file is broken.
    """
    feature = FEATURES[ours]
    step, file = (processors.normalizer, PREPROCESSOR) if ours == "state" else (processors.unnormalizer, POSTPROCESSOR)
    state = _state_file(processors.folder, step, file)
    chosen = _choose(state, feature, f"{processors.folder / file}'s state file", say) if state else None
    buffers: list[str] = []
    for prefix in _BUFFERS[ours]:
        buffers = [name for name in tensors if name.startswith(prefix)]
        if chosen is None and buffers:
            stored = {name: tensors[name].float().numpy().copy() for name in buffers}
            chosen = _choose(stored, feature, "the weights (an old LeRobot folder)", say, always_say=True)
    if chosen is None:
        have = some(sorted(state or buffers)) or "nothing"
        raise NoStatistics(
            f"no normalisation statistics of {feature} in {processors.folder}: {file}'s state file and the weights' "
            f"normalize_* buffers have {have}; {IDENTITY_REMEDY}"
        )
    renamed = {**{m: m for m in ("mean", "std", "q01", "q99")}, **MODES[mode][1]}
    try:
        return vectors({to: chosen[source] for to, source in renamed.items() if source in chosen})
    except ValueError as error:
        raise CheckpointError(f"statistics of {feature} in {processors.folder}: {error}") from error


def _state_file(folder: Path, step: Step | None, described_in: str) -> Mapping[str, np.ndarray]:
    if step is None or step.state_file is None:
        return {}
    path = folder / step.state_file
    if not path.is_file():
        raise CheckpointError(f"{folder / described_in} names {step.state_file}, which is missing: copy it again")
    with reading_safetensors(path):
        return load_file(path)


def _choose(tensors: Mapping[str, np.ndarray], feature: str, place: str, say: Callable[[str], None],
            always_say: bool = False) -> Mapping[str, np.ndarray] | None:
    """statistic -> values of the feature; under its own name, or under the only longer one that ends in it."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, values in tensors.items():
        owner, _, statistic = name.rpartition(".")
        if _matches(owner, feature):
            found.setdefault(owner, {})[statistic] = np.atleast_1d(values)
    if feature not in found and len(found) > 1:
        raise CheckpointError(
            f"{place} has several statistics that could be {feature}'s: {', '.join(sorted(found))}; "
            f"keep one of them, as {feature}.<statistic>"
        )
    owner = feature if feature in found else next(iter(found), None)
    if owner is None:
        return None
    if owner != feature or always_say:
        say(f"warning: statistics of {feature} are taken from {owner} in {place}")
    return found[owner]


def _matches(owner: str, feature: str) -> bool:
    """`so100.buffer.action` and `unnormalize_outputs.buffer_action` are action's: dots were underscores once."""
    plain = owner.replace("_", ".")
    return plain == feature or (plain.endswith("." + feature) and not _is_longer_feature(plain, feature))


def _is_longer_feature(plain: str, feature: str) -> bool:
    """`observation.last.action` is an observation, not the action."""
    return feature == "action" and "observation." in plain

