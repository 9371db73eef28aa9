"""The node's health on /diagnostics, once a second, also when time stands still."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.clock import Clock, ClockType

from ..embodiment.errors import on_one_line
from ..source import Now, Source
from . import graph, qos
from .endpoints import make
from .readings import readings
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
        self._told: dict[str, int] = {}  # counts as they were when they were last reported
        self._heard: dict[str, tuple[int, float]] = {}  # topic -> messages received, and when that was
        self._publisher = make(node.create_publisher, DiagnosticArray, "/diagnostics", copy.copy(qos.DIAGNOSTICS),
                               qos_overriding_options=qos.overridable())
        # A steady clock: under use_sim_time a ROS timer would fall silent just when there is something to say.
        node.create_timer(1.0, self.publish, clock=Clock(clock_type=ClockType.STEADY_TIME))

    def publish(self) -> None:
        try:
            self._publish(self._node.session)  # a transition in another thread may take it away at any time
        except Exception as error:  # a report that fails must not end the executor, which serves everything else
            if line := self._throttle("diagnostics", f"no diagnostics: {error!r}"):
                self._node.get_logger().error(line)

    def _publish(self, session: Session | None) -> None:
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
        for line in filter(None, (self._throttle(problem.partition(":")[0], problem) for problem in problems)):
            self._node.get_logger().warning(line)
        if session is None:
            level = DiagnosticStatus.WARN if problems else DiagnosticStatus.OK
            return self._status("inputs", level, problems or ["not configured"], {})
        session.look()  # what waits for a tick counts too
        now = Now(time.monotonic_ns(), 0)
        values: dict[str, object] = {}
        for source in session.inputs:
            age = source.age(now)
            values[f"{source.topic} age (s)"] = "no message yet" if age is None else f"{age:.3f}"
            values[f"{source.topic} rate (Hz)"] = self._rate(source)
            values[f"{source.topic} received"] = source.received
            values[f"{source.topic} refused"] = source.refused
            values[f"{source.topic} overtaken"] = source.late
            values[f"{source.topic} without a stamp"] = source.stampless
            values[f"{source.topic} frames without it"] = source.unusable
            problems += map(str, source.complaints(now))
        values["frames without usable input"] = session.frames.health.stale_inputs
        values["frames without an optional camera"] = session.frames.health.masked_frames
        if self._node.active:
            problems = [*self._clock(session), *session.frames.health.lacking(), *problems]
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
        if session is None:
            failure = self._node.last_failure
            level = DiagnosticStatus.ERROR if failure else DiagnosticStatus.OK
            return self._status("engine", level, [failure or "not configured"], {})
        health, values = session.frames.health, _engine_values(session)
        # What happened since the last report is reported, though the next frame may be fine again.
        failed = self._grown("failed", health.failed_frames)
        refused = self._grown("refused", session.refused_instructions)
        missed = self._grown("missed", session.loop.misses)
        if failed and health.last_error:
            texts = [health.last_error]
            if health.failures_in_a_row > 1:
                texts.append(f"{health.failures_in_a_row} frames failed in a row")
            return self._status("engine", DiagnosticStatus.ERROR, texts, values)
        warnings = [session.last_refusal] if refused and session.last_refusal else []
        if self._node.active:
            warnings += _slowness(session, missed)
        texts = ["active" if self._node.active else "configured, not active"]
        texts += ["dry_run: no commands are published"] if session.settings.dry_run else []
        if warnings or session.warnings:
            return self._status("engine", DiagnosticStatus.WARN, [*warnings, *texts, *session.warnings], values)
        return self._status("engine", DiagnosticStatus.OK, texts, values)

    def _grown(self, name: str, count: int) -> int:
        """By how much since the last report. A count that is smaller began anew."""
        before = self._told.get(name, 0)
        self._told[name] = count
        return count - before if count >= before else count

    def _rate(self, source: Source) -> str:
        """Messages a second since the last report."""
        now = time.monotonic()
        before, then = self._heard.get(source.topic, (0, now))
        self._heard[source.topic] = (source.received, now)
        return f"{(source.received - before) / (now - then):.1f}" if now > then and source.received >= before else "0.0"


def _engine_values(session: Session) -> dict[str, object]:
    health, policy, task = session.frames.health, session.policy, session.instructions.task
    values: dict[str, object] = {
        "policy": policy.folder,
        "weights": "trained" if policy.trained else "random",
        "weights sha256": policy.sha256,
        "robot": policy.robot.name,
        "commands": "none (dry_run)" if session.settings.dry_run else "published",
        "instruction": f"{task.instruction_id}: {on_one_line(task.text[:200])}" if task else "none",
        "refused instructions": session.refused_instructions,
        "last refusal": session.last_refusal or "none",
        "last error": health.last_error or "none",
        "failed frames": health.failed_frames,
        "failed frames in a row": health.failures_in_a_row,
        "deadline misses": session.loop.misses,
        "chunks too late to send": health.late_chunks,
        "actions clamped": health.clamped_actions,
        "actions slowed": health.slowed_actions,
        **readings(policy.engine.model.device),
    }
    if (stats := health.stats) is not None:
        values |= {
            "period (s)": f"{1 / session.settings.control_rate:.4f}",
            "frame (s)": f"{stats.total:.4f}",
            "slack (s)": f"{stats.slack:.4f}",
            "first chunk (s)": f"{stats.first_chunk_latency:.4f}",
            "boundary jump": f"{stats.boundary_jump:.4f}",
            "language requests active": stats.active_requests,
            "language requests waiting": stats.waiting_requests,
            "KV slots used": f"{stats.slots_used} of {stats.slots_total}",
        }
    return values


def _slowness(session: Session, missed: int) -> list[str]:
    """A line where frames take too long. missed: control ticks since the last report."""
    health, settings, lines = session.frames.health, session.settings, []
    if missed:
        took = health.stats.total if health.stats else 0.0
        lines.append(f"{missed} control ticks missed: a frame takes {took:.3f} s, "
                     f"the period is {1 / settings.control_rate:.3f} s")
    if health.late_in_a_row and session.instructions.task:
        lines.append(f"{health.late_in_a_row} chunks in a row not sent: each came later than chunk_lifespan, "
                     f"{settings.chunk_lifespan:g} s; raise it, or lower denoise_steps")
    return lines
