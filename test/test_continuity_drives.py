"""Random drives: each chunk is judged by an executor that knows nothing but what was sent before and where joints were.

Rates change, chunks fail or come late, longer than a chunk lasts or before they are due, and people say STOP.
"""

import math
from pathlib import Path

import numpy as np
import pytest

from oxygen_ros.continuity import Continuity
from oxygen_ros.embodiment.generic import from_dict
from oxygen_ros.embodiment.normalization import Statistics
from oxygen_ros.embodiment.pipeline import Pipeline
from oxygen_ros.embodiment.tokenizer import Tokenizer
from oxygen_ros.settings import read

DEFAULT = Path(__file__).resolve().parents[1] / "resource" / "pi05_aloha_tiny"
JOINTS = ["a", "b", "claw"]
GRIPPERS = {"claw": {"closed": -9, "open": 9}}
SETTINGS = {"robot": "arm", "joints": JOINTS, "cameras": ["top"]}
FRAMES = 40


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.load(DEFAULT)


class Executor:
    """What the robot was told last: actions [H, 3], due from `start` on, on top of `origin`."""

    def __init__(self, actions, start, origin, run, step):
        self.actions, self.start, self.origin, self.run, self.step = np.float64(actions), start, origin, run, step
        self.sent = start

    def at(self, time):
        steps = np.clip((time - self.start) / self.step, 0, len(self.actions) - 1)
        return np.array([np.interp(steps, np.arange(len(self.actions)), c) for c in self.actions.T]) + self.origin

    def executes(self, now):
        return self.sent <= now <= self.start + len(self.actions) * self.step


@pytest.mark.parametrize("representation", ["absolute_position", "delta_position", "velocity"])
@pytest.mark.parametrize("seed", range(20))
def test_a_drive(tokenizer, representation, seed):
    rng = np.random.default_rng(seed)
    step, horizon = int(rng.choice([20_000_000, 33_333_333, 100_000_000])), int(rng.integers(2, 30))
    arm = from_dict({"name": "arm", "joints": JOINTS, "cameras": ["top"], "step_dt": step / 1e9, "grippers": GRIPPERS,
                     "representation": representation})
    measures = {f: Statistics(mean=np.zeros(3), std=np.ones(3)) for f in ("state", "actions")}
    pipeline = Pipeline(arm, measures, "lerobot_mean_std", tokenizer, action_dim=8)

    def settings():
        return read({**SETTINGS, "step_dt": step / 1e9, "chunk_continuity": str(rng.choice(["none", "blend", "rtc"])),
                     "continuity_rows": int(rng.choice([0, 1, 5])), "rate_limits.a": float(rng.uniform(1, 20))})

    now, run, told, limits = 10**15, 0, None, settings()
    continuity = Continuity(pipeline, limits)
    slowest = rng.choice([3, 0.7 * horizon, 1.6 * horizon]) * step
    for _ in range(FRAMES):
        now += int(rng.uniform(0.2, 1.2) * horizon * step / 2)
        state = rng.normal(size=3)
        if rng.random() < 0.15:
            hold = continuity.hold(now, state, horizon)
            run, told = run + 1, Executor(hold.actions, now, np.zeros(3), None, step)
        stamp, began = now - int(rng.uniform(-2, 5) * step), now
        seam = continuity.begin(run, state, pipeline.robot.to_model_state(state), stamp, began)
        if rng.random() < 0.1:
            continue
        now += int(rng.uniform(0, slowest))
        if rng.random() < 0.2:
            limits = settings()
            continuity.use(limits)
        raw = (rng.normal(size=3) + np.cumsum(rng.normal(size=(horizon, 3)), 0) / 3).astype(np.float32)
        command = continuity.finish(raw, seam, now)

        origin = np.array([state[0], state[1], 0]) * (representation == "delta_position")
        known = told is not None and told.run in (run, None) and told.executes(began)
        joins = known and told.run == run and told.executes(now)
        start = stamp if joins else now
        due = max(0, math.ceil((now - start) / step))
        assert (command is None) == (joins and due >= horizon)  # all of it is past: the robot goes on with the old one
        if command is None:
            continue
        if joins:
            before = told.at(start + (due - 1) * step) - origin
            for i in range(min(due, command.committed)):  # as they were executed meanwhile
                np.testing.assert_allclose(command.actions[i], told.at(start + i * step) - origin, atol=1e-5)
        elif known and told.run is None:
            before = told.actions[0]
        elif known:
            before = told.at(math.inf) - origin
            before = before * ([0, 0, 1] if representation == "velocity" else 1)
        else:
            before = state * ([1, 1, 1] if representation == "absolute_position" else [0, 0, 1])
        assert command.start_ns == start and (joins or not command.committed)
        followed = np.vstack([before, command.actions[due:]])
        change = np.abs(np.diff(followed[:, 0])).max(initial=0)
        assert change <= limits.rate_limits["a"] * step / 1e9 + 1e-5
        first = max(due, command.committed)
        if first < horizon:
            there = told.at(start + first * step) - origin if joins else before
            assert command.boundary_jump == pytest.approx(np.abs(command.actions[first] - there).max(), abs=1e-5)
        told = Executor(command.actions, start, origin, run, step)
        told.sent = now
