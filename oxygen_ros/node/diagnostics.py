"""The node's health on /diagnostics, once a second, also when time stands still."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.clock import Clock, ClockType

from ..inputs import Now
from . import graph, qos
from .endpoints import make
from .throttle import Throttle

if TYPE_CHECKING:
    from .oxygen_node import OxygenNode
    from .session import Session

_SILENCE = 2.0  # s without the end of a frame, while active, that call for a word


class Diagnostics:
    """Two statuses: `inputs` (what each topic gives) and `engine` (frames, language, memory)."""

    def __init__(self, node: OxygenNode) -> None:
        self._node = node
        self._throttle = Throttle(period=60.0)
        self._failures_told = self._refusals_told = 0
        self._publisher = make(node.create_publisher, DiagnosticArray, "/diagnostics", copy.copy(qos.DIAGNOSTICS),
                               qos_overriding_options=qos.overridable())
        # A steady clock: under use_sim_time a ROS timer would fall silent just when there is something to say.
        node.create_timer(1.0, self.publish, clock=Clock(clock_type=ClockType.STEADY_TIME))

    def publish(self) -> None:
        session = self._node.session  # a transition in another thread may take it away at any time
        message = DiagnosticArray(status=[self._inputs(session), self._engine(session)])
        message.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(message)

    def _status(self, part: str, level: bytes, texts: Sequence[str], values: Mapping[str, object]) -> DiagnosticStatus:
        name = self._node.get_fully_qualified_name()
        return DiagnosticStatus(
            level=level, name=f"{name}: {part}", message="; ".join(dict.fromkeys(texts)), hardware_id=name,
            values=[KeyValue(key=key, value=str(value)) for key, value in values.items()],
        )

    def _inputs(self, session: Session | None) -> DiagnosticStatus:
        problems = graph.twins(self._node) + (session.graph_problems() if session else [])
        for line in filter(None, (self._throttle("graph", problem) for problem in problems)):
            self._node.get_logger().warning(line)
        if session is None:
            level = DiagnosticStatus.WARN if problems else DiagnosticStatus.OK
            return self._status("inputs", level, problems or ["not configured"], {})
        now = Now(time.monotonic_ns(), 0)
        values: dict[str, object] = {}
        for source in session.inputs:
            age = source.age(now)
            values[f"{source.topic} age (s)"] = "no message yet" if age is None else f"{age:.3f}"
            values[f"{source.topic} received"] = source.received
            values[f"{source.topic} refused"] = source.refused
            problems += map(str, source.complaints())
        values["frames without usable input"] = session.frames.health.stale_inputs
        if self._node.active:
            problems = [*self._clock(session), *map(str, session.frames.health.waiting_for), *problems]
        if problems:
            return self._status("inputs", DiagnosticStatus.WARN, problems, values)
        fine = "all inputs are used" if self._node.active else "not active"
        return self._status("inputs", DiagnosticStatus.OK, [fine], values)

    def _clock(self, session: Session) -> list[str]:
        """A line if no frame ends although the node is active."""
        since = session.frames.health.last_frame or session.activated
        silence = time.monotonic() - since
        if silence < max(_SILENCE, 3.0 / session.settings.control_rate):
            return []
        if not self._node.get_parameter("use_sim_time").value:
            return [f"the frame that began last has been running for {silence:.0f} s"]
        if self._node.get_clock().now().nanoseconds == 0:
            return ["waiting for /clock: use_sim_time is true, and nobody has said what time it is"]
        return [f"/clock stands still, or is slow: no frame for {silence:.0f} s"]

    def _engine(self, session: Session | None) -> DiagnosticStatus:
        node = self._node
        if session is None:
            level = DiagnosticStatus.ERROR if node.last_failure else DiagnosticStatus.OK
            return self._status("engine", level, [node.last_failure or "not configured"], {})
        health, policy, task = session.frames.health, session.policy, session.instructions.task
        values: dict[str, object] = {
            "policy": policy.folder,
            "weights": "trained" if policy.trained else "random",
            "robot": policy.robot.name,
            "instruction": f"{task.instruction_id}: {task.text[:200]}" if task else "none",
            "refused instructions": session.refused_instructions,
            "last refusal": session.last_refusal or "none",
            "last error": health.last_error or "none",
            "failed frames": health.failed_frames,
            "failed frames in a row": health.failures_in_a_row,
            "deadline misses": session.loop.misses,
            "chunks too late to send": health.late_chunks,
        }
        if (stats := health.stats) is not None:
            values |= {
                "frame (s)": f"{stats.total:.4f}",
                "slack (s)": f"{stats.slack:.4f}",
                "first chunk (s)": f"{stats.first_chunk_latency:.4f}",
                "language requests active": stats.active_requests,
                "language requests waiting": stats.waiting_requests,
                "KV slots used": f"{stats.slots_used} of {stats.slots_total}",
            }
        # A frame that failed since the last report is reported, though the next one may be fine again.
        failed = health.failed_frames != self._failures_told
        refused = session.refused_instructions != self._refusals_told
        self._failures_told, self._refusals_told = health.failed_frames, session.refused_instructions
        if failed and health.last_error:
            texts = [health.last_error]
            if health.failures_in_a_row > 1:
                texts.append(f"{health.failures_in_a_row} frames failed in a row")
            return self._status("engine", DiagnosticStatus.ERROR, texts, values)
        if refused and session.last_refusal:
            return self._status("engine", DiagnosticStatus.WARN, [session.last_refusal], values)
        fine = "active" if node.active else "configured, not active"
        return self._status("engine", DiagnosticStatus.OK, [fine], values)
