"""Invertible maps of one quantity between a robot's units and the model's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np


class UnitMap(Protocol):
    """Elementwise, and each direction the inverse of the other within the robot's range."""

    def to_model(self, robot: np.ndarray) -> np.ndarray: ...

    def to_robot(self, model: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class Linear:
    """The straight line that takes the two robot values to the two model values, in whichever direction they run."""

    robot: tuple[float, float]
    model: tuple[float, float]

    def to_model(self, robot: np.ndarray) -> np.ndarray:
        return _line(robot, self.robot, self.model)

    def to_robot(self, model: np.ndarray) -> np.ndarray:
        return _line(model, self.model, self.robot)


@dataclass(frozen=True)
class Chain:
    """Several maps from robot to model, one after the other."""

    links: tuple[UnitMap, ...]

    def to_model(self, robot: np.ndarray) -> np.ndarray:
        for link in self.links:
            robot = link.to_model(robot)
        return robot

    def to_robot(self, model: np.ndarray) -> np.ndarray:
        for link in reversed(self.links):
            model = link.to_robot(model)
        return model


FLIP = Linear((0.0, 1.0), (0.0, -1.0))
"""A joint whose model counts the other way round."""


def _line(value: np.ndarray, source: tuple[float, float], target: tuple[float, float]) -> np.ndarray:
    return (value - source[0]) / (source[1] - source[0]) * (target[1] - target[0]) + target[0]
