"""A scripted demonstrator: the right hand lifts the cube and gives it to the left.

It knows where the cube is, plans waypoints for both hands, leads them there in the end-effector task and returns the
joint targets that this took. `demonstrate` plans, `replay` tries it on the joint-controlled robot.
"""
from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from . import world
from .hands import Hand, Hands, heading

# What the expert does, and from when [s].
_REACH, _GRASP, _LIFT, _MEET, _RELEASE, _END = 0.0, 2.4, 3.2, 4.4, 6.0, 8.0
PHASES = ((_REACH, "reach the cube"), (_GRASP, "grasp the cube"), (_LIFT, "lift the cube"),
          (_MEET, "hand over the cube"), (_RELEASE, "release the cube"))

_OPEN, _CLOSED = 1.0, 0.0
_CUBE_HALF = 0.02  # half its edge: the height of its centre on the table, m
_DOWN = np.deg2rad(60)  # pitch of the right hand: steep enough to clear the table, flat enough for the arm's reach
_SIDEWAYS = np.pi / 2  # roll of the left hand: its fingers close above and below, the right hand's at the sides
_MEETING = (0.0, 0.5, 0.25)  # where the hands meet: midway between the arms, m


@dataclass(frozen=True)
class Waypoint:
    """A hand's pose at a moment, reached with no speed left."""

    seconds: float
    hand: Hand


@dataclass(frozen=True)
class Demonstration:
    """targets: [steps, 14] joint targets in robot units at `world.RATE_HZ`; phases: [steps] names from `PHASES`."""

    targets: np.ndarray
    phases: list[str]


@dataclass(frozen=True)
class Trial:
    """states: [steps, 14] joint positions, each read just before the target of its step.
    succeeded: at the end the left gripper has the cube, off the table and let go by the right."""

    states: np.ndarray
    succeeded: bool


def demonstrate(seed: int) -> Demonstration:
    """The expert's joint targets for the cube of this seed. Deterministic; `replay` tells whether they work."""
    hands = Hands()
    hands.reset(seed)
    randomness = np.random.default_rng(seed)  # not the generator that placed the cube: the meeting is independent of it
    meeting = np.array(_MEETING) + randomness.uniform(-0.015, 0.015, 3)
    resting = hands.hand("left"), hands.hand("right")
    left, right = _plan(np.append(hands.cube[:2], _CUBE_HALF), meeting, *resting)

    targets, phases = [], []
    for step in range(round(_END * world.RATE_HZ)):
        now = step / world.RATE_HZ
        targets.append(hands.step(_at(left, now), _at(right, now)))
        phases.append([name for start, name in PHASES if start <= now][-1])
    return Demonstration(np.array(targets), phases)


def replay(demonstration: Demonstration, seed: int) -> Trial:
    """Try the joint targets on the joint-controlled robot, with the cube of this seed. No picture is rendered."""
    trial = world.World()
    trial.reset(seed)
    states = []
    for targets in demonstration.targets:
        states.append(trial.positions)
        trial.step(targets)
    return Trial(np.array(states), trial.reward == world.TASK_REWARD and "right" not in trial.contacts)


def _plan(cube: np.ndarray, meeting: np.ndarray, left: Hand, right: Hand) -> tuple[list[Waypoint], list[Waypoint]]:
    """The paths of the left and of the right hand, from where they rest."""

    def giving(position, opening, yaw=0.0):
        return Hand(tuple(position), pitch=_DOWN, yaw=yaw, opening=opening)

    def taking(position, opening):
        return Hand(tuple(position), roll=_SIDEWAYS, opening=opening)

    above = np.array((0.0, 0.0, 0.1))
    outwards = np.array((0.1, 0.0, 0.0))  # towards the right arm
    return (
        [
            Waypoint(_REACH, left),
            Waypoint(2.5, left),
            Waypoint(_MEET, taking(meeting - 1.2 * outwards, _OPEN)),
            Waypoint(_MEET + 0.8, taking(meeting, _OPEN)),
            Waypoint(_RELEASE - 0.2, taking(meeting, _CLOSED)),
            Waypoint(_RELEASE + 0.8, taking(meeting, _CLOSED)),
            Waypoint(_END - 0.4, taking(meeting - outwards, _CLOSED)),
        ],
        [
            Waypoint(_REACH, right),
            # The wrist bends through straight on the way down; turned out of the arm's plane, it would spin there.
            Waypoint(_GRASP - 0.8, giving(cube + above, _OPEN, heading("right", cube))),
            Waypoint(_GRASP, giving(cube, _OPEN)),
            Waypoint(_LIFT - 0.2, giving(cube, _CLOSED)),
            Waypoint(_LIFT, giving(cube, _CLOSED)),
            Waypoint(_MEET, giving(meeting, _CLOSED)),
            Waypoint(_RELEASE, giving(meeting, _CLOSED)),
            Waypoint(_RELEASE + 0.6, giving(meeting, _OPEN)),
            Waypoint(_END - 0.4, giving(meeting + outwards + above, _OPEN)),
        ],
    )


def _at(path: list[Waypoint], now: float) -> Hand:
    """The hand at a moment.

    Between two waypoints, the minimum-jerk profile 10 s^3 - 15 s^4 + 6 s^5 (Flash and Hogan, 1985).
    """
    times = [w.seconds for w in path]
    after = int(np.searchsorted(times, now, side="right"))
    if after == len(path):
        return path[-1].hand
    a, b = path[after - 1], path[after]
    s = (now - a.seconds) / (b.seconds - a.seconds)
    s = s**3 * (10 - 15 * s + 6 * s * s)

    return Hand(**{f.name: _blend(getattr(a.hand, f.name), getattr(b.hand, f.name), s) for f in fields(Hand)})


def _blend(a, b, s: float):
    return tuple((1 - s) * np.array(a) + s * np.array(b)) if isinstance(a, tuple) else (1 - s) * a + s * b
