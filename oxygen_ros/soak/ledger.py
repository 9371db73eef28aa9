"""What the node promised, and what it did: every message is looked at, whatever is broken is written down."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.event_handler import PublisherEventCallbacks
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from std_msgs.msg import String

from ..msg import ActionChunk, FrameStats, Instruction, LanguageToken
from ..node import messages, qos
from ..stamps import nanoseconds

_ENDS = {number: reason.value for reason, number in messages.FINISH_REASONS.items()}
_WORST_LATENCY = 1.0  # s from the end of a limit to a chunk that was begun before; the machine may be busy
_ROUNDED = 1e-5  # what float32 leaves of a position
_FINISHED = (LanguageToken.END_OF_TEXT, LanguageToken.LENGTH)


@dataclass(frozen=True)
class Allowed:
    """What an action may be: lowest and highest position, and the fastest change in a second."""

    low: float
    high: float
    rate: float


class Ledger:
    """Hears everything that `target` publishes. broken: a line for each promise that was not kept. allowed: by action.
    """

    def __init__(self, node: Node, target: str, allowed: Mapping[str, Allowed] = {}) -> None:
        self._node, self._target, self._allowed = node, target, allowed
        self.broken: list[str] = []
        self.counts: Counter[str] = Counter()
        self.chunks = 0
        self.last_chunk: ActionChunk | None = None
        self.values: dict[str, str] = {}  # of the newest report on inputs
        self.said: list[str] = []  # what reports said of the inputs since `listen_for`
        self.told: list[dict[str, str]] = []  # their values
        self.errors: Counter[str] = Counter()
        self.stats: FrameStats | None = None
        self.reports = 0
        self._asked: dict[int, float] = {}
        self._next: dict[int, int] = {}  # request -> index of its next token
        self._said: dict[int, str] = {}  # request -> what its tokens add up to
        self._texts: Counter[tuple[int, str]] = Counter()  # task and text: finished, less those heard as a whole
        self._task: int | None = None  # id of the ACT to obey
        self._forbidden: list[tuple[int, int, str]] = []  # publication times in which no chunk may fall, and why
        self._stopped: tuple[int, int] | None = None  # id of the STOP, and when it was sent
        self.hold: ActionChunk | None = None
        # That the node's subscription for latched publishers does not hear this one is as it should be.
        self._instruction = node.create_publisher(
            Instruction, "instruction", qos.INSTRUCTION,
            event_callbacks=PublisherEventCallbacks(use_default_callbacks=False))
        listen = node.create_subscription
        listen(ActionChunk, f"{target}/action_chunk", self._on_chunk, QoSProfile(depth=100))
        listen(LanguageToken, f"{target}/language_tokens", self._on_token, qos.LANGUAGE_TOKENS)
        listen(String, f"{target}/utterance", lambda said: self._on_text(Instruction.ASK, said.data), qos.UTTERANCE)
        listen(LanguageToken, f"{target}/memory", lambda said: self._on_text(Instruction.REMEMBER, said.text),
               qos.MEMORY)
        listen(FrameStats, f"{target}/frame_stats", self._on_stats,
               QoSProfile(depth=100, reliability=ReliabilityPolicy.BEST_EFFORT))
        listen(DiagnosticArray, "/diagnostics", self._on_diagnostics, qos.DIAGNOSTICS)

    # What is asked of the node

    def heard_by_node(self) -> bool:
        return self._instruction.get_subscription_count() > 0

    def act(self, text: str, instruction_id: int) -> None:
        self._stopped, self._task = None, instruction_id
        self._tell(Instruction.ACT, instruction_id, text)

    def stop(self, instruction_id: int) -> None:
        self.hold, self._stopped = None, (instruction_id, self._now())
        self._tell(Instruction.STOP, instruction_id)

    def ask(self, task: int, request_id: int, text: str, max_tokens: int) -> None:
        self._asked[request_id], self._next[request_id], self._said[request_id] = time.monotonic(), 0, ""
        self.counts["requests"] += 1
        self._tell(task, request_id, text, max_tokens)

    def cancel(self, request_id: int) -> None:
        self._tell(Instruction.CANCEL, request_id)

    def forbid(self, begin_ns: int, limit: float, why: str) -> Callable[[], None]:
        """No chunk may be published from `limit` seconds after `begin_ns` on, until what is returned is called."""
        entry = [begin_ns + round((limit + _WORST_LATENCY) * 1e9), 1 << 62, why]
        self._forbidden.append(entry)

        def end() -> None:
            entry[1] = self._now()

        return end

    def unanswered(self) -> list[int]:
        return sorted(self._asked)

    def unspoken(self) -> list[str]:
        """Finished texts that were not, or not once, on the topic of whole ones; [] if all were."""
        return [text for (_, text), missing in self._texts.items() if missing]

    def listen_for(self) -> None:
        self.said, self.told = [], []

    # What it does

    def _on_chunk(self, chunk: ActionChunk) -> None:
        published = nanoseconds(chunk.header.stamp) + nanoseconds(chunk.latency)
        if not len(chunk.data) or not np.isfinite(chunk.data).all():
            self._break(f"chunk {chunk.sequence} holds NaN or infinity, or nothing")
        else:
            self._judge_motion(chunk, published)
        if self.last_chunk is not None and chunk.sequence <= self.last_chunk.sequence:
            self._break(f"chunk {chunk.sequence} came after chunk {self.last_chunk.sequence}")
        if nanoseconds(chunk.header.stamp) > self._now() + 200_000_000:
            self._break(f"chunk {chunk.sequence} is stamped in the future")
        for begin, end, why in self._forbidden:
            if begin < published < end:
                self._break(f"chunk {chunk.sequence} was published although {why}")
        if self._stopped is not None:
            if chunk.instruction_id == self._stopped[0]:
                self.hold = chunk
            elif published > self._stopped[1] + round(_WORST_LATENCY * 1e9) or self.hold is not None:
                self._break(f"chunk {chunk.sequence} came after STOP {self._stopped[0]}")
        elif self._task is not None and chunk.instruction_id != self._task:
            self._break(f"chunk {chunk.sequence} obeys instruction {chunk.instruction_id}, the last is {self._task}")
        self.chunks, self.last_chunk = self.chunks + 1, chunk
        self._forbidden = [entry for entry in self._forbidden if entry[1] > published - 10_000_000_000]

    def _judge_motion(self, chunk: ActionChunk, published: int) -> None:
        """Rows that are past on publication are history."""
        start, step, old = nanoseconds(chunk.start), nanoseconds(chunk.step_dt), self.last_chunk
        due = max(0, -(-(published - start) // step))
        moving = start == nanoseconds(chunk.header.stamp)  # else it follows where the joints are
        joins = moving and old is not None and old.sequence == chunk.sequence - 1  # none between was lost on its way
        for name, may in self._allowed.items():
            sent = _column(chunk, name)[due:]
            if not ((may.low - _ROUNDED <= sent) & (sent <= may.high + _ROUNDED)).all():
                self._break(f"chunk {chunk.sequence}: {name} leaves [{may.low:g}, {may.high:g}]")
            if joins:
                sent = np.insert(sent, 0, _at(old, name, start + (due - 1) * step))
            if (np.abs(np.diff(sent)) > may.rate * step / 1e9 + _ROUNDED).any():
                self._break(f"chunk {chunk.sequence}: {name} changes faster than {may.rate:g} a second")

    def _on_token(self, token: LanguageToken) -> None:
        request = token.request_id
        if request not in self._asked:
            self._break(f"a token of request {request}, which has ended or was never made")
            return
        if token.index != self._next[request]:
            self._break(f"request {request}: token {token.index} came where {self._next[request]} was next")
        self._next[request] = token.index + 1
        self._said[request] += token.text
        self.counts["tokens"] += token.token_id >= 0
        if token.last:
            self.counts[f"ended {_ENDS[token.finish_reason]}"] += 1
            if token.finish_reason in _FINISHED:
                self._texts[token.task, self._said[request]] += 1
            del self._asked[request], self._next[request], self._said[request]

    def _on_text(self, task: int, text: str) -> None:
        self._texts[task, text] -= 1

    def _on_stats(self, stats: FrameStats) -> None:
        self.stats = stats

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            if status.name == f"{self._target}: inputs":
                self.values = {pair.key: pair.value for pair in status.values}
                self.said.append(status.message)
                self.told.append(self.values)
                self.reports += 1
            elif status.name.startswith(f"{self._target}: ") and status.level == DiagnosticStatus.ERROR:
                self.errors[status.message] += 1

    def _break(self, line: str) -> None:
        self.broken.append(line)

    def _now(self) -> int:
        return self._node.get_clock().now().nanoseconds

    def _tell(self, task: int, instruction_id: int, text: str = "", max_tokens: int = 0) -> None:
        self._instruction.publish(Instruction(task=task, id=instruction_id, text=text, max_tokens=max_tokens))


def _column(chunk: ActionChunk, name: str) -> np.ndarray:
    """[H], what this action is to be."""
    return np.array(chunk.data, float).reshape(chunk.horizon, -1)[:, list(chunk.names).index(name)]


def _at(chunk: ActionChunk, name: str, time_ns: int) -> float:
    """Where a chunk leads this action to by then."""
    steps = (time_ns - nanoseconds(chunk.start)) / nanoseconds(chunk.step_dt)
    return float(np.interp(steps, np.arange(chunk.horizon), _column(chunk, name)))
