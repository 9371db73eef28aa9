"""What the robot was told while the bag was recorded: the actions that a policy's are compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..embodiment.errors import InputError
from ..embodiment.robot import Robot
from ..robot_inputs import Feed
from ..stamps import nanoseconds
from .bag import Bag, BagError

_CLOCKS_APART = 5.0  # s between stamp and receipt beyond which the stamp is of another clock
_LARGEST = float(np.finfo(np.float32).max)  # actions are float32
_LONGEST_HOLD = 3  # times the usual distance between two commands


@dataclass(frozen=True)
class Commands:
    """times_ns int64 [N], rising; values float64 [N, D] in robot units, NaN where a command does not say."""

    topic: str
    times_ns: np.ndarray
    values: np.ndarray
    notes: tuple[str, ...] = ()

    @cached_property
    def _usual_ns(self) -> float:
        """Between two commands."""
        return float(np.median(np.diff(self.times_ns))) if len(self.times_ns) > 1 else 0.0

    def at(self, due_ns: np.ndarray, step_ns: int) -> np.ndarray:
        """The command in force at each time [n] -> [n, D]; NaN before the first, and long after any."""
        index = np.searchsorted(self.times_ns, due_ns, side="right") - 1
        held = due_ns - self.times_ns[np.maximum(index, 0)]
        values = self.values[np.maximum(index, 0)].copy()
        values[(index < 0) | (held > max(2 * step_ns, _LONGEST_HOLD * self._usual_ns))] = np.nan
        return values

    def mean(self) -> np.ndarray:
        """[D]; NaN where nothing was commanded."""
        said = np.isfinite(self.values)
        return np.where(said, self.values, 0).sum(0) / np.where(said.any(0), said.sum(0), np.nan)

    def spread(self) -> np.ndarray:
        """[D]: from the lowest to the highest; 0 where nothing was commanded."""
        said = np.isfinite(self.values)
        low = np.where(said, self.values, np.inf).min(0)
        return np.where(said.any(0), np.where(said, self.values, -np.inf).max(0) - np.where(said.any(0), low, 0), 0)


def read_commands(bag: Bag, source: Feed, robot: Robot) -> Commands:
    """Raises BagError where none can be compared with this robot's actions."""
    taken: list[tuple[int, np.ndarray]] = []
    notes: dict[str, int] = {}
    count, named = 0, set()
    field = "velocity" if robot.representation == "velocity" else "position"
    for message in bag.messages([source.topic]):
        try:
            decoded = source.decode(message.data)
            base_ns = _time(decoded, message.received_ns)
            count += 1
            if hasattr(decoded, "points"):
                # A trajectory takes the place of what the one before had still to come.
                points = [(base_ns + nanoseconds(p.time_from_start), _ordered(decoded.joint_names, getattr(
                    p, "velocities" if field == "velocity" else "positions"), robot.actions)) for p in decoded.points]
                named.update(decoded.joint_names)
                if points:
                    taken = [t for t in taken if t[0] < points[0][0]] + points
            elif hasattr(decoded, "data"):
                taken.append((message.received_ns, _plain(decoded.data, robot.actions)))
                named.update(robot.actions)
            else:
                taken.append((base_ns, _ordered(decoded.name, getattr(decoded, field), robot.actions)))
                named.update(decoded.name)
        except InputError as error:
            line = f"refused: {error}"
            notes[line] = notes.get(line, 0) + 1
    largest = max((np.nanmax(abs(values), initial=0.0, where=np.isfinite(values)) for _, values in taken), default=0.0)
    taken = [(ns, np.where(abs(values) <= _LARGEST, values, np.nan)) for ns, values in taken]
    said = {name for _, values in taken for name, value in zip(robot.actions, values) if np.isfinite(value)}
    if not said:
        why = _nothing(count, taken, named, notes, robot)
        raise BagError(f"{bag.path}: {source.topic}: {why}; --commands TOPIC names another topic, --commands none does "
                       "without")
    lines = [f"{source.topic}: {line}" + (f" ({n} times)" if n > 1 else "") for line, n in notes.items()]
    if largest > _LARGEST:
        lines.append(f"{source.topic} has values up to {largest:.3g}, which no robot takes; they are not compared")
    if silent := [name for name in robot.actions if name not in said]:
        lines.append(f"{source.topic} says nothing of {', '.join(silent)}; they are not compared")
    times = np.array([t for t, _ in taken], np.int64)
    if backwards := int((np.diff(times) < 0).sum()):
        lines.append(f"{source.topic}: {backwards} stamps are older than the one before; sorted by stamp")
    order = np.argsort(times, kind="stable")
    return Commands(source.topic, times[order], np.array([v for _, v in taken])[order], tuple(lines))


def _nothing(count: int, taken: Sequence[Any], named: set[str], notes: Mapping[str, int], robot: Robot) -> str:
    """Why there is nothing to compare with."""
    if notes:
        return next(iter(notes))
    if not count:
        return "has no messages"
    if not taken:
        return f"{count} trajectories without points"
    if not named & set(robot.actions):
        return f"names none of {', '.join(robot.actions)}, but {', '.join(sorted(named)) or 'nothing'}"
    return f"no finite value in {len(taken)} commands"


def _time(message: Any, received_ns: int) -> int:
    if not hasattr(message, "header"):
        return received_ns
    stamp_ns = nanoseconds(message.header.stamp)
    return stamp_ns if abs(stamp_ns - received_ns) < _CLOCKS_APART * 1e9 else received_ns


def _ordered(names: Sequence[str], values: Sequence[float], actions: Sequence[str]) -> np.ndarray:
    if len(names) != len(values):
        raise InputError("command", f"{len(names)} names and {len(values)} values", "as many as names")
    if twice := sorted(name for name, times in Counter(names).items() if times > 1):
        raise InputError("command", f"{', '.join(twice)} more than once", "each joint once")
    given = dict(zip(names, values))
    return np.array([given.get(name, np.nan) for name in actions], np.float64)


def _plain(values: Sequence[float], actions: Sequence[str]) -> np.ndarray:
    if len(values) != len(actions):
        raise InputError("command", f"{len(values)} numbers", f"{len(actions)}, one for each action")
    return np.array(values, np.float64)
