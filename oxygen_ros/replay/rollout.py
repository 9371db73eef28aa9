"""One policy over one recording: the frames that a node would have made, and what it would have said.

Time is the recording's: while a frame is computed it stands still, or goes on by a latency that is given, so that
actions do not depend on the machine. What a frame costs is measured beside it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from ..embodiment.errors import InputError
from ..embodiment.prompt import clean_text
from ..engine.observation import Observation
from ..engine.outputs import FinishReason, Token
from ..engine.request import LanguageRequest
from ..commander import Chunk
from ..frames import Frames, Stats, Tick
from ..instructions import ACT, ASK, CANCEL, REMEMBER, STOP, Instruction, Instructions
from ..policy import Policy
from ..robot_inputs import robot_inputs
from ..settings import Settings
from ..source import Clock, Now
from ..speech import Speech
from .bag import Bag, BagError, Stopped
from .sources import Sources
from .ticks import period_ns, ticks

_SILENCE = 10.0  # s without any message, after which ticks say nothing new
_APART = ("in this recording receipt and header stamps lie that far apart: record with synchronised clocks, or with "
          "/clock")
_RECORDER = Clock("the recorder's clock", _APART, _APART)
_TASKS = (ACT, ASK, REMEMBER, CANCEL, STOP)
_NUMBER = re.compile(r"\d+(\.\d+)?")


@dataclass(frozen=True)
class Part:
    """Of a recording: seconds from its beginning, and how many. instruction: given in place of the recorded ones.
    latency: seconds from a tick to its chunk; ticks within it are missed."""

    start: float = 0.0
    seconds: float = float("inf")
    instruction: str = ""
    latency: float = 0.0


@dataclass(frozen=True)
class Moment:
    """One control tick. actions: float32 [H, D] in robot units, or None without a chunk.

    state: positions [joints] that the actions were computed from. used: topic -> stamp of the message that was used.
    reasons: why there is no chunk. stats: None where the frame failed. instruction_id: of the task obeyed.
    sent_ns: when the chunk was given out.
    """

    tick_ns: int
    actions: np.ndarray | None
    start_ns: int = 0
    stamp_ns: int = 0
    state: np.ndarray | None = None
    used: dict[str, int] = field(default_factory=dict)
    stats: Stats | None = None
    reasons: tuple[str, ...] = ()
    instruction_id: int = 0
    sequence: int = 0
    sent_ns: int = 0


@dataclass
class Answer:
    """A language request and what was said. Times are the recording's, on which computing takes its time here."""

    request_id: int
    task: str
    asked_ns: int
    first_ns: int = 0
    last_ns: int = 0
    tokens: int = 0
    text: str = ""
    finish_reason: str = FinishReason.NONE.value
    detail: str = ""

    @property
    def finished(self) -> bool:
        return self.finish_reason in (FinishReason.END_OF_TEXT.value, FinishReason.LENGTH.value)


@dataclass
class Rollout:
    """instructions: id -> (text, when it was obeyed first). notes: line -> how often. received: topic -> messages.

    holds: chunks that end a motion when the robot is told to stop. misses: ticks that would have found the frame before
    still being computed, on this machine. left_out: ticks in long silences. seconds: of computing. partial: stopped
    before the end.
    """

    start_ns: int
    period_ns: int
    moments: list[Moment] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    instructions: dict[int, tuple[str, int]] = field(default_factory=dict)
    holds: list[Moment] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)
    misses: int = 0
    left_out: int = 0
    seconds: float = 0.0
    partial: bool = False


@dataclass
class Draw:
    """What the noise of a frame is drawn from, and how much of the recording's time computing it has taken so far."""

    seed: int
    tick: int = 0
    latency_ns: int = 0
    spent_ns: int = 0


