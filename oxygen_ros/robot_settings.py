"""From settings to the description of a robot: a known one with changes, or its owner's own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from .embodiment.registry import ROBOTS
from .settings import NONE, GripperSettings, Settings, SettingsError

_NAMES = ("delta", "flip")
_RANGES = ("limits", "action_limits")


def describe(settings: Settings, named_by_policy: str | None = None) -> dict[str, Any]:
    """A description for `embodiment.generic.from_dict`, with the cameras that are there.

    named_by_policy: the robot, where the settings name none. What the settings leave open is the known robot's.
    Raises SettingsError for a robot that is neither known nor described, and for cameras and joints that do not fit it.
    """
    name = settings.robot or named_by_policy
    if not name:
        raise SettingsError([f"parameter robot is empty and the policy names none, expected {_choices()}"])
    if name not in ROBOTS and not settings.joints:
        raise SettingsError([f"parameter robot is {name!r} and there are no joints, expected {_choices()}"])
    known = _renamed(ROBOTS[name], settings) if name in ROBOTS else {"name": name}
    changes: dict[str, Any] = {"cameras": _cameras(settings, known.get("cameras"), name)}
    changes |= {key: list(given) for key in ("joints", "actions") if (given := getattr(settings, key))}
    changes |= {key: [] if given == NONE else list(given) for key in _NAMES if (given := getattr(settings, key))}
    changes |= {key: {**known.get(key, {}), **given} for key in _RANGES if (given := getattr(settings, key))}
    changes |= {
        key: given for key in ("step_dt", "representation", "frame_id", "prompt") if (given := getattr(settings, key))
    }
    if settings.grippers:
        changes["grippers"] = _grippers(settings, known.get("grippers", {}))
    return {**known, **changes}


def _choices() -> str:
    return f"one of {', '.join(ROBOTS)}, or your own, with joints, step_dt and cameras (config/generic.yaml is one)"


def _renamed(known: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """The known robot under its owner's names of joints and actions, which are told by their position."""
    names = _names_of(known["joints"], settings.joints, "joints", known["name"])
    if "actions" in known:
        names |= _names_of(known["actions"], settings.actions, "actions", known["name"])
    elif settings.actions:
        raise SettingsError(
            [f"parameter actions is given, but the actions of {known['name']} are its joints: set joints"]
        )
    renamed = dict(known)
    for key in ("joints", "actions", *_NAMES):
        if key in known:
            renamed[key] = [names.get(name, name) for name in known[key]]
    for key in ("grippers", *_RANGES):
        if key in known:
            renamed[key] = {names.get(name, name): value for name, value in known[key].items()}
    return renamed


def _names_of(theirs: Sequence[str], ours: Sequence[str], key: str, robot: str) -> dict[str, str]:
    if ours and len(ours) != len(theirs):
        raise SettingsError(
            [
                f"parameter {key} has {len(ours)} names, expected your names of {robot}'s {len(theirs)} "
                f"({', '.join(theirs)}); a robot with others needs a name of its own"
            ]
        )
    moved = [name for name, theirs_here in zip(ours, theirs) if name in theirs and name != theirs_here]
    if moved:  # taken as new names they would quietly swap joints
        raise SettingsError(
            [f"parameter {key} has {', '.join(moved)} in other places than {robot}, whose order is {', '.join(theirs)}"]
        )
    return dict(zip(theirs, ours))


def _cameras(settings: Settings, known: Sequence[Mapping[str, Any]] | None, robot: str) -> list[dict[str, Any]]:
    if not settings.cameras:
        some = (
            f"some of {robot}'s: {', '.join(c['name'] for c in known)}" if known else "the cameras that the policy sees"
        )
        raise SettingsError([f"parameter cameras is empty, expected {some}"])
    theirs = {camera["name"]: camera for camera in known or ()}
    strangers = [name for name in settings.cameras if known and name not in theirs and not settings.camera[name].slot]
    if strangers:
        raise SettingsError(
            [
                f"parameter cameras lists {', '.join(strangers)}, expected some of {robot}'s: {', '.join(theirs)}; "
                f"a camera of another name needs camera.{strangers[0]}.slot"
            ]
        )
    cameras = [{"slot": name, **theirs.get(name, {}), "name": name} for name in settings.cameras]
    for camera in cameras:
        given = settings.camera[camera["name"]]
        camera |= {"slot": given.slot or camera["slot"], "rotation": given.rotation or camera.get("rotation", 0)}
    needed = [c["name"] for c in cameras if c.get("required") and settings.camera[c["name"]].optional]
    if needed:
        raise SettingsError([f"parameter camera.{needed[0]}.optional is true, but {robot} requires {needed[0]}"])
    fed = {camera[key] for camera in cameras for key in ("name", "slot")}
    missing = [c["name"] for c in known or () if c.get("required") and not fed & {c["name"], c["slot"]}]
    if missing:
        raise SettingsError(
            [f"parameter cameras lacks {', '.join(missing)}, which {robot} requires; its topic may have any name"]
        )
    return cameras


def _grippers(settings: Settings, known: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The known ones, with the fields that are given in place of theirs; none at all where that is said."""
    if settings.grippers == NONE:
        return {}
    given = {name: _given(gripper) for name, gripper in settings.gripper.items()}
    return {name: {**known.get(name, {}), **given.get(name, {})} for name in {**known, **given}}


def _given(gripper: GripperSettings) -> dict[str, Any]:
    values = {f.name: getattr(gripper, f.name) for f in fields(gripper)}
    return {key: v for key, v in values.items() if v != "" and not (isinstance(v, float) and math.isnan(v))}
