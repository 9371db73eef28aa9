"""One frame: the newest inputs through the engine to whoever listens, and what is known of its health."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, fields
from typing import Protocol

import numpy as np

from .commander import Chunk, Commander
from .continuity import Command, Seam
from .embodiment.errors import InputError
from .embodiment.pipeline import ModelInput
from .engine import outputs
from .engine.engine import FrameError
from .inputs import Inputs, Snapshot
from .instructions import ControlTask, Instructions
from .pi05.rtc import Guidance
from .policy import Policy
from .settings import Settings
from .source import FUTURE_TOLERANCE, NotReady, Now, Reason


@dataclass(frozen=True)
class Tick:
    """One control tick. deadline: `time.monotonic` seconds of the next one."""

    deadline: float
    period: float


@dataclass(frozen=True)
class Stats(outputs.FrameStats):
    """What one frame cost, as in msg/FrameStats.msg."""

    sequence: int = 0
    period: float = 0.0
    preprocess: float = 0.0
    deadline_misses: int = 0
    stale_inputs: int = 0
    observation_age: float = 0.0
    boundary_jump: float = 0.0
    committed_actions: int = 0
    clamped_actions: int = 0
    slowed_actions: int = 0
    masked_frames: int = 0


class Listener(Protocol):
    """Who is given what frames make."""

    def chunk(self, chunk: Chunk) -> None: ...

    def stats(self, stats: Stats) -> None: ...


@dataclass
class Health:
    """What diagnostics report of one activation; written by the frame thread.

    waiting_for: why the last frame had no chunk. masked: why it did without optional cameras.
    """

    waiting_for: tuple[Reason, ...] = ()
    masked: tuple[Reason, ...] = ()
    last_error: str = ""
    failed_frames: int = 0
    failures_in_a_row: int = 0
    stale_inputs: int = 0
    masked_frames: int = 0
    late_chunks: int = 0
    late_in_a_row: int = 0
    clamped_actions: int = 0
    slowed_actions: int = 0
    last_frame: float | None = None  # time.monotonic, when it ended
    stats: Stats | None = None
    _lacked: dict[str, str] = field(default_factory=dict)  # topic -> line, of frames that nobody has asked about yet

    def lack(self, waiting_for: tuple[Reason, ...], masked: tuple[Reason, ...]) -> None:
        """What the frame that begins lacks."""
        self.waiting_for, self.masked = waiting_for, masked
        for topic, line in self._lacks().items():
            self._lacked[topic] = line

    def lacking(self) -> list[str]:
        """A line for each topic that the last frame could not use, or any since this was asked last."""
        lacked, self._lacked = self._lacked, {}
        return list({**lacked, **self._lacks()}.values())

    def _lacks(self) -> dict[str, str]:
        return ({reason.topic: str(reason) for reason in self.waiting_for}
                | {reason.topic: f"left out: {reason}" for reason in self.masked})


@dataclass(frozen=True)
class Seen:
    """What a frame acts on, and what its chunk is to join."""

    task: ControlTask
    snapshot: Snapshot
    model_input: ModelInput
    seam: Seam
    guidance: Guidance | None


@dataclass
class Frame:
    """One frame in the making. Times are of `time.monotonic`, preprocess is a span."""

    sequence: int
    tick: Tick
    began: float
    preprocess: float = 0.0
    seen: Seen | None = None
    command: Command | None = None


class Frames:
    """Makes one frame at a time.

    say: is given every language token. misses: how many ticks were missed so far. numbers: where the count of frames
    and holds goes on.
    """

    def __init__(self, policy: Policy, settings: Callable[[], Settings], inputs: Inputs, instructions: Instructions,
                 listener: Listener, *, say: Callable[[outputs.Token], None], now: Callable[[], Now],
                 misses: Callable[[], int], warn: Callable[[str, str], None], error: Callable[[str, str], None],
                 numbers: Iterator[int] | None = None) -> None:
        self.health = Health()
        self._policy, self._settings, self._inputs, self._instructions = policy, settings, inputs, instructions
        self._listener = listener
        self._say, self._now, self._misses, self._warn, self._error = say, now, misses, warn, error
        self._commander = Commander(policy.pipeline, policy.engine.model.config.action_horizon, settings, inputs,
                                    instructions, listener.chunk, now, numbers or itertools.count(1))
        self._last_began: float | None = None

    def begin(self) -> None:
        """Forget what was before, as on activation."""
        self.health, self._last_began = Health(), None
        self._commander.forget()

    def halt(self, instruction_id: int) -> None:
        """End the motion under way, as stop_policy says. From any thread, whatever frame runs."""
        if not self._commander.hold(instruction_id):
            self._warn("action_chunk", f"stop {instruction_id} is not answered with a chunk: none was sent before, and "
                       "there are no joint positions to stay at")

    def prepare(self, next_tick: float) -> None:
        """Do ahead what the next frame will probably need: of pictures and of joints that no newer ones are expected to
        follow before `next_tick`, in seconds of time.monotonic."""
        task, now, pipeline = self._instructions.task, self._now(), self._policy.pipeline
        if task is None:
            return
        with suppress(Exception):  # the frame meets it too, and answers for it
            pipeline.prepare(self._inputs.settled(next_tick, now))
            if self._inputs.joints.settled(next_tick):
                pipeline.expect(self._inputs.joints.state(now)[0], task.text)

    def make(self, tick: Tick) -> None:
        """A frame may fail; the loop, the node and the next frame do not."""
        frame, health = Frame(self._commander.number(), tick, time.monotonic()), self.health
        try:
            self._make(frame)
            health.failures_in_a_row = 0
        except Exception as error:
            health.failed_frames += 1
            health.failures_in_a_row += 1
            cause = str(error) if isinstance(error, FrameError) else f"{type(error).__name__}: {error}"
            left = "after its chunk" if frame.command else "no chunk of it is published"
            health.last_error = f"frame {frame.sequence} failed, {left}: {cause}"
            self._error("frame", f"{health.last_error} ({health.failures_in_a_row} in a row)")
        self._last_began, health.last_frame = frame.began, time.monotonic()

    def _make(self, frame: Frame) -> None:
        engine = self._policy.engine
        deadline = frame.tick.deadline - self._settings().language.margin
        try:
            seen = frame.seen = self._observe()
            frame.preprocess = time.monotonic() - frame.began
        except NotReady as error:
            self._wait_for(error.reasons)
            stream = engine.language(deadline)
        else:
            self.health.lack((), seen.snapshot.masked)
            self._instructions.remind(self._now().steady_ns / 1e9)
            observation = self._policy.observation(seen.model_input, seen.snapshot.stamp_ns, seen.guidance)
            stream = engine.frame(observation, deadline)
        with closing(stream):  # whoever fails to hear of it leaves no slot taken
            for output in stream:
                if isinstance(output, outputs.Actions):
                    self._give_chunk(frame, seen, output)
                elif isinstance(output, outputs.Token):
                    self._say(output)
                else:
                    self._give_stats(frame, output)

    def _observe(self) -> Seen:
        """The newest messages as model input. Raises NotReady."""
        task = self._instructions.task
        if task is None:
            raise NotReady([Reason("instruction", "none yet, publish one with task ACT")])
        try:
            now = self._now()
            snapshot = self._inputs.snapshot(now)
            model_input = self._policy.pipeline.observe(snapshot.images, snapshot.state, task.text)
        except InputError as error:
            raise NotReady([Reason("observation", str(error))]) from None
        finally:
            for source in self._inputs:
                for reason in source.news():
                    self._warn(reason.topic, str(reason))
        for warning in model_input.warnings:
            self._warn("observation", warning)
        self.health.masked_frames += bool(snapshot.masked)
        for reason in snapshot.masked:
            self._warn(reason.topic, f"left out: {reason}")
        return Seen(task, snapshot, model_input, *self._commander.begin(task, snapshot, model_input, now))

    def _wait_for(self, reasons: tuple[Reason, ...]) -> None:
        self.health.lack(reasons, ())
        if self._instructions.task is not None:
            self.health.stale_inputs += 1
            for reason in reasons:
                self._warn(reason.topic, f"no chunk: {reason}")

    def _give_chunk(self, frame: Frame, seen: Seen, output: outputs.Actions) -> None:
        if self._instructions.run != seen.task.run:  # stopped while this frame was being computed
            return
        health, lifespan = self.health, self._settings().chunk_lifespan
        actions = self._policy.robot_actions(output.actions, seen.model_input)
        if not np.isfinite(actions).all():
            raise FloatingPointError("the actions in robot units hold NaN or infinity")
        latency = (self._now().ros_ns - output.stamp_ns) / 1e9
        if latency < -FUTURE_TOLERANCE:
            health.late_chunks += 1
            self._warn("action_chunk", f"chunk not sent: the time was set back by more than {-latency:.2f} s while it "
                       "was computed")
            return
        if lifespan and latency > lifespan:
            health.late_chunks += 1
            health.late_in_a_row += 1
            self._warn("action_chunk", f"chunk not sent: {latency:.2f} s after what it was computed from, "
                       f"chunk_lifespan is {lifespan:g} s; raise it, or lower denoise_steps")
            return
        frame.command = self._commander.send(actions, seen.seam, seen.task, seen.snapshot, frame.sequence)
        if frame.command is not None:
            health.late_in_a_row = 0
            health.clamped_actions += frame.command.clamped
            health.slowed_actions += frame.command.slowed
        elif self._instructions.run == seen.task.run:
            health.late_chunks += 1
            self._warn("action_chunk", f"chunk not sent: {latency:.2f} s after what it was computed from all of its "
                       "actions are past; lower denoise_steps")

    def _give_stats(self, frame: Frame, measured: outputs.FrameStats) -> None:
        ended = time.monotonic()
        oldest_ns = frame.seen.snapshot.oldest_ns if frame.seen else self._inputs.oldest_ns()
        command = frame.command
        ours = {
            "sequence": frame.sequence,
            "period": 0.0 if self._last_began is None else frame.began - self._last_began,
            "preprocess": frame.preprocess,
            "first_chunk_latency": frame.preprocess + measured.first_chunk_latency if frame.seen else 0.0,
            "total": ended - frame.began,
            "slack": frame.tick.deadline - ended,
            "deadline_misses": self._misses(),
            "stale_inputs": self.health.stale_inputs,
            "observation_age": 0.0 if oldest_ns is None else (self._now().ros_ns - oldest_ns) / 1e9,
            "boundary_jump": command.boundary_jump if command else 0.0,
            "committed_actions": command.committed if command else 0,
            "clamped_actions": self.health.clamped_actions,
            "slowed_actions": self.health.slowed_actions,
            "masked_frames": self.health.masked_frames,
        }
        theirs = {f.name: getattr(measured, f.name) for f in fields(measured)}
        self.health.stats = Stats(**{**theirs, **ours})
        self._listener.stats(self.health.stats)
