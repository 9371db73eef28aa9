"""What a LeRobot policy folder says about its policy, and which LeRobot wrote it (pi05.md sections 9, 10.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .conventions import Conventions
from .errors import CheckpointError
from .layouts import EMBEDDING
from .lerobot_processors import PREPROCESSOR, Processors
from .lerobot_statistics import MODES
from .tensors import TensorFolder

_IMAGES, _EMPTY = "observation.images.", "empty_camera_"
_LACKING = ("use_visual_memory", "use_proprioceptive_memory", "rtc_training_max_delay")
Say = Callable[[str], None]


def is_lerobot(config: Mapping[str, Any], processors: Processors) -> bool:
    return "input_features" in config or "type" in config or bool(processors.before)


def check_policy(config: Mapping[str, Any]) -> None:
    """Raises CheckpointError for another kind of policy, or one that uses what this network lacks."""
    kind = config.get("type", "pi05")
    if kind != "pi05":
        raise CheckpointError(f"config.json says that this is a LeRobot policy of type {kind!r}; only pi05 is read")
    used = [name for name in _LACKING if config.get(name)]
    if used:
        told = ", ".join(f"{name} = {config[name]!r}" for name in used)
        raise CheckpointError(f"config.json sets {told}; this changes the network in a way that is not supported")


def normalization_modes(config: Mapping[str, Any], processors: Processors, say: Say) -> dict[str, str]:
    """`state` and `actions` -> LeRobot's normalisation mode.

    The steps' own norm_map is what LeRobot runs; config.json counts where there are no steps.
    """
    modes = {}
    stated = config.get("normalization_mapping") or {"STATE": "QUANTILES", "ACTION": "QUANTILES"}
    steps = (("state", "STATE", processors.normalizer), ("actions", "ACTION", processors.unnormalizer))
    for ours, theirs, step in steps:
        run = (step.config.get("norm_map") or stated) if step else stated
        # LeRobot leaves a kind of feature alone that the map does not list.
        modes[ours] = run.get(theirs, "IDENTITY")
        if modes[ours] not in MODES:
            raise CheckpointError(f"normalisation of {theirs} is {modes[ours]!r}; known: {', '.join(MODES)}")
        if modes[ours] != stated.get(theirs, "IDENTITY"):
            say(
                f"warning: config.json normalises {theirs} by {stated.get(theirs, 'IDENTITY')}, the processor files by "
                f"{modes[ours]}; the processor files are what LeRobot obeys"
            )
    return modes


def conventions(config: Mapping[str, Any], processors: Processors, tensors: TensorFolder, modes: Mapping[str, str],
                say: Say) -> Conventions:
    """The rules of the LeRobot that wrote the folder. say is told each rule and what decided it."""
    old = _is_0_4(config, processors, tensors)
    width = config.get("max_state_dim") or 32
    if old:
        say(
            f"written by LeRobot 0.4.x ({_without_relative(processors)}, embedding stored once): the state in the "
            f"prompt is padded to {width} numbers, pictures are padded with -3"
        )
    else:
        say(f"written by LeRobot 0.5 or later ({_reason(config, processors)}): the state in the prompt is not padded")
    say("pictures are scaled as LeRobot does, without antialiasing; flow times are exact")
    for ours, mode in modes.items():
        say(f"normalisation of {ours}: LeRobot's {mode}")
    if config.get("num_inference_steps", 10) != 10:
        say(
            f"warning: config.json asks for {config['num_inference_steps']} denoise steps (num_inference_steps); "
            "parameter denoise_steps decides"
        )
    if config.get("rtc_config"):
        say("warning: config.json sets rtc_config; real-time chunking is the node's to turn on, not the folder's")
    if processors.unknown:
        say(f"warning: processor steps that are not known here are left out: {', '.join(processors.unknown)}")
    return Conventions(
        normalization={ours: MODES[mode][0] for ours, mode in modes.items()},
        resize="lerobot",
        accumulated_time=False,
        padded_state_dim=width if old else None,
        prompt="state",
        camera_features=_cameras(config, processors, say),
        padding=-3.0 if old else -1.0,
        **_relative(config, processors, say),
    )


def _is_0_4(config: Mapping[str, Any], processors: Processors, tensors: TensorFolder) -> bool:
    """LeRobot 0.4.x knew no relative actions, and stored embedding and head once; 0.5.0 stores them twice.

    Nothing else in the folder tells 0.4.x from 0.5.0 (pi05.md section 10.4).
    """
    knows_relative = processors.relative is not None if processors.before else "use_relative_actions" in config
    return not knows_relative and EMBEDDING not in tensors


def _without_relative(processors: Processors) -> str:
    return f"no relative_actions_processor in {PREPROCESSOR}" if processors.before else "no use_relative_actions"


def _reason(config: Mapping[str, Any], processors: Processors) -> str:
    if processors.relative is not None:
        return "relative_actions_processor is there"
    return "use_relative_actions is there" if "use_relative_actions" in config else "embedding and head stored apart"


def _cameras(config: Mapping[str, Any], processors: Processors, say: Say) -> tuple[str, ...]:
    """The order of the visual features is the model's camera order; empty cameras never have a picture."""
    observed = {theirs: ours for ours, theirs in processors.rename_map.items()}
    visual = [name for name, feature in (config.get("input_features") or {}).items() if feature.get("type") == "VISUAL"]
    real = [name for name in visual if not name.removeprefix(_IMAGES).startswith(_EMPTY)]
    names = tuple(observed.get(name, name).removeprefix(_IMAGES).removeprefix("observation.") for name in real)
    renamed = [f"{observed[name]} as {name}" for name in real if name in observed]
    empty = max(len(visual) - len(real), config.get("empty_cameras") or 0)
    say(
        f"cameras in the model's order: {', '.join(names) or 'none'}"
        + (f"; {empty} empty, left out" if empty else "") + (f"; renamed: {', '.join(renamed)}" if renamed else "")
    )
    return names


def _relative(config: Mapping[str, Any], processors: Processors, say: Say) -> dict[str, Any]:
    """LeRobot adds the raw state to every action whose name contains no excluded word, or to all if it has no names."""
    step, stated = processors.absolute, bool(config.get("use_relative_actions"))
    enabled = bool(step.config.get("enabled")) if step else stated
    if enabled != stated:
        say(
            f"warning: use_relative_actions is {stated} in config.json but {enabled} in the processor files, "
            "which are what LeRobot obeys"
        )
    if not enabled:
        return {}
    if processors.relative:
        given = processors.relative.config
        names, words = given.get("action_names"), given.get("exclude_joints")
    else:
        names, words = config.get("action_feature_names"), config.get("relative_exclude_joints", ["gripper"])
    names, words = tuple(names or ()), [word.lower() for word in words or () if word]
    excluded = tuple(name for name in names if any(word in name.lower() for word in words))
    say(f"actions are relative to the state, except {', '.join(excluded) or 'none'}")
    if words and not names:
        told = f"{', '.join(words)} would be excluded, but the folder names no actions"
        say(f"warning: {told}: LeRobot excludes none then")
    return {"relative_actions": excluded, "action_features": names}
