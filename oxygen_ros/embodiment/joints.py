"""Joint messages to one state vector: by name, in the robot's order, whoever published which part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

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


class JointBuffer:
    """The newest position of every wanted joint, each with its own stamps, so that messages which hold different
    parts of a robot add up. Readers in other threads see whole messages only: the table is replaced, never changed."""

    def __init__(self, names: Sequence[str]):
        self.names = tuple(names)
        self._joints: dict[str, tuple[float, int, int, int]] = {}  # value, stamp, receipt, by how much it was behind

    def update(self, names: Sequence[str], positions: Sequence[float], stamp_ns: int, receipt_ns: int = 0,
               overtaken: Callable[[int, int], bool] = lambda stamp_ns, newest_ns: False, behind_ns: int = 0) -> bool:
        """Take one message in. stamp_ns: its header stamp; receipt_ns: when it arrived, on the caller's clock; behind_ns:
        how long after its stamp that was. A stamp that a joint has already is the same news again, which arrived before.

        overtaken: whether such a stamp is to give way to the one that a joint has; returns whether one did.
        Raises InputError, and takes nothing, where lengths differ, a name comes twice or a wanted value is not finite.
        """
        received = pair(names, positions)
        wanted = {name: received[name] for name in self.names if name in received}
        _finite(wanted)
        late = {name for name in wanted if name in self._joints and overtaken(stamp_ns, self._joints[name][1])}
        known = {name: arrival for name, (_, stamp, *arrival) in self._joints.items() if stamp == stamp_ns}
        self._joints = self._joints | {
            name: (float(value), stamp_ns, *known.get(name, (receipt_ns, behind_ns))) for name, value in wanted.items()
            if name not in late
        }
        return bool(late)

    def state(self, names: Sequence[str] | None = None) -> tuple[np.ndarray, int]:
        """(float64 values in the order of `names`, by default all; oldest header stamp, ns). Raises InputError."""
        names, joints = names or self.names, self._joints
        values = read_state(names, {name: value for name, (value, *_) in joints.items()})
        return values, min(joints[name][1] for name in names)

    def oldest_receipt_ns(self, names: Sequence[str] | None = None) -> int | None:
        """Receipt time of the joint that has waited longest for news; None while one has never been heard."""
        joints = self._joints
        receipts = [joints[name][2] if name in joints else None for name in names or self.names]
        return None if None in receipts else min(receipts)

    def oldest(self) -> tuple[list[str], int]:
        """(the joints whose stamp is the oldest, by how much it was behind when it arrived). None may be unheard."""
        joints = self._joints
        stamp_ns = min(joints[name][1] for name in self.names)
        names = [name for name in self.names if joints[name][1] == stamp_ns]
        return names, joints[names[0]][3]

    def clear(self) -> None:
        """Forget everything, as on activation: no joint of before may enter a state of after."""
        self._joints = {}


def _finite(values: Mapping[str, float]) -> np.ndarray:
    bad = [f"{name} = {value}" for name, value in values.items() if not abs(value) <= _LARGEST]
    if bad:
        raise InputError("joint state", ", ".join(bad), "finite numbers")
    return np.array(list(values.values()), np.float64)
