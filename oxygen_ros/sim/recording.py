"""Demonstrations as they appear on a robot's topics, moment by moment, and into a bag."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from typing import NamedTuple

import numpy as np

from . import expert, world
from .bag import BagWriter
from .cameras import CAMERAS
from .messages import Composer
from .topics import INSTRUCTION, JOINT_COMMANDS, JOINT_STATES, PHASE, image_topic

INSTRUCTION_TEXT = "transfer the cube"
START = 1_767_225_600 * 1_000_000_000  # 2026-01-01 00:00 UTC: made up, and the same each time, so that a seed is a file
_MS = 1_000_000
_STEP = 1000 * _MS // world.RATE_HZ
_BETWEEN_EPISODES = 1000 * _MS
_FAILURES_ALLOWED = 10  # in a row; measured: none of the seeds 0 to 899


@dataclass(frozen=True)
class Order:
    """What to record: successful demonstrations of the seeds from `first_seed` on, at most `seconds` of each.

    every: control periods from one picture to the next.
    """

    first_seed: int
    episodes: int
    every: int
    seconds: float


class Event(NamedTuple):
    """A message on its way into the bag; times in ns."""

    received: int
    published: int
    topic: str
    message: object


def episode(robot: world.World, demonstration: expert.Demonstration, seed: int, start: int, every: int,
            compose: Composer) -> Iterator[list[Event]]:
    """Replay a demonstration; per control period, its messages in order of reception.

    start: time of the first period, ns. every: periods from one picture to the next.
    A message is stamped when its data were acquired and arrives later: a picture after exposure, readout and
    encoding (4 to 8 ms), joints within a millisecond. The command for a period follows 2 ms after its joint state.
    """
    latency = np.random.default_rng(seed)

    def event(topic: str, message: object, stamp: int, low_ms: float, high_ms: float) -> Event:
        published = stamp + int(latency.uniform(low_ms, high_ms) * _MS)
        return Event(published + int(latency.uniform(0.1, 0.4) * _MS), published, topic, message)

    robot.reset(seed)
    spoken = None
    for step, (targets, phase) in enumerate(zip(demonstration.targets, demonstration.phases)):
        now = start + step * _STEP
        events = [
            event(JOINT_STATES, compose.joints(now, robot.positions, robot.velocities), now, 0.2, 0.6),
            event(JOINT_COMMANDS, compose.joints(now + 2 * _MS, targets), now + 2 * _MS, 0.0, 0.2),
        ]
        if step == 0:
            events.append(event(INSTRUCTION, compose.instruction(INSTRUCTION_TEXT), now, 0.0, 0.1))
        if phase != spoken:
            events.append(event(PHASE, compose.text(phase), now, 0.0, 0.1))
            spoken = phase
        if step % every == 0:
            events += [event(image_topic(camera), compose.image(now, camera, robot.picture(camera)), now, 4.0, 8.0)
                       for camera in CAMERAS]
        yield sorted(events, key=lambda e: e.received)
        robot.step(targets)


def record(bag: BagWriter, robot: world.World, compose: Composer, order: Order,
           stopped: Callable[[], bool], report: Callable[[str], None]) -> None:
    """Fill a bag. Returns early, between two control periods, once `stopped()`.

    report: gets a line per second recorded. Raises RuntimeError where the expert fails on ten seeds in a row.
    """
    start = START
    seeds = successful(order.first_seed, report)
    for number in range(1, order.episodes + 1):
        seed, demonstration = next(seeds)
        bag.note(f"oxygen_ros.sim.episode_{number}", {
            "seed": str(seed), "gym-aloha": version("gym-aloha"), "mujoco": version("mujoco")})
        steps = round(min(len(demonstration.targets), order.seconds * world.RATE_HZ))
        moments = episode(robot, demonstration, seed, start, order.every, compose)
        for step, events in enumerate(islice(moments, steps)):
            for received, published, topic, message in events:
                bag.write(topic, message, published, received)
            if step % world.RATE_HZ == 0:
                report(f"episode {number} of {order.episodes}, seed {seed}: {step / world.RATE_HZ:.0f} of "
                       f"{steps / world.RATE_HZ:g} s, {demonstration.phases[step]}")
            if stopped():
                return
        start += steps * _STEP + _BETWEEN_EPISODES


def successful(seed: int, report: Callable[[str], None],
               demonstrate: Callable[[int], expert.Demonstration] = expert.demonstrate,
               ) -> Iterator[tuple[int, expert.Demonstration]]:
    """Seeds, from this one on, whose demonstration works. Each is tried before it is recorded: a bag holds successes.

    Raises RuntimeError after ten failures in a row.
    """
    failures = 0
    while failures < _FAILURES_ALLOWED:
        demonstration = demonstrate(seed)
        if expert.replay(demonstration, seed).succeeded:
            failures = 0
            yield seed, demonstration
        else:
            failures += 1
            report(f"seed {seed}: the expert did not hand the cube over; refused, trying seed {seed + 1}")
        seed += 1
    raise RuntimeError(f"the expert failed on ten seeds in a row, {seed - failures} to {seed - 1}: "
                       "its waypoints fit gym-aloha 0.1.5, is another version installed?")
