"""What people tell the robot: the task it acts on, and language requests."""

from __future__ import annotations

import itertools
import math
import re
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from .embodiment.errors import InputError, on_one_line
from .embodiment.pipeline import Pipeline
from .embodiment.prompt import clean_text
from .engine.engine import Engine
from .engine.outputs import FinishReason, Task, Token
from .engine.request import LanguageRequest, RequestError
from .settings import LanguageSettings
from .stop_strings import ends_at

ACT, ASK, REMEMBER, CANCEL, STOP = range(5)
_LANGUAGE = {ASK: Task.ASK, REMEMBER: Task.REMEMBER}
_LARGEST_COUNTED = 2**63
_NOT_TEXT = re.compile("[\ufffd\ud800-\udfff]")  # what rclpy makes of bytes that are not UTF-8
# Characters, more than any has. To tokenise a megabyte takes a third of a second, in which nobody hears a STOP.
_LONGEST_TOKEN = 128
_REMEMBERED = 1000  # messages, more than anybody lets queue: what the other subscription still holds is not new


@dataclass(frozen=True)
class Instruction:
    """msg/Instruction.msg as plain data, for where there is no ROS; the message itself does as well."""

    id: int = 0
    task: int = ACT
    text: str = ""
    max_tokens: int = 0
    priority: int = 0


@dataclass(frozen=True)
class ControlTask:
    """What the robot is to do now. Every ACT makes a new one, also with the same text.

    run: the same for tasks that follow each other without a STOP, CANCEL or deactivation between them.
    """

    instruction_id: int
    text: str
    run: int


