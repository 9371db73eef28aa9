"""One bag, one policy or two: rollouts and all that is said of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..engine.baselines import MODES
from ..policy import load_policy
from ..settings import Settings
from .bag import Bag, BagError, in_its_own_time, open_bag
from .commands import Commands, read_commands
from .decoding import Decoding
from .heard import Live, heard
from .measures import accuracy, action_range, executed, moment_errors, motion, plain, timing
from .rollout import OfflineNode, Part, Repeatable, Rollout, repeatable
from .sources import Names, Sources, find
from .texts import alike, language, recorded_texts

ENGINE = "oxygen"
_OWN_NOISE = "a live node draws noise of its own: its actions compare with fixed_noise: true and one seed for both sides"


@dataclass(frozen=True)
class Side:
    """What is evaluated: a policy under settings, in an engine mode. name: as the report shows it."""

    name: str
    settings: Settings
    policy: Repeatable


@dataclass(frozen=True)
class Evaluation:
    """result: for JSON. The rest is for pictures and recordings of it; sources and rollouts are one for each side."""

    result: dict[str, Any]
    bag: Bag
    sides: Sequence[Side]
    sources: Sequence[Sources]
    rollouts: Sequence[Rollout]
    commands: Commands | None


def load_side(name: str, settings: Settings, mode: str = ENGINE, say: Callable[[str], None] = lambda line: None
              ) -> Side:
    """Raises what `load_policy` raises. Without a seed it takes 0: equal bags are to give equal reports."""
    settings = replace(settings, seed=max(settings.seed, 0))
    side = Side(name, settings, repeatable(load_policy(settings, say), settings.seed))
    side.policy.rehearse(settings.cameras)
    return side if mode == ENGINE else in_mode(side, name, mode)


def in_mode(side: Side, name: str, mode: str) -> Side:
    """The same network under another engine."""
    engine = MODES[mode](side.policy.engine.model, side.policy.engine.settings)
    engine.warm_up()
    policy = replace(side.policy, engine=engine, draw=replace(side.policy.draw))
    policy.rehearse(side.settings.cameras)
    return Side(name, side.settings, policy)


def evaluate(path: str, sides: Sequence[Side], names: Names, part: Part,
             goes_on: Callable[[float], bool] = lambda done: True, live: Live | None = None) -> Evaluation:
    """goes_on: is given how much is done, 0 to 1, and says whether to go on; what there is then is evaluated.

    live: what a node said to this bag, as a second side. Raises BagError, with the bag's path, for one that cannot be
    evaluated, and Stopped where there was nothing yet.
    """
    reached = 0.0

    def wanted() -> bool:
        return goes_on(reached)

    bag, decoding = in_its_own_time(replace(open_bag(path), wanted=wanted)), Decoding()
    sources = [find(bag, side.settings, names, decoding) for side in sides]
    robot = sides[0].policy.robot
    commands = read_commands(bag, sources[0].commands, robot) if sources[0].commands else None
    texts = recorded_texts(bag, sources[0].text) if sources[0].text else None
    rollouts: list[Rollout] = []
    for number, side in enumerate(sides):
        if rollouts and rollouts[-1].partial:
            sides = sides[:number]
            break
        node = OfflineNode(side.policy, side.settings, sources[number])
        reached = number / len(sides)
        rollouts.append(node.run(bag, part, lambda done, n=number: goes_on((n + done) / len(sides))))
    reached = 1.0
    if live is not None and not rollouts[0].partial:
        sides, sources = [*sides, replace(sides[0], name="live")], [*sources, sources[0]]
        rollouts.append(heard(live, rollouts[0]))
    for side, rollout in zip(sides, rollouts):
        if not any(m.actions is not None for m in rollout.moments):
            reasons = dict.fromkeys(reason for m in rollout.moments for reason in m.reasons)
            raise BagError(f"{path} gives no frame at all: {'; '.join(list(reasons)[:4])}")
    result = {
        "bag": str(path),
        "duration_s": bag.duration,
        "topics": {t.name: {"type": t.type, "count": bag.counts.get(t.name, 0)} for t in bag.topics.values()},
        "not_used": sources[0].unused,
        "notes": [*(["time is told by the bag's own /clock"] if bag.clock else []), *dict.fromkeys(decoding.notes),
                  *(commands.notes if commands else ()),
                  *([_OWN_NOISE] if live and not sides[0].settings.fixed_noise else [])],
        "commands": commands and {
            "topic": commands.topic, "count": len(commands.times_ns), "range": action_range(robot, commands),
        },
        "partial": any(rollout.partial for rollout in rollouts),
        "actions": robot.actions,
        "step_dt": robot.step_dt,
        "sides": {side.name: _measured(side, rollout, commands, texts) for side, rollout in zip(sides, rollouts)},
    }
    if len(rollouts) == 2:
        result["difference"] = difference(*rollouts, live=live is not None)
    return Evaluation(plain(result), bag, sides, sources, rollouts, commands)


def _measured(side: Side, rollout: Rollout, commands: Commands | None, texts: Sequence[str] | None) -> dict[str, Any]:
    robot = side.policy.robot
    comparable = commands is not None and robot.representation != "end_effector_delta"
    errors = moment_errors(rollout, robot, commands) if comparable else np.full(len(rollout.moments), np.nan)
    return {
        "notes": [line if n == 1 else f"{line} ({n} times)" for line, n in rollout.notes.items()],
        "instructions": {str(i): {"text": text, "from_s": (ns - rollout.start_ns) / 1e9}
                         for i, (text, ns) in rollout.instructions.items()},
        "accuracy": accuracy(rollout, robot, commands) if comparable else None,
        "motion": motion(executed(rollout, robot), robot, commands if comparable else None),
        "timing": timing(rollout),
        "language": language(rollout, texts),
        "frames": [_frame(moment, rollout, error) for moment, error in zip(rollout.moments, errors)],
    }


def _frame(moment: Any, rollout: Rollout, error: float) -> dict[str, Any]:
    stats = moment.stats
    return {
        "t": (moment.tick_ns - rollout.start_ns) / 1e9,
        "tick_ns": moment.tick_ns,
        "sequence": moment.sequence,
        "chunk": moment.actions is not None,
        "start_ns": moment.start_ns,
        "stamp_ns": moment.stamp_ns,
        "used": moment.used,
        "normalised_mae": error,
        "state": moment.state,
        "actions": None if moment.actions is None else _shortest(moment.actions),
        "instruction_id": moment.instruction_id,
        "reasons": moment.reasons,
        "first_chunk_latency": stats.first_chunk_latency if stats and moment.actions is not None else None,
        "total": stats.total if stats else None,
        "tokens": stats.tokens if stats else 0,
    }


def _shortest(values: np.ndarray) -> np.ndarray:
    """float32 as float64 with the fewest digits that tell it."""
    return np.asarray(values, np.float32).astype(str).astype(np.float64)


def difference(a: Rollout, b: Rollout, live: bool = False) -> dict[str, Any]:
    """Of two rollouts over the same bag, b less a: frame by frame of the same tick, or, where b was live and its ticks
    were its own, of the same newest message."""
    ours, theirs = ({m.stamp_ns if live else m.tick_ns: m for m in r.moments if m.actions is not None} for r in (a, b))
    both = [(ours[key], theirs[key]) for key in ours if key in theirs]
    same_shape = all(x.actions.shape == y.actions.shape for x, y in both)
    gaps = np.array([abs(x.actions - y.actions) for x, y in both]) if both and same_shape else np.zeros((0, 0, 0))
    said, others = ({answer.request_id: answer.text for answer in rollout.answers} for rollout in (a, b))
    texts = {i: (said.get(i, ""), others.get(i, "")) for i in sorted(said | others)}
    latency = [(y.stats.first_chunk_latency - x.stats.first_chunk_latency) for x, y in both if x.stats and y.stats]
    return {
        "live": live,
        "frames": len(both),
        "frames_in_one_only": len(ours.keys() ^ theirs.keys()),
        "frames_of_other_messages": sum(bool(y.used) and x.used != y.used for x, y in both),
        "same_shape": same_shape,
        "max": gaps.max() if gaps.size else None,
        "mean": gaps.mean() if gaps.size else None,
        "max_per_dimension": gaps.max((0, 1)) if gaps.size else None,
        "texts": {**alike([t for t, _ in texts.values()], [t for _, t in texts.values()]),
                  "different": {str(i): pair for i, pair in texts.items() if pair[0] != pair[1]}},
        "first_chunk_latency_s": {"mean": np.mean(latency), "p50": np.median(latency)} if latency else None,
    }


def unequal(found: dict[str, Any], limit: float) -> str | None:
    """One line that says in what two sides differ by more than the limit, or None."""
    if not found["same_shape"]:
        return "the chunks are of another size"
    if not found["frames"]:
        return "there is no frame that both made"
    if found["frames_in_one_only"] and not found["live"]:  # when a live node's ticks are is for its clock to say
        return f"{found['frames_in_one_only']} frames were made by one of the two only"
    if found["frames_of_other_messages"]:
        return f"{found['frames_of_other_messages']} frames were made from other messages"
    if not found["max"] <= limit:
        return f"actions differ by up to {found['max']:.3g}, the limit is {limit:g}"
    if found["texts"]["different"]:
        return f"the texts of {len(found['texts']['different'])} requests differ"
    return None
