"""A chunk as curves beside the robot: joint space has no place in the scene without the robot's kinematics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_SPACING = 0.25  # m of y from one action dimension to the next
_SPEED = 0.5  # m of x a second


def curves(actions: np.ndarray, step_dt: float) -> np.ndarray:
    """Actions [H, D] -> points [D, H, 3] in metres: time runs along x, the change since the first action along z."""
    horizon, dims = actions.shape
    points = np.zeros((dims, horizon, 3))
    points[..., 0] = np.arange(horizon) * step_dt * _SPEED
    points[..., 1] = ((np.arange(dims) - (dims - 1) / 2) * _SPACING)[:, None]
    points[..., 2] = (actions - actions[0]).T
    return points


def colour(index: int, count: int) -> Sequence[float]:
    """A saturated colour, red, green and blue in [0, 1]."""
    turn = index / count
    return [float(np.clip(abs((turn * 6 + shift) % 6 - 3) - 1, 0, 1)) for shift in (0, 4, 2)]
