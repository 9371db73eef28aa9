"""A robot from a plain dictionary: what its owner writes in YAML, and what the robots of this room are written in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from .aloha import FingerAction, FingerState, MotorAction
from .errors import InputError
from .prompt import FORMS
from .robot import REPRESENTATIONS, Camera, Robot
from .units import FLIP, Chain, Linear, UnitMap

SHORTEST_STEP, LONGEST_STEP = 1e-4, 1000.0  # s; of no step at all there is no telling which action is due

CONVENTIONS: dict[str, tuple[UnitMap | None, UnitMap | None]] = {
    "linear": (None, None),
    "aloha_finger": (FingerState(), FingerAction()),
    "aloha_motor": (FingerState(), MotorAction()),
}
"""gripper convention -> what the training data made of g in the state and in the actions (None: g as it is)."""


@dataclass(frozen=True)
class Gripper:
    """closed, open: in robot units, whichever is larger. model_closed, model_open: the same in the training data."""

    closed: float
    open: float
    model_closed: float = 0.0
    model_open: float = 1.0
    convention: str = "linear"


@dataclass(frozen=True)
class Description:
    """The keys of a robot description and their defaults.

    name, frame_id, step_dt, representation, prompt, delta: as in Robot.
    cameras: list of {name, slot, required, rotation}; a plain name is its own slot.
    joints: names of the state. actions: names of the actions, the joints where not given.
    flip: names that count the other way in the training data.
    grippers: name -> Gripper. limits: name -> [lowest, highest] of the state; a gripper's range where none is given.
    action_limits: the same of the actions; one that has none and is a position, as a gripper's always is, takes the
    state's.
    """

    name: str
    cameras: list
    joints: list
    step_dt: float
    actions: list | None = None
    delta: list | tuple = ()
    flip: list | tuple = ()
    grippers: Mapping | None = None
    limits: Mapping | None = None
    action_limits: Mapping | None = None
    representation: str = "absolute_position"
    prompt: str = "state"
    frame_id: str = "base_link"


def from_dict(description: Mapping[str, Any]) -> Robot:
    """The robot that a description with the keys of Description declares. Raises InputError that names the key, what
    was found and what was expected."""
    d = _build(Description, description, "robot description")
    joints = _names(d.joints, "joints")
    actions = joints if d.actions is None else _names(d.actions, "actions")
    known = set(joints) | set(actions)
    _choice(d.representation, REPRESENTATIONS, "representation")
    _choice(d.prompt, FORMS, "prompt")
    if not SHORTEST_STEP <= _number(d.step_dt, "step_dt") <= LONGEST_STEP:
        raise InputError("step_dt", repr(d.step_dt),
                         f"seconds between two actions, {SHORTEST_STEP:g} to {LONGEST_STEP:g}")

    state_units: dict[str, UnitMap] = {name: FLIP for name in _subset(d.flip, known, "flip")}
    action_units = dict(state_units)
    gripper_ranges = {}
    for name, value in _mapping(d.grippers, known, "grippers").items():
        gripper = _gripper(value, f"gripper.{name}")
        state_units[name], action_units[name] = _gripper_units(gripper)
        gripper_ranges[name] = tuple(sorted((gripper.closed, gripper.open)))
    positions = gripper_ranges | _ranges(d.limits, set(joints), "limits")
    action_limits = _ranges(d.action_limits, set(actions), "action_limits")
    placed = positions if d.representation == "absolute_position" else gripper_ranges
    action_limits = {name: positions[name] for name in actions if name in placed} | action_limits

    return Robot(
        name=_text(d.name, "name"),
        cameras=_cameras(d.cameras),
        joints=joints,
        actions=actions,
        step_dt=float(d.step_dt),
        delta=_subset(d.delta, set(joints) & set(actions), "delta"),
        grippers=tuple(gripper_ranges),
        state_units=state_units,
        action_units=action_units,
        limits={name: positions[name] for name in joints if name in positions},
        action_limits=action_limits,
        representation=d.representation,
        prompt=d.prompt,
        frame_id=_text(d.frame_id, "frame_id"),
    )


def _gripper_units(gripper: Gripper) -> tuple[UnitMap, UnitMap]:
    robot_range = Linear((gripper.closed, gripper.open), (gripper.model_closed, gripper.model_open))
    state, action = CONVENTIONS[gripper.convention]
    return tuple(Chain((robot_range, learned)) if learned else robot_range for learned in (state, action))


def _gripper(value: Any, key: str) -> Gripper:
    gripper = _build(Gripper, value, key)
    _choice(gripper.convention, tuple(CONVENTIONS), f"{key}.convention")
    for end in ("closed", "open", "model_closed", "model_open"):
        _number(getattr(gripper, end), f"{key}.{end}")
    if gripper.closed == gripper.open or gripper.model_closed == gripper.model_open:
        raise InputError(key, "closed equal to open", "two different positions")
    return gripper


def _cameras(value: Any) -> tuple[Camera, ...]:
    if not isinstance(value, (list, tuple)) or not value:
        raise InputError("cameras", repr(value), "a list of at least one camera")
    cameras = []
    for index, entry in enumerate(value):
        entry = {"name": entry} if isinstance(entry, str) else entry
        if isinstance(entry, Mapping) and "slot" not in entry and "name" in entry:
            entry = {**entry, "slot": entry["name"]}
        camera = _build(Camera, entry, f"cameras[{index}]")
        _choice(camera.rotation, (0, 90, 180, 270), f"cameras[{index}].rotation")
        _choice(camera.required, (True, False), f"cameras[{index}].required")
        cameras.append(camera)
    _names([camera.name for camera in cameras], "cameras")
    _names([camera.slot for camera in cameras], "camera slots")
    return tuple(cameras)


def _build(kind: type, value: Any, thing: str) -> Any:
    """A dataclass from a mapping with exactly its fields."""
    allowed = [f.name for f in fields(kind)]
    if not isinstance(value, Mapping):
        raise InputError(thing, repr(value), f"a mapping of {', '.join(allowed)}")
    unknown = [str(key) for key in value if key not in allowed]
    if unknown:
        raise InputError(thing, f"the unknown key {', '.join(unknown)}", f"only {', '.join(allowed)}")
    required = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    missing = [name for name in required if name not in value]
    if missing:
        raise InputError(thing, f"no {', '.join(missing)}", f"{', '.join(required)}")
    return kind(**value)


def _names(value: Any, key: str) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not value:
        raise InputError(key, repr(value), "a list of at least one name")
    names = tuple(_text(name, key) for name in value)
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise InputError(key, f"{', '.join(twice)} more than once", "each name once")
    return names


def _subset(value: Any, known: set[str], key: str) -> tuple[str, ...]:
    names = _names(value, key) if value else ()
    _known(names, known, key)
    return names


def _mapping(value: Any, known: set[str], key: str) -> Mapping:
    if value is not None and not isinstance(value, Mapping):
        raise InputError(key, repr(value), "a mapping from names")
    _known(value or (), known, key)
    return value or {}


def _known(names, known: set[str], key: str) -> None:
    strangers = [str(name) for name in names if name not in known]
    if strangers:
        raise InputError(key, ", ".join(strangers), f"names among {', '.join(sorted(known))}")


def _ranges(value: Any, known: set[str], key: str) -> dict[str, tuple[float, float]]:
    return {name: _range(ends, f"{key}.{name}") for name, ends in _mapping(value, known, key).items()}


def _range(value: Any, key: str) -> tuple[float, float]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise InputError(key, repr(value), "[lowest, highest]")
    low, high = (_number(end, key) for end in value)
    if not low < high:
        raise InputError(key, f"[{low}, {high}]", "[lowest, highest], the lower first")
    return low, high


def _number(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < float("inf"):
        raise InputError(key, repr(value), "a finite number")
    return float(value)


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str) or not value:
        raise InputError(key, repr(value), "a text")
    return value


def _choice(value: Any, options: tuple, key: str) -> None:
    if value not in options:
        raise InputError(key, repr(value), f"one of {', '.join(map(str, options))}")
