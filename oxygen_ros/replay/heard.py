"""What a live node said while a recording was played to it, as a rollout beside that of offline replay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from ..engine.outputs import FinishReason, Task
from ..frames import Stats
from ..stamps import nanoseconds
from .bag import Bag, BagError, open_bag
from .decoding import Decoding
from .rollout import Answer, Moment, Rollout

_TASKS = {1: Task.ASK, 2: Task.REMEMBER, 5: Task.SUBTASK}  # as in LanguageToken.msg
_REASONS = tuple(FinishReason)  # in the order of LanguageToken.msg


@dataclass(frozen=True)
class Live:
    """Where the words of a node are recorded; node: its full name."""

    recording: Path
    node: str


def heard(live: Live, offline: Rollout) -> Rollout:
    """The frames of a recording of `oxygen-replay-live`, or of `ros2 bag record`. Where the robot was comes from the
    offline frame of the same stamp, since a chunk does not say. Raises BagError."""
    bag, decoding = open_bag(live.recording), Decoding()
    chunks = {c.sequence: c for _, c in _said(bag, decoding, f"{live.node}/action_chunk", "oxygen_ros/msg/ActionChunk")}
    if not chunks:
        raise BagError(f"{bag.path} holds no chunk of {live.node}")
    known = {m.stamp_ns: m for m in offline.moments if m.actions is not None}
    rollout = Rollout(offline.start_ns, offline.period_ns)
    times = {}
    for received_ns, stats in _said(bag, decoding, f"{live.node}/frame_stats", "oxygen_ros/msg/FrameStats"):
        values = {f.name: getattr(stats, f.name) for f in fields(Stats) if hasattr(stats, f.name)}
        times[stats.sequence] = received_ns, Stats(**values)
    for sequence in sorted(chunks.keys() | times.keys()):
        received_ns, stats = times.get(sequence, (0, None))
        chunk = chunks.get(sequence)
        if chunk is None:
            rollout.moments.append(Moment(received_ns, None, stats=stats, reasons=("no chunk",), sequence=sequence))
            continue
        stamp_ns = nanoseconds(chunk.header.stamp)
        actions = np.array(chunk.data, np.float32).reshape(chunk.horizon, chunk.action_dim)
        same = known.get(stamp_ns)
        rollout.moments.append(Moment(
            stamp_ns + nanoseconds(chunk.latency), actions, nanoseconds(chunk.start), stamp_ns, same and same.state,
            stats=stats, instruction_id=chunk.instruction_id, sequence=sequence,
            sent_ns=stamp_ns + nanoseconds(chunk.latency),
        ))
    rollout.misses = max((stats.deadline_misses for _, stats in times.values()), default=0)
    rollout.answers = _answers(bag, decoding, f"{live.node}/language_tokens")
    return rollout


def _said(bag: Bag, decoding: Decoding, topic: str, kind: str) -> Iterator[tuple[int, Any]]:
    if topic in bag.topics:
        decode = decoding.decoder(bag.topics[topic], (kind,))
        for message in bag.messages([topic]):
            yield message.received_ns, decode(message.data)


def _answers(bag: Bag, decoding: Decoding, topic: str) -> list[Answer]:
    answers: dict[int, Answer] = {}
    finished = []
    for received_ns, token in _said(bag, decoding, topic, "oxygen_ros/msg/LanguageToken"):
        task = _TASKS.get(token.task)
        answer = answers.setdefault(token.request_id, Answer(token.request_id, task.value if task else "", received_ns))
        if token.token_id >= 0:
            answer.first_ns, answer.tokens = answer.first_ns or received_ns, answer.tokens + 1
        answer.text += token.text
        if token.last:
            answer.last_ns, answer.finish_reason = received_ns, _REASONS[token.finish_reason].value
            answer.detail = token.detail
            finished.append(answers.pop(token.request_id))
    return finished + list(answers.values())
