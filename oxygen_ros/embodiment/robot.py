"""A robot as data: its cameras, joints and units, and what the model makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from .errors import InputError
from .units import UnitMap

REPRESENTATIONS = ("absolute_position", "delta_position", "velocity", "end_effector_delta")
_RANGE_TOLERANCE = 0.05  # of a declared range: sensors overshoot their end stops a little


@dataclass(frozen=True)
class Camera:
    """name: the robot's. slot: the model's. required: no frame without it. rotation: degrees clockwise, done first."""

    name: str
    slot: str
    required: bool = False
    rotation: int = 0


@dataclass(frozen=True)
class Robot:
    """What is declared about one kind of robot. Robot units are its own, model units those of the training data.

    cameras: in the order in which the model sees them.
    joints: names of the state dimensions; actions: names of the action dimensions.
    delta: actions that the model gives relative to the joint of the same name at the start of the chunk.
    grippers: names whose action is a position whatever the other actions are.
    state_units, action_units: by name; a name without a map has the same units in both worlds.
    limits: of the state, action_limits: of the actions, each name -> (lowest, highest) in robot units.
    representation: what the robot's actions are, one of REPRESENTATIONS. step_dt: seconds between actions.
    prompt: one of prompt.FORMS. frame_id: the base frame.
    """

    name: str
    cameras: tuple[Camera, ...]
    joints: tuple[str, ...]
    actions: tuple[str, ...]
    step_dt: float
    delta: tuple[str, ...] = ()
    grippers: tuple[str, ...] = ()
    state_units: Mapping[str, UnitMap] = field(default_factory=dict)
    action_units: Mapping[str, UnitMap] = field(default_factory=dict)
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    action_limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    representation: str = "absolute_position"
    prompt: str = "state"
    frame_id: str = "base_link"

    @property
    def state_dim(self) -> int:
        return len(self.joints)

    @property
    def action_dim(self) -> int:
        return len(self.actions)

    def to_model_state(self, state: np.ndarray) -> np.ndarray:
        """Robot units [..., state_dim] -> model units, float64, before normalisation. Raises InputError."""
        return _convert(state, self.joints, self.state_units, "to_model", "state")

    def to_robot_state(self, model_state: np.ndarray) -> np.ndarray:
        """The inverse of `to_model_state`."""
        return _convert(model_state, self.joints, self.state_units, "to_robot", "state")

    def to_robot_actions(self, model_actions: np.ndarray, model_state: np.ndarray) -> np.ndarray:
        """Un-normalised model actions [H, >= action_dim] -> robot units [H, action_dim], float64.

        Order (pi05.md section 9.5): add the state where the model gives deltas, cut the padding, change units.
        model_state: [state_dim] model units, the one that the chunk was computed from.
        """
        actions = np.array(np.asarray(model_actions)[..., : self.action_dim], np.float64)
        actions += self._reference(model_state)
        return _convert(actions, self.actions, self.action_units, "to_robot", "actions")

    def to_model_actions(self, robot_actions: np.ndarray, model_state: np.ndarray) -> np.ndarray:
        """The inverse of `to_robot_actions`: [H, action_dim] -> [H, action_dim], less `model_state` where delta."""
        actions = _convert(robot_actions, self.actions, self.action_units, "to_model", "actions")
        return actions - self._reference(model_state)

    def range_warnings(self, state: np.ndarray) -> list[str]:
        """One line for each joint that lies outside its declared limits by more than 5 % of them."""
        lines = []
        for name, value in zip(self.joints, state):
            low, high = self.limits.get(name, (-np.inf, np.inf))
            slack = _RANGE_TOLERANCE * (high - low)
            if not low - slack <= value <= high + slack:
                lines.append(f"{name} = {value:.5g} lies outside its declared range {low:.5g} to {high:.5g}")
        return lines

    def clip(self, actions: np.ndarray) -> np.ndarray:
        """Robot actions [H, action_dim] within their declared limits, also where their type cannot hold a limit."""
        limits = np.array([self.action_limits.get(name, (-np.inf, np.inf)) for name in self.actions])
        low, high = limits.T.astype(actions.dtype)
        low = np.where(low < limits[:, 0], np.nextafter(low, np.inf), low)
        high = np.where(high > limits[:, 1], np.nextafter(high, -np.inf), high)
        return np.clip(actions, low, high).astype(actions.dtype)

    def _reference(self, model_state: np.ndarray) -> np.ndarray:
        """[action_dim]: the state where an action is a delta, 0 elsewhere."""
        return np.array([model_state[self.joints.index(name)] if name in self.delta else 0.0 for name in self.actions])


def _convert(
    values: np.ndarray, names: tuple[str, ...], units: Mapping[str, UnitMap], direction: str, what: str
) -> np.ndarray:
    values = np.array(values, np.float64)
    if values.ndim == 0 or values.shape[-1] != len(names):
        raise InputError(what, f"shape {list(values.shape)}", f"{len(names)} dimensions ({', '.join(names)})")
    for index, name in enumerate(names):
        if name in units:
            values[..., index] = getattr(units[name], direction)(values[..., index])
    return values