@dataclass(frozen=True)
class Repeatable(Policy):
    """Draws each frame's noise by the seed and the tick's number: what ran before, and beside it, does not matter."""

    draw: Draw

    def observation(self, *arguments, **options) -> Observation:
        seen = super().observation(*arguments, **options)
        if self.engine.settings.fixed_noise:
            return seen
        config = self.engine.model.config
        generator = torch.Generator().manual_seed(self.draw.seed * 1_000_003 + self.draw.tick)
        return replace(seen, noise=torch.randn(config.action_horizon, config.action_dim, generator=generator))


    def robot_actions(self, *arguments) -> np.ndarray:
        self.draw.spent_ns = self.draw.latency_ns
        return super().robot_actions(*arguments)


def repeatable(policy: Policy, seed: int) -> Repeatable:
    return Repeatable(**vars(policy), draw=Draw(seed))


class _Notes:
    """Lines of one kind, which differ in nothing but numbers, are one note."""

    def __init__(self) -> None:
        self._lines: dict[str, str] = {}
        self.counts: dict[str, int] = {}

    def __call__(self, line: str) -> None:
        first = self._lines.setdefault(_NUMBER.sub("#", line), line)
        self.counts[first] = self.counts.get(first, 0) + 1


class _Desk:
    """The engine as Instructions see it; keeps when each request was asked."""

    def __init__(self, policy: Policy, ask: Callable[[LanguageRequest], None]) -> None:
        self._engine, self._ask = policy.engine, ask

    def submit(self, request: LanguageRequest) -> None:
        self._engine.submit(request)
        self._ask(request)

    def cancel(self, request_id: int) -> bool:
        return self._engine.cancel(request_id)


def _moment(tick_ns: int, chunk: Chunk, stats: Stats | None) -> Moment:
    used = dict(chunk.snapshot.stamps) if chunk.snapshot else {}
    return Moment(tick_ns, chunk.actions, chunk.start_ns, chunk.stamp_ns, chunk.state, used, stats, (),
                  chunk.instruction_id, chunk.sequence, chunk.sent_ns)


