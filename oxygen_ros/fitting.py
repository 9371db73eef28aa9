"""A robot and a policy folder made to fit: what the folder says about its policy counts, then the robot description."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .checkpoint.checkpoint import Checkpoint
from .embodiment.camera_order import arrange
from .embodiment.generic import from_dict
from .embodiment.registry import ROBOTS
from .embodiment.robot import Robot
from .robot_settings import describe
from .settings import Settings, SettingsError

Say = Callable[[str], None]


def fit(settings: Settings, checkpoint: Checkpoint, say: Say) -> Robot:
    """The robot of the settings, with the cameras, prompt and relative actions of this policy.

    say is told each choice that was made. Raises SettingsError, CheckpointError or embodiment.InputError.
    """
    rules = checkpoint.conventions
    description = describe(settings, checkpoint.robot)
    description["prompt"] = settings.prompt or rules.prompt or description.get("prompt", "state")
    body = from_dict(_with_deltas(description, settings, checkpoint, say))
    chosen = {name: camera.slot for name, camera in settings.camera.items() if camera.slot}
    body = replace(body, cameras=arrange(body.cameras, rules.camera_features, chosen))
    seen = ", ".join(c.name if c.name == c.slot else f"{c.name} as {c.slot}" for c in body.cameras)
    unfed = [name for name in rules.camera_features if name not in [camera.slot for camera in body.cameras]]
    say(
        f"robot {body.name}: cameras in the model's order {seen}"
        + (f"; without {', '.join(unfed)}" if unfed else "")
        + f"; prompt form {body.prompt}; relative actions {', '.join(body.delta) or 'none'}"
    )
    if rules.resize == "lerobot" and ROBOTS.get(body.name, {}).get("flip") and not settings.flip:
        say(
            f"warning: {body.name}'s joints and grippers are turned into what openpi trained on; for a LeRobot policy "
            "of plain joint positions set flip: [none] and grippers: [none]"
        )
    for feature, width in (("state", body.state_dim), ("actions", body.action_dim)):
        _warn_of_wider(checkpoint.statistics[feature], feature, width, say)
    return body


def _with_deltas(description: dict[str, Any], settings: Settings, checkpoint: Checkpoint, say: Say) -> dict[str, Any]:
    """With the folder's relative actions, or the description's where the folder does not say."""
    rules, ours = checkpoint.conventions, description.get("delta", ())
    theirs = rules.deltas(description.get("actions", description.get("joints", ())))
    if theirs is None:
        # A LeRobot policy gives actions as its data set has them unless its folder says otherwise.
        if rules.resize == "lerobot" and ours:
            if not settings.delta:
                say(f"the actions of this LeRobot policy are absolute: {description['name']}'s relative ones are not")
                return {**description, "delta": []}
            say(f"warning: this LeRobot folder has absolute actions, parameter delta makes {', '.join(ours)} relative")
        return description
    if settings.delta and set(ours) != set(theirs):
        raise SettingsError(
            [
                f"parameter delta lists {', '.join(settings.delta)}, expected the relative actions of the policy: "
                f"{', '.join(theirs) or 'none'}; leave it out"
            ]
        )
    return {**description, "delta": list(theirs)}


def _warn_of_wider(measures: Mapping[str, Sequence[float]], feature: str, width: int, say: Say) -> None:
    """openpi cuts statistics to the robot's width; what is cut off should be padding."""
    found = {name: len(values) for name, values in measures.items() if np.any(values[width:])}
    if found:
        name, length = next(iter(found.items()))
        say(
            f"warning: the statistics of {feature} have {length} dimensions ({name}) that are not zero, the robot "
            f"{width}; the first ones are used, make sure that they are this robot's"
        )