class Instructions:
    """Handles each Instruction once, whichever of the two subscriptions hears it.

    decode: serialised message -> Instruction, raising InputError. reject: is given the only token of a request that
    is not taken. complain: is given one line for the operator of what is refused, warn of what is not. halt: is called
    when a task is ended, with the id of the instruction that ended it. seed: of sampled answers, -1 takes new ones.
    """

    def __init__(self, pipeline: Pipeline, engine: Engine, settings: Callable[[], LanguageSettings],
                 decode: Callable[[bytes], Instruction], *, reject: Callable[[Token], None],
                 complain: Callable[[str], None], info: Callable[[str], None],
                 warn: Callable[[str], None] = lambda text: None,
                 halt: Callable[[int], None] = lambda instruction_id: None, seed: int = -1) -> None:
        self.task: ControlTask | None = None
        self.run = 0
        self._pipeline, self._engine, self._settings = pipeline, engine, settings
        self._decode, self._reject, self._complain, self._info, self._warn = decode, reject, complain, info, warn
        self._halt, self._seed = halt, seed
        self._lock = threading.Lock()
        self._seen: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)
        self._alive: set[int] = set()
        self._periodic: dict[Task, tuple[int, float]] = {}  # id of the last that came unasked, when the next is due
        self._last_id = 0

    def hear(self, serialized: bytes, source_timestamp: int) -> None:
        """One message of either subscription; a latched publisher that is still there is heard by both."""
        seen = (source_timestamp, hash(serialized))
        if seen in self._seen:
            return
        self._seen.append(seen)
        try:
            self.obey(self._decode(serialized))
        except InputError as error:
            self._complain(f"instruction refused: {error}; text must be UTF-8")

    def obey(self, message: Instruction) -> None:
        """Act on an instruction at once; what is refused is told to `complain`, nothing is raised."""
        if _NOT_TEXT.search(message.text):
            self._warn(f"instruction {message.id}: bytes that are not UTF-8 are read as \ufffd; publish text in UTF-8")
        with self._lock:
            if message.task == ACT:
                self._act(message)
            elif message.task in _LANGUAGE:
                self._speak(message, _LANGUAGE[message.task])
            elif message.task == CANCEL:
                self._cancel(message.id)
            elif message.task == STOP:
                self._stop(self._id(message.id), "stopped; an ACT instruction starts again")
            else:
                self._complain(f"instruction {message.id} refused: task is {message.task}, expected ACT 0, ASK 1, "
                               "REMEMBER 2, CANCEL 3 or STOP 4")

    def remind(self, now: float) -> None:
        """Ask for the memories and subtasks that are due, at `now` seconds of a steady clock, one of each at a time."""
        with self._lock:
            settings = self._settings()
            for task, period in ((Task.SUBTASK, settings.subtask_period), (Task.REMEMBER, settings.memory_period)):
                last_id, due = self._periodic.get(task, (0, -math.inf))
                if period and now >= due and last_id not in self._alive:
                    self._speak(Instruction(), task)
                    self._periodic[task] = self._last_id, now + period

    def interrupt(self) -> None:
        """The robot stands still from now on, though the task stays, as over a deactivation."""
        with self._lock:
            self.run += 1
            if self.task is not None:
                self.task = replace(self.task, run=self.run)

    def ended(self, request_id: int) -> None:
        """The request has had its last token: its id may be used again."""
        with self._lock:
            self._alive.discard(request_id)

    def _act(self, message: Instruction) -> None:
        try:
            text = clean_text(message.text)
        except InputError as error:
            self._complain(f"instruction refused, the one before stays: {error}")
            return
        most = self._pipeline.max_tokens * _LONGEST_TOKEN
        self.task = ControlTask(self._id(message.id), text[:most], self.run)
        shown = on_one_line(text[:80]) + (f"... ({len(text)} characters)" if len(text) > 80 else "")
        self._info(f"instruction {self.task.instruction_id}: {shown}")
        if len(text) > most:
            self._warn(f"instruction {self.task.instruction_id}: of {len(text)} characters only {most} are read")

    def _speak(self, message: Instruction, task: Task) -> None:
        if message.id in self._alive:  # no token either: whoever follows this id would take it for the other's end
            self._complain(f"{task.value} request {message.id} ignored: the one of that id is still being answered")
            return
        request_id = self._id(message.id)
        try:
            if self.task is not None and self.task.instruction_id == request_id:
                raise RequestError(f"{request_id} is the id of the instruction being obeyed; use another")
            self._engine.submit(self._request(request_id, message, task))
            self._alive.add(request_id)
        except (InputError, RequestError) as error:
            self._complain(f"{task.value} request {request_id} rejected: {error}")
            self._reject(Token(
                request_id, task, 0, -1, 0, last=True, finish_reason=FinishReason.REJECTED, detail=str(error),
            ))

    def _request(self, request_id: int, message: Instruction, task: Task) -> LanguageRequest:
        settings, tokenizer = self._settings(), self._pipeline.tokenizer
        own = task.value in settings.own_prefix
        room = self._pipeline.max_tokens if own else settings.max_request_tokens
        if len(message.text) > room * _LONGEST_TOKEN:
            raise RequestError(f"a text of {len(message.text)} characters, one request has room for {room} tokens")
        instruction = self.task.text if self.task is not None else ""
        prompt = self._pipeline.language_prompt(task.value, message.text, instruction, whole=own)
        return LanguageRequest(
            request_id,
            tuple(prompt.tolist()),
            message.max_tokens or settings.max_tokens,
            task,
            message.priority,
            settings.temperature,
            None if self._seed < 0 else (self._seed + request_id) % _LARGEST_COUNTED,
            (tokenizer.eos,),
            settings.top_p,
            "own" if own else "shared",
            ends_at(settings.stop, tokenizer),
        )

    def _cancel(self, instruction_id: int) -> None:
        if self.task is not None and self.task.instruction_id == instruction_id:
            self._stop(instruction_id, f"instruction {instruction_id} cancelled")
        elif not self._engine.cancel(instruction_id):
            self._complain(f"nothing to cancel: {instruction_id} is neither the instruction obeyed nor a live request")

    def _stop(self, instruction_id: int, text: str) -> None:
        self.task, self.run = None, self.run + 1
        self._halt(instruction_id)
        self._info(text)

    def _id(self, given: int) -> int:
        """The message's own id, or the next one after the last that is free."""
        if given:
            # Beyond this the count would soon run out of 64 bits: such an id stands alone.
            self._last_id = max(self._last_id, given) if given < _LARGEST_COUNTED else self._last_id
            return given
        in_use = self._alive | ({self.task.instruction_id} if self.task else set())
        self._last_id = next(n for n in itertools.count(self._last_id + 1) if n not in in_use)
        return self._last_id
