"""Ranges of the expert's joints, for a policy's normalisation: python -m oxygen_ros.sim.statistics --out FILE.json"""
from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from . import expert, robot

HORIZON = 50  # commands that one action chunk of pi0.5 looks ahead


def measure(values: np.ndarray) -> dict[str, list[float]]:
    """Measures over all axes but the last, one number per joint. values: [..., 14]."""
    rows = values.reshape(-1, values.shape[-1])
    return {"q01": np.quantile(rows, 0.01, axis=0).tolist(), "q99": np.quantile(rows, 0.99, axis=0).tolist(),
            "mean": rows.mean(axis=0).tolist(), "std": rows.std(axis=0).tolist(),
            "min": rows.min(axis=0).tolist(), "max": rows.max(axis=0).tolist()}


def differences(commands: np.ndarray, states: np.ndarray) -> np.ndarray:
    """[pairs, 14]: command[t + k] - state[t] of one episode, for k of 0 to 49 as far as the episode reaches."""
    steps = len(commands)
    return np.concatenate([commands[k:] - states[:steps - k] for k in range(min(HORIZON, steps))])


def collect(first_seed: int, episodes: int) -> dict:
    """Statistics over that many successful seeds, in robot units; seeds on which the expert fails are listed."""
    states, commands, deltas, failed = [], [], [], []
    seed = first_seed
    while len(states) < episodes:
        demonstration = expert.demonstrate(seed)
        trial = expert.replay(demonstration, seed)
        if trial.succeeded:
            states.append(trial.states)
            commands.append(demonstration.targets)
            deltas.append(differences(demonstration.targets, trial.states))
        else:
            failed.append(seed)
        seed += 1
    return {
        "joints": list(robot.JOINTS),
        "units": "rad; grippers: finger position in m",
        "seeds": [s for s in range(first_seed, seed) if s not in failed],
        "failed_seeds": failed,
        "joint_states": measure(np.array(states)),
        "joint_commands": measure(np.array(commands)),
        "delta": {
            "definition": f"joint_commands[t + k] - joint_states[t], k = 0..{HORIZON - 1}, t + k within the episode",
            **measure(np.concatenate(deltas)),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Quantiles, mean and spread of the expert's joint data (no pictures).")
    parser.add_argument("--seed", type=int, default=0, help="first seed (default: %(default)s)")
    parser.add_argument("--episodes", type=int, default=50, help="successful ones (default: %(default)s)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")
    arguments = parser.parse_args()
    result = collect(arguments.seed, arguments.episodes)
    arguments.out.write_text(json.dumps(result, indent=1))
    print(f"{arguments.out}: {len(result['seeds'])} episodes, {len(result['failed_seeds'])} failed")


if __name__ == "__main__":
    main()
