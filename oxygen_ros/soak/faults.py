"""What goes wrong with sensors in the field, and what the node owes whoever runs the robot then."""

from __future__ import annotations

import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import JointState

from ..plain_cdr import restamped

S = 1_000_000_000  # ns

Tamper = Callable[[int, int], Sequence[bytes]]
"""How many messages went before, and the time in ns -> what is sent now instead of one message."""


@dataclass(frozen=True)
class Fault:
    """counter: which of the topic's counts on /diagnostics grows; PER_SECOND falls to less than half instead.
    said: what /diagnostics says of the topic meanwhile; empty where there is nothing to say.
    stops: whether no chunk may be made of it, once the topic's limit is over.
    make: good messages of the topic -> Tamper; None where there is none, because its process is killed.
    """

    name: str
    counter: str
    said: str
    stops: bool
    make: Callable[[Sequence[bytes]], Tamper] | None
    joints: bool = False  # of joint states rather than of pictures


def _each(change: Callable[[bytes, int], bytes]) -> Callable[[Sequence[bytes]], Tamper]:
    return lambda good: lambda index, now: [change(good[index % len(good)], now)]


def _garbled(message: bytes, now: int) -> bytes:
    """The envelope is whole, the picture in it is not."""
    return restamped(message[:200] + bytes(len(message) - 200), now)


def _truncated(message: bytes, now: int) -> bytes:
    return restamped(message[: len(message) // 2], now)


def _swapped(good: Sequence[bytes]) -> Tamper:
    """Of three messages one is lost, and the first comes after the second."""
    held: list[bytes] = []

    def tamper(index: int, now: int) -> list[bytes]:
        message = restamped(good[index % len(good)], now)
        if index % 3 == 0:
            held[:] = [message]
            return []
        return [message] if index % 3 == 1 else held

    return tamper


def _same_again(good: Sequence[bytes]) -> Tamper:
    first: list[bytes] = []

    def tamper(index: int, now: int) -> list[bytes]:
        first.append(first[0] if first else restamped(good[index % len(good)], now))
        return first[-1:]

    return tamper


def _dropped(good: Sequence[bytes]) -> Tamper:
    """Two of three are lost on the way: nothing is wrong with the third."""
    return lambda index, now: [] if index % 3 else [restamped(good[index % len(good)], now)]


def _joints(change: Callable[[JointState], None]) -> Callable[[Sequence[bytes]], Tamper]:
    def changed(message: bytes, now: int) -> bytes:
        state = deserialize_message(message, JointState)
        change(state)
        return restamped(serialize_message(state), now)

    return _each(changed)


def _not_a_number(state: JointState) -> None:
    state.position[3] = float("nan")


def _one_short(state: JointState) -> None:
    state.position = state.position[:-1]


def _no_first(state: JointState) -> None:
    state.name, state.position = state.name[1:], array.array("d", state.position[1:])


PER_SECOND = "rate (Hz)"
_GONE, _REFUSED = "frames without it", "refused"
_SILENT = "the last good message came"

FAULTS = {fault.name: fault for fault in (
    Fault("silent", _GONE, _SILENT, True, lambda good: lambda index, now: []),
    Fault("killed", _GONE, _SILENT, True, None),
    Fault("dropped", PER_SECOND, "", False, _dropped),
    Fault("delayed", _GONE, "before this node's clock", True, _each(lambda m, now: restamped(m, now - S * 8 // 10))),
    Fault("repeated", _GONE, "their stamp has not changed", True, _same_again),
    Fault("frozen", _GONE, "frozen: its last", True, lambda good: lambda index, now: [restamped(good[0], now)]),
    Fault("garbled", _REFUSED, "do not decode", True, _each(_garbled)),
    Fault("truncated", _REFUSED, "do not deserialise", True, _each(_truncated)),
    Fault("reordered", "overtaken", "", False, _swapped),
    Fault("unstamped", "without a stamp", "stamp is 0", False, _each(lambda m, now: restamped(m, 0))),
    Fault("an hour ahead", _GONE, "after this node's clock", True, _each(lambda m, now: restamped(m, now + 3600 * S))),
    Fault("hours behind", _GONE, "before this node's clock", True, _each(lambda m, now: restamped(m, now - 10800 * S))),
    Fault("not a number", _REFUSED, "= nan", True, _joints(_not_a_number), joints=True),
    Fault("one value short", _REFUSED, "13 positions", True, _joints(_one_short), joints=True),
    Fault("one joint missing", _GONE, "none with left_waist", True, _joints(_no_first), joints=True),
    Fault("joints silent", _GONE, _SILENT, True, lambda good: lambda index, now: [], joints=True),
)}
