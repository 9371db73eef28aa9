"""What people tell the robot: the task it acts on, and language requests."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from rclpy.serialization import deserialize_message

from ..embodiment.errors import InputError
from ..embodiment.pipeline import Pipeline
from ..embodiment.prompt import clean_text
from ..engine.engine import Engine
from ..engine.outputs import FinishReason, Task, Token
from ..engine.request import LanguageRequest, RequestError
from ..msg import Instruction
from ..settings import LanguageSettings

_LANGUAGE = {Instruction.ASK: Task.ASK, Instruction.REMEMBER: Task.REMEMBER}


@dataclass(frozen=True)
class ControlTask:
    """What the robot is to do now. Every ACT makes a new one, also with the same text."""

    instruction_id: int
    text: str


class Instructions:
    """Handles each Instruction once, whichever of the two subscriptions hears it.

    reject: is given the last token of a request that is not taken. complain: is given one line for the operator.
    """

    def __init__(self, pipeline: Pipeline, engine: Engine, settings: Callable[[], LanguageSettings], *,
                 reject: Callable[[Token], None], complain: Callable[[str], None], info: Callable[[str], None]) -> None:
        self.task: ControlTask | None = None
        self._pipeline, self._engine, self._settings = pipeline, engine, settings
        self._reject, self._complain, self._info = reject, complain, info
        self._lock = threading.Lock()
        self._seen: deque[tuple[int, bytes]] = deque(maxlen=64)
        self._last_id = 0

    def hear(self, serialized: bytes, source_timestamp: int) -> None:
        """One message of either subscription; a latched publisher that is still there is heard by both."""
        with self._lock:
            if (source_timestamp, serialized) in self._seen:
                return
            self._seen.append((source_timestamp, serialized))
            try:
                message = deserialize_message(serialized, Instruction)
            except Exception as error:  # UnicodeDecodeError on older distributions, RuntimeError for bytes of another type
                self._complain(f"instruction of {len(serialized)} bytes refused, it does not deserialise ({error}); "
                               "send UTF-8 text as oxygen_ros/msg/Instruction")
                return
            self.obey(message)

    def obey(self, message: Instruction) -> None:
        if message.task == Instruction.ACT:
            self._act(message)
        elif message.task in _LANGUAGE:
            self._speak(message, _LANGUAGE[message.task])
        elif message.task == Instruction.CANCEL:
            self._cancel(message.id)
        elif message.task == Instruction.STOP:
            self.task = None
            self._info("stopped; an ACT instruction starts again")
        else:
            self._complain(f"instruction {message.id} refused: task is {message.task}, expected ACT 0, ASK 1, REMEMBER 2, "
                           "CANCEL 3 or STOP 4")

    def _act(self, message: Instruction) -> None:
        try:
            text = clean_text(message.text)
        except InputError as error:
            self._complain(f"instruction refused, the one before stays: {error}")
            return
        self.task = ControlTask(self._id(message.id), text)
        shown = text if len(text) <= 80 else f"{text[:80]}... ({len(text)} characters)"
        self._info(f"instruction {self.task.instruction_id}: {shown}")

    def _speak(self, message: Instruction, task: Task) -> None:
        settings = self._settings()
        request_id = self._id(message.id)
        wanted = message.max_tokens or settings.max_tokens
        try:
            if self.task is not None and self.task.instruction_id == request_id:
                raise RequestError(f"{request_id} is the id of the instruction being obeyed; use another")
            prompt = self._pipeline.language_prompt(task.value, message.text)
            self._engine.submit(LanguageRequest(
                request_id, tuple(prompt.tolist()), wanted, task, message.priority, settings.temperature,
                end_tokens=(self._pipeline.tokenizer.eos,),
            ))
        except (InputError, RequestError) as error:
            self._complain(f"{task.value} request {request_id} rejected: {error}")
            self._reject(Token(request_id, task, 0, -1, 0, last=True, finish_reason=FinishReason.REJECTED, detail=str(error)))

    def _cancel(self, instruction_id: int) -> None:
        if self.task is not None and self.task.instruction_id == instruction_id:
            self.task = None
            self._info(f"instruction {instruction_id} cancelled")
        elif not self._engine.cancel(instruction_id):
            self._complain(f"nothing to cancel: {instruction_id} is neither the instruction obeyed nor a live request")

    def _id(self, given: int) -> int:
        """The message's own id, or the next one that nobody used."""
        assigned = given or self._last_id + 1
        self._last_id = max(self._last_id, assigned)
        return assigned