class OfflineNode:
    """Does with a recording what a node does with its topics; `run` once."""

    def __init__(self, policy: Repeatable, settings: Settings, sources: Sources) -> None:
        self._policy, self._settings, self._sources = policy, settings, sources
        self._notes = _Notes()
        self._answers: dict[int, Answer] = {}
        self._ns = 0
        self._frame_began: float | None = None
        self._chunk: Chunk | None = None
        self._stats: Stats | None = None
        self._speech = Speech(policy.pipeline.tokenizer, token=self._token, utterance=lambda text: None,
                              memory=lambda token, text: None, stop=lambda: settings.language.stop)
        decode = sources.instruction.decode if sources.instruction else None
        self.instructions = Instructions(
            policy.pipeline, _Desk(policy, self._asked), lambda: settings.language, decode,
            reject=self._speech.refuse, complain=self._complain, info=lambda line: None, seed=policy.draw.seed,
            halt=lambda instruction_id: self._frames.halt(instruction_id),
        )
        self.inputs = robot_inputs(settings, policy.robot.joints, sources.joints, sources.cameras)
        for source in self.inputs:
            source.clock = _RECORDER
        self._frames = Frames(
            policy, lambda: settings, self.inputs, self.instructions, self, say=self._say, now=self._now,
            misses=lambda: self._rollout.misses, warn=lambda topic, text: self._notes(text),
            error=lambda topic, text: self._notes(text),
        )

    def _complain(self, line: str) -> None:
        source = self._sources.instruction
        self._notes(f"{source.topic}: {line}" if source else line)

    # What frames say

    def chunk(self, chunk: Chunk) -> None:
        if chunk.snapshot is None:
            self._rollout.holds.append(_moment(self._ns, chunk, None))
        else:
            self._chunk = chunk

    def stats(self, stats: Stats) -> None:
        self._stats = stats

    def _say(self, token: Token) -> None:
        self._speech.hear(token)
        if token.last:
            self.instructions.ended(token.request_id)

    def _token(self, token: Token, text: str) -> None:
        answer = self._answers.get(token.request_id)
        if answer is None:  # refused before it was submitted
            answer = self._answers[token.request_id] = Answer(token.request_id, token.task.value, self._ns)
            self._rollout.answers.append(answer)
        spent_ns = 0 if self._frame_began is None else int((time.monotonic() - self._frame_began) * 1e9)
        now_ns = self._ns + spent_ns
        if token.token_id >= 0:
            answer.first_ns = answer.first_ns or now_ns
            answer.tokens += 1
        answer.text += text
        if token.last:
            answer.last_ns, answer.finish_reason, answer.detail = now_ns, token.finish_reason.value, token.detail
            del self._answers[token.request_id]

    def _asked(self, request: LanguageRequest) -> None:
        answer = self._answers[request.request_id] = Answer(request.request_id, request.task.value, self._ns)
        self._rollout.answers.append(answer)

    def _now(self) -> Now:
        now_ns = self._ns + self._policy.draw.spent_ns
        return Now(now_ns, now_ns)

    # The recording

    def run(self, bag: Bag, part: Part, goes_on: Callable[[float], bool] = lambda done: True) -> Rollout:
        """goes_on: is given how much of the part is done, 0 to 1, and says whether to go on. Raises BagError."""
        began = time.monotonic()
        every_ns = period_ns(self._settings.control_rate)
        start_ns = bag.start_ns + round(part.start * 1e9)
        end_ns = min(bag.end_ns, start_ns + round(min(part.seconds, 1e9) * 1e9))
        self._rollout = Rollout(start_ns, every_ns)
        if start_ns + every_ns > bag.end_ns:
            raise BagError(f"{bag.path} is {bag.duration:.2f} s long, there is no control tick after {part.start:g} s")
        draw = self._policy.draw
        draw.latency_ns, draw.spent_ns, busy_ns = round(part.latency * 1e9), 0, start_ns
        self._prepare(bag, part, start_ns)
        try:
            messages, patience_ns = self._messages(bag, start_ns), self._patience_ns()
            for tick_ns, come in ticks(messages, start_ns, end_ns, every_ns, patience_ns, self._silent):
                for message in come:
                    self._receive(message.topic, message.data, message.received_ns, part)
                if tick_ns >= busy_ns:
                    self._tick(tick_ns)
                    busy_ns, draw.spent_ns = tick_ns + draw.spent_ns, 0
                else:
                    self._rollout.misses += 1
                if not goes_on((tick_ns - start_ns) / (end_ns - start_ns)):
                    self._rollout.partial = tick_ns + every_ns <= end_ns
                    break
            self._finish()
        except Stopped:
            if not self._rollout.moments:
                raise
            self._rollout.partial = True
        finally:
            self._policy.engine.drain("the recording ended")
            self._rollout.notes = self._notes.counts
            self._rollout.seconds = time.monotonic() - began
        return self._rollout

    def _prepare(self, bag: Bag, part: Part, start_ns: int) -> None:
        """The task that a node would have, if it is activated at the start. Raises BagError if there never is one."""
        later, refused = False, []
        if self._sources.instruction:
            for message in bag.messages([self._sources.instruction.topic]):
                told, problem = self._told(message.data), self._problem(message.data)
                if problem:
                    refused.append(problem)
                if message.received_ns > start_ns:
                    later = later or (problem is None and told.task == ACT)
                elif not part.instruction and told is not None and told.task not in (ASK, REMEMBER):
                    self._ns = message.received_ns
                    self.instructions.hear(message.data, message.received_ns)
        if self.instructions.task:
            before = (start_ns - self._ns) / 1e9
            self._notes(f"instruction of {before:.1f} s before the start: {self.instructions.task.text}")
        self._ns = start_ns
        given = part.instruction or (self._settings.instruction if self.instructions.task is None else "")
        if given:
            self.instructions.obey(Instruction(text=given))
            self._notes(f"instruction of the {'command line' if part.instruction else 'settings'}: {given}")
        if self.instructions.task is None and not later:
            topic = self._sources.instruction.topic if self._sources.instruction else "of instructions"
            if refused:
                raise BagError(f"{bag.path} has no instruction that can be obeyed: {topic}: {refused[0]}"
                               + (f", and {len(refused) - 1} others refused" if refused[1:] else "")
                               + "; give one with --instruction TEXT")
            raise BagError(f"{bag.path} has no instruction: no ACT on a topic {topic}, and none in the settings; "
                           "give one with --instruction TEXT, or its topic with --instruction-topic")

    def _told(self, data: bytes) -> Instruction | None:
        try:
            return self._sources.instruction.decode(data)
        except InputError:  # `hear` says what is wrong with it
            return None

    def _problem(self, data: bytes) -> str | None:
        """Why an instruction is refused."""
        try:
            told = self._sources.instruction.decode(data)
            if told.task == ACT:
                clean_text(told.text)
        except InputError as error:
            return str(error)
        return None if told.task in _TASKS else f"task is {told.task}, expected one of {', '.join(map(str, _TASKS))}"

    def _patience_ns(self) -> int:
        """No frame can be made after so long without a message: its inputs are too old by then."""
        return round(max(_SILENCE, *(source.max_age for source in self.inputs)) * 1e9)

    def _silent(self, from_ns: int, to_ns: int, ticks: int) -> None:
        after = (from_ns - self._rollout.start_ns) / 1e9
        self._rollout.left_out += ticks
        self._notes(f"a gap of {(to_ns - from_ns) / 1e9:.1f} s, no message for the robot's inputs after {after:.1f} s; "
                    f"{ticks} ticks in it are left out")

    def _messages(self, bag: Bag, start_ns: int) -> Iterable:
        return (m for m in bag.messages(self._sources.inputs) if m.received_ns > start_ns)

    def _receive(self, topic: str, data: bytes, received_ns: int, part: Part) -> None:
        self._rollout.received[topic] = self._rollout.received.get(topic, 0) + 1
        self._ns = received_ns
        if self._sources.instruction and topic == self._sources.instruction.topic:
            told = self._told(data)
            if not (part.instruction and told is not None and told.task not in (ASK, REMEMBER)):
                self.instructions.hear(data, received_ns)
        for source in self.inputs:
            if source.topic == topic:
                source.receive(data, self._now())

    def _tick(self, tick_ns: int) -> None:
        rollout, health = self._rollout, self._frames.health
        self._ns, self._chunk, self._stats = tick_ns, None, None
        self._policy.draw.tick = (tick_ns - rollout.start_ns) // rollout.period_ns
        failed, period = health.failed_frames, rollout.period_ns / 1e9
        self._frame_began = time.monotonic()
        self._frames.make(Tick(self._frame_began + period, period))
        spent, self._frame_began = time.monotonic() - self._frame_began, None
        rollout.misses += int(spent / period)
        chunk = self._chunk
        if chunk is None:
            reasons = (health.last_error,) if health.failed_frames > failed else tuple(map(str, health.waiting_for))
            rollout.moments.append(Moment(tick_ns, None, stats=self._stats, reasons=reasons or ("not sent",)))
            return
        task = self.instructions.task
        if task is not None and task.instruction_id == chunk.instruction_id:
            rollout.instructions.setdefault(chunk.instruction_id, (task.text, tick_ns))
        rollout.moments.append(_moment(tick_ns, chunk, self._stats))

    def _finish(self) -> None:
        """What was asked is answered to its end, as by a node that goes on."""
        self._frame_began = time.monotonic()
        for output in self._policy.engine.language():
            if isinstance(output, Token):
                self._say(output)
        for token in self._policy.engine.drain("the recording ended"):
            self._say(token)
