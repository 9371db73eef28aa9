"""What a frame gives, in the order in which it is ready: Actions, Tokens, FrameStats."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from torch import Tensor


class Task(Enum):
    """What a language request is for."""

    ASK = "ask"
    REMEMBER = "remember"
    SUBTASK = "subtask"


class FinishReason(Enum):
    NONE = "none"
    END_OF_TEXT = "end_of_text"
    LENGTH = "length"
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    ERROR = "error"


@dataclass(frozen=True)
class Actions:
    """A chunk of normalised actions [H, A], float32 on the CPU, every value finite."""

    actions: Tensor
    stamp_ns: int


@dataclass(frozen=True)
class Token:
    """One token of one language request. token_id is -1 where a request ends without a further token.

    stamp_ns is the stamp of the observation that the request answers from, 0 if it never joined one.
    """

    request_id: int
    task: Task
    index: int
    token_id: int
    stamp_ns: int
    last: bool = False
    finish_reason: FinishReason = FinishReason.NONE
    detail: str = ""


@dataclass(frozen=True)
class FrameStats:
    """Where one frame's time went, in seconds of the steady clock, and how full the engine is after it.

    first_chunk_latency: from the call of `frame` to the chunk. slack: what was left before the deadline, negative
    if it was missed, 0 if there was none. active_requests have joined a frame, waiting_requests have not.
    """

    prefill: float = 0.0
    denoise: float = 0.0
    first_chunk_latency: float = 0.0
    decode: float = 0.0
    total: float = 0.0
    slack: float = 0.0
    decode_steps: int = 0
    tokens: int = 0
    active_requests: int = 0
    waiting_requests: int = 0
    slots_used: int = 0
    slots_total: int = 0
    prefix_tokens: int = 0


Output = Actions | Token | FrameStats
