"""What the node promised, and what it did: every message is looked at, whatever is broken is written down."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.event_handler import PublisherEventCallbacks
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy

from ..msg import ActionChunk, FrameStats, Instruction, LanguageToken
from ..node import messages, qos
from ..stamps import nanoseconds

_ENDS = {number: reason.value for reason, number in messages.FINISH_REASONS.items()}
_WORST_LATENCY = 1.0  # s from the end of a limit to a chunk that was begun before; the machine may be busy


class Ledger:
    """Hears everything that `target` publishes. broken: a line for each promise that was not kept."""

    def __init__(self, node: Node, target: str) -> None:
        self._node, self._target = node, target
        self.broken: list[str] = []
        self.counts: Counter[str] = Counter()
        self.chunks = 0
        self.last_chunk: ActionChunk | None = None
        self.values: dict[str, str] = {}  # of the newest report on inputs
        self.said: list[str] = []  # what reports said of the inputs since `listen_for`
        self.errors: Counter[str] = Counter()
        self.stats: FrameStats | None = None
        self.reports = 0
        self._asked: dict[int, float] = {}
        self._next: dict[int, int] = {}  # request -> index of its next token
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
        listen(FrameStats, f"{target}/frame_stats", self._on_stats,
               QoSProfile(depth=100, reliability=ReliabilityPolicy.BEST_EFFORT))
        listen(DiagnosticArray, "/diagnostics", self._on_diagnostics, qos.DIAGNOSTICS)

    # What is asked of the node

    def heard_by_node(self) -> bool:
        return self._instruction.get_subscription_count() > 0

    def act(self, text: str, instruction_id: int) -> None:
        self._stopped = None
        self._tell(Instruction.ACT, instruction_id, text)

    def stop(self, instruction_id: int) -> None:
        self.hold, self._stopped = None, (instruction_id, self._now())
        self._tell(Instruction.STOP, instruction_id)

    def ask(self, task: int, request_id: int, text: str, max_tokens: int) -> None:
        self._asked[request_id], self._next[request_id] = time.monotonic(), 0
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

    def listen_for(self) -> None:
        self.said = []

    # What it does

    def _on_chunk(self, chunk: ActionChunk) -> None:
        values = np.frombuffer(chunk.data, np.float32) if len(chunk.data) else np.empty(0, np.float32)
        published = nanoseconds(chunk.header.stamp) + nanoseconds(chunk.latency)
        if not values.size or not np.isfinite(values).all():
            self._break(f"chunk {chunk.sequence} holds NaN or infinity, or nothing")
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
        self.chunks, self.last_chunk = self.chunks + 1, chunk
        self._forbidden = [entry for entry in self._forbidden if entry[1] > published - 10_000_000_000]

    def _on_token(self, token: LanguageToken) -> None:
        request = token.request_id
        if request not in self._asked:
            self._break(f"a token of request {request}, which has ended or was never made")
            return
        if token.index != self._next[request]:
            self._break(f"request {request}: token {token.index} came where {self._next[request]} was next")
        self._next[request] = token.index + 1
        self.counts["tokens"] += token.token_id >= 0
        if token.last:
            self.counts[f"ended {_ENDS[token.finish_reason]}"] += 1
            del self._asked[request], self._next[request]

    def _on_stats(self, stats: FrameStats) -> None:
        self.stats = stats

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            if status.name == f"{self._target}: inputs":
                self.values = {pair.key: pair.value for pair in status.values}
                self.said.append(status.message)
                self.reports += 1
            elif status.name.startswith(f"{self._target}: ") and status.level == DiagnosticStatus.ERROR:
                self.errors[status.message] += 1

    def _break(self, line: str) -> None:
        self.broken.append(line)

    def _now(self) -> int:
        return self._node.get_clock().now().nanoseconds

    def _tell(self, task: int, instruction_id: int, text: str = "", max_tokens: int = 0) -> None:
        self._instruction.publish(Instruction(task=task, id=instruction_id, text=text, max_tokens=max_tokens))
