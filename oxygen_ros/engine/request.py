"""A language request: what is asked for, and what is known of it while it is being answered."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from ..pi05.backbone import Continuation
from ..pi05.cache import Tail
from .kv_pool import Slot
from .outputs import FinishReason, Task, Token


class RequestError(ValueError):
    """A language request that cannot be taken; the message says why."""


@dataclass(frozen=True)
class LanguageRequest:
    """Text to be decoded from the next frame's prefix.

    prompt: token ids that continue the frame's shared prefix, causally. May be empty: the answer then continues
    the action prompt itself. A larger `priority` is served first. temperature 0 is greedy; `seed` makes sampling
    repeatable whatever else is being decoded.
    """

    request_id: int
    prompt: tuple[int, ...]
    max_tokens: int
    task: Task = Task.ASK
    priority: int = 0
    temperature: float = 0.0
    seed: int | None = None
    end_tokens: Collection[int] = (1,)

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise RequestError(f"max_tokens is {self.max_tokens}, expected at least 1")
        if self.temperature < 0:
            raise RequestError(f"temperature is {self.temperature}, expected 0 or more")

    def end(self, reason: FinishReason, detail: str = "") -> Token:
        """The last token of a request that never said a word."""
        return Token(self.request_id, self.task, 0, -1, 0, last=True, finish_reason=reason, detail=detail)


class RunningRequest:
    """A request that has joined a frame: it reads that frame's slot and writes its own tail until it ends."""

    def __init__(self, request: LanguageRequest, slot: Slot, tail: Tail, stamp_ns: int, prefix_hidden: Tensor | None
                 ) -> None:
        self.request, self.slot, self.tail, self.stamp_ns = request, slot, tail, stamp_ns
        # Only a request without a prompt of its own starts from the prefix's last hidden state, [1, width].
        self.prefix_hidden = prefix_hidden
        # Tokens whose keys and values the tail does not hold yet: the prompt, later the last token said.
        self.pending: list[int] = list(request.prompt)
        self.said = 0
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
        return int(torch.multinomial(weights, 1, generator=self._generator))

    def say(self, token_id: int) -> Token:
        """Take the chosen token as said."""
        self.pending = [token_id]
        self.said += 1
        if token_id in self.request.end_tokens:
            reason = FinishReason.END_OF_TEXT
        elif self.said == self.request.max_tokens:
            reason = FinishReason.LENGTH
        else:
            reason = FinishReason.NONE
        return self._token(self.said - 1, token_id, reason)

    def end(self, reason: FinishReason, detail: str = "") -> Token:
        """The last token of a request that ends without saying one more word."""
        return self._token(self.said, -1, reason, detail)

    def _token(self, index: int, token_id: int, reason: FinishReason, detail: str = "") -> Token:
        return Token(
            self.request.request_id, self.request.task, index, token_id, self.stamp_ns,
            last=reason is not FinishReason.NONE, finish_reason=reason, detail=detail,
        )
