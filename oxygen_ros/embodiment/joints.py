"""Joint messages to one state vector: by name, in the robot's order, whoever published which part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .errors import InputError

_LARGEST = 1e30  # beyond it the actions, which are float32, would soon be infinite


def read_state(names: Sequence[str], received: Mapping[str, float]) -> np.ndarray:
    """float64 [len(names)] in the order of `names`; joints that are not asked for are ignored.

    Raises InputError that lists exactly the missing or the non-finite joints.
    """
    missing = [name for name in names if name not in received]
    if missing:
        raise InputError("joint state", f"no {', '.join(missing)}", f"all of {', '.join(names)}")
    return _finite({name: received[name] for name in names})


def pair(names: Sequence[str], positions: Sequence[float]) -> dict[str, float]:
    """name -> position of one message. Raises InputError where the lengths differ or a name is given twice."""
    if len(names) != len(positions):
        raise InputError("joint state", f"{len(names)} names and {len(positions)} positions", "as many as names")
    paired = dict(zip(names, positions))
    if len(paired) < len(names):
        twice = sorted(name for name, times in Counter(names).items() if times > 1)
        told = ", ".join(name or "''" for name in twice[:5]) + (" and others" if len(twice) > 5 else "")
        raise InputError("joint state", f"{told} more than once", "each joint once")
    return paired


class _Joint(NamedTuple):
    position: float
    stamp_ns: int
    receipt_ns: int
    behind_ns: int


@dataclass(frozen=True)
class JointReading:
    """Where all joints of a robot were, at one moment.

    positions: float64 [J]. stamp_ns: the oldest header stamp. oldest: the joints that have it. behind_ns: how long
    after it they arrived. receipt_ns: when the joint that has waited longest for news arrived.
    """

    positions: np.ndarray
    stamp_ns: int
    oldest: tuple[str, ...]
    behind_ns: int
    receipt_ns: int


class JointBuffer:
    """The newest position of every wanted joint, each with its own stamps, so that messages which hold different
    parts of a robot add up. Readers in other threads see whole messages only: the table is replaced, never changed."""

    def __init__(self, names: Sequence[str]):
        self.names = tuple(names)
        self._joints: dict[str, _Joint] = {}

    def update(self, names: Sequence[str], positions: Sequence[float], stamp_ns: int, receipt_ns: int = 0,
               overtaken: Callable[[int, int], bool] = lambda stamp_ns, newest_ns: False, behind_ns: int = 0) -> bool:
        """Take one message in. stamp_ns: its header stamp; receipt_ns: when it arrived, on the caller's clock;
        behind_ns: how long after its stamp that was. A stamp that a joint has already is the same news again, which
        arrived before.

        overtaken: whether such a stamp is to give way to the one that a joint has; returns whether one did.
        Raises InputError, and takes nothing, where lengths differ, a name comes twice or a wanted value is not finite.
        """
        received, joints = pair(names, positions), self._joints
        wanted = {name: received[name] for name in self.names if name in received}
        _finite(wanted)
        late = {name for name in wanted if name in joints and overtaken(stamp_ns, joints[name].stamp_ns)}
        again = {name for name in wanted if name in joints and joints[name].stamp_ns == stamp_ns}
        self._joints = joints | {
            name: joints[name]._replace(position=float(value)) if name in again
            else _Joint(float(value), stamp_ns, receipt_ns, behind_ns)
            for name, value in wanted.items() if name not in late
        }
        return bool(late)

    def read(self) -> JointReading:
        """Raises InputError where a joint has not been heard."""
        table = self._joints
        positions = read_state(self.names, {name: joint.position for name, joint in table.items()})
        joints = [table[name] for name in self.names]
        stamp_ns = min(joint.stamp_ns for joint in joints)
        oldest = tuple(name for name, joint in zip(self.names, joints) if joint.stamp_ns == stamp_ns)
        return JointReading(positions, stamp_ns, oldest, table[oldest[0]].behind_ns, min(j.receipt_ns for j in joints))

    def clear(self) -> None:
        """Forget everything, as on activation: no joint of before may enter a state of after."""
        self._joints = {}


def _finite(values: Mapping[str, float]) -> np.ndarray:
    bad = [f"{name} = {value}" for name, value in values.items() if not abs(value) <= _LARGEST]
    if bad:
        raise InputError("joint state", ", ".join(bad), "finite numbers")
    return np.array(list(values.values()), np.float64)
