"""The node's health on /diagnostics, once a second, also when time stands still."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.clock import Clock, ClockType

from . import qos
from .inputs import Now

if TYPE_CHECKING:
    from .oxygen_node import OxygenNode

_FAILURES_FOR_ERROR = 3


class Diagnostics:
    """Two statuses: `inputs` (what each topic gives) and `engine` (frames, language, memory)."""

    def __init__(self, node: OxygenNode) -> None:
        self._node = node
        self._publisher = node.create_publisher(
            DiagnosticArray, "/diagnostics", qos.DIAGNOSTICS, qos_overriding_options=qos.overridable()
        )
        # A steady clock: under use_sim_time a ROS timer would fall silent just when there is something to say.
        node.create_timer(1.0, self.publish, clock=Clock(clock_type=ClockType.STEADY_TIME))

    def publish(self) -> None:
        message = DiagnosticArray(status=[self._inputs(), self._engine()])
        message.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(message)

    def _status(self, part: str, level: bytes, text: str, values: dict[str, object]) -> DiagnosticStatus:
        name = self._node.get_fully_qualified_name()
        return DiagnosticStatus(
            level=level, name=f"{name}: {part}", message=text, hardware_id=name,
            values=[KeyValue(key=key, value=str(value)) for key, value in values.items()],
        )

    def _inputs(self) -> DiagnosticStatus:
        session = self._node.session
        if session is None:
            return self._status("inputs", DiagnosticStatus.OK, "not configured", {})
        now = Now(time.monotonic_ns(), 0)
        values: dict[str, object] = {}
        for source in session.inputs:
            age = source.age(now)
            values[f"{source.topic} age (s)"] = "no message yet" if age is None else f"{age:.3f}"
            values[f"{source.topic} received"] = source.received
            values[f"{source.topic} refused"] = source.refused
        problems = [source.problem for source in session.inputs if source.problem]
        waiting = list(session.health.waiting_for) if self._node.active else []
        values["frames without usable input"] = session.health.stale_inputs
        if waiting or problems:
            return self._status("inputs", DiagnosticStatus.WARN, "; ".join(waiting + problems), values)
        return self._status("inputs", DiagnosticStatus.OK, "all inputs are used" if self._node.active else "not active", values)

    def _engine(self) -> DiagnosticStatus:
        node, session = self._node, self._node.session
        if session is None:
            level = DiagnosticStatus.ERROR if node.last_failure else DiagnosticStatus.OK
            return self._status("engine", level, node.last_failure or "not configured", {})
        health, policy, stats = session.health, session.policy, session.health.stats
        task = session.instructions.task
        values: dict[str, object] = {
            "policy": policy.folder,
            "weights": "trained" if policy.trained else "random",
            "robot": policy.robot.name,
            "instruction": f"{task.instruction_id}: {task.text}" if task else "none",
            "last error": health.last_error or "none",
            "failed frames in a row": health.failures_in_a_row,
            "deadline misses": session.loop.misses,
        }
        if stats is not None:
            values |= {
                "frame (s)": f"{stats.total:.4f}",
                "slack (s)": f"{stats.slack:.4f}",
                "first chunk (s)": f"{stats.first_chunk_latency:.4f}",
                "language requests active": stats.active_requests,
                "language requests waiting": stats.waiting_requests,
                "KV slots used": f"{stats.slots_used} of {stats.slots_total}",
            }
        if health.failures_in_a_row >= _FAILURES_FOR_ERROR:
            return self._status("engine", DiagnosticStatus.ERROR, f"{health.failures_in_a_row} frames failed in a row; "
                                f"last: {health.last_error}", values)
        if health.failures_in_a_row:
            return self._status("engine", DiagnosticStatus.WARN, health.last_error, values)
        return self._status("engine", DiagnosticStatus.OK, "active" if node.active else "configured, not active", values)
