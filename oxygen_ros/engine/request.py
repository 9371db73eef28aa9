"""A language request: what is asked for, and what is known of it while it is being answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from ..pi05.backbone import Continuation
from .kv_pool import Seat, Slot
from .outputs import FinishReason, Task, Token


RANKS = {Task.SUBTASK: 2, Task.ASK: 1, Task.REMEMBER: 0}
RANK = 100.0
"""What the robot does next comes before what it is asked, and that before what it may remember: by so much urgency."""


class RequestError(ValueError):
    """A language request that cannot be taken; the message says why."""


@dataclass(frozen=True)
class LanguageRequest:
    """Text to be decoded from what the next frame sees.

    prefix: shared continues what all tasks of the frame share; own has the request's prompt prefilled with the pictures
    alone, every token seeing every other, which costs the language model's prefill once more and a KV slot.
    prompt: token ids. Of a shared prefix they are its causal continuation and may be none: the answer then continues
    the shared text itself. Of an own prefix they are all its text.
    priority: urgency above others of the same task (see `urgency`). temperature 0 is greedy; top_p keeps the likeliest
    tokens that together have that probability; `seed` makes sampling repeatable whatever else is being decoded.
    ends: is given all token ids said so far, and says whether the text ends there, as at a stop string.
    since: when it was asked, on the clock of `time.monotonic`.
    """

    request_id: int
    prompt: tuple[int, ...]
    max_tokens: int
    task: Task = Task.ASK
    priority: int = 0
    temperature: float = 0.0
    seed: int | None = None
    end_tokens: Collection[int] = (1,)
    top_p: float = 1.0
    prefix: Literal["shared", "own"] = "shared"
    ends: Callable[[Sequence[int]], bool] | None = None
    since: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise RequestError(f"max_tokens is {self.max_tokens}, expected at least 1")
        if self.temperature < 0:
            raise RequestError(f"temperature is {self.temperature}, expected 0 or more")
        if not 0 < self.top_p <= 1:
            raise RequestError(f"top_p is {self.top_p}, expected more than 0 and at most 1")
        if self.prefix == "own" and not self.prompt:
            raise RequestError("a request with a prefix of its own needs a prompt")

    def urgency(self, now: float, ageing: float) -> float:
        """Grows by `ageing` a second, so that everything is served some day. The largest goes first."""
        return RANK * RANKS[self.task] + self.priority + ageing * (now - self.since)

    def end(self, reason: FinishReason, detail: str = "") -> Token:
        """The last token of a request that never said a word."""
        return Token(self.request_id, self.task, 0, -1, 0, last=True, finish_reason=reason, detail=detail)


class RunningRequest:
    """A request that has joined a frame: it reads that frame's slot and writes its own tail until it ends."""

    def __init__(self, request: LanguageRequest, slot: Slot, tail: Seat, stamp_ns: int, prefix_hidden: Tensor | None
                 ) -> None:
        self.request, self.slot, self.tail, self.stamp_ns = request, slot, tail, stamp_ns
        # Only a request without a prompt of its own starts from the prefix's last hidden state, [1, width].
        self.prefix_hidden = prefix_hidden
        # Tokens whose keys and values are not in memory yet: the prompt, later the last token said.
        self.pending: list[int] = list(request.prompt) if request.prefix == "shared" else []
        self.said: list[int] = []
        self._generator = torch.Generator()
        if request.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(request.seed)

    def continuation(self) -> Continuation:
        return Continuation(self.slot, self.tail, len(self.pending))

    def sample(self, logits: Tensor) -> int:
        """A token id drawn from logits [vocab_size] at the request's temperature, which must not be 0."""
        logits = logits.float().cpu()
        # Relative to the best one, so that however small a temperature is greedy, not an overflow.
        weights = ((logits - logits.max()) / self.request.temperature).softmax(-1)
        if self.request.top_p < 1:
            ordered, order = weights.sort(descending=True)
            # Those before which less than top_p is together: always the first, and the one that completes it.
            weights[order[ordered.cumsum(-1) - ordered >= self.request.top_p]] = 0.0
        return int(torch.multinomial(weights, 1, generator=self._generator))

    def say(self, token_id: int) -> Token:
        """Take the chosen token as said."""
        self.pending = [token_id]
        self.said.append(token_id)
        ends = self.request.ends
        if token_id in self.request.end_tokens or (ends is not None and ends(self.said)):
            reason = FinishReason.END_OF_TEXT
        elif len(self.said) == self.request.max_tokens:
            reason = FinishReason.LENGTH
        else:
            reason = FinishReason.NONE
        return self._token(len(self.said) - 1, token_id, reason)

    def end(self, reason: FinishReason, detail: str = "") -> Token:
        """The last token of a request that ends without saying one more word."""
        return self._token(len(self.said), -1, reason, detail)

    def _token(self, index: int, token_id: int, reason: FinishReason, detail: str = "") -> Token:
        return Token(
            self.request.request_id, self.request.task, index, token_id, self.stamp_ns,
            last=reason is not FinishReason.NONE, finish_reason=reason, detail=detail,
        )
