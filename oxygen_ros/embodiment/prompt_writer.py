"""Prompts of one task after the other, each frame with another state."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .prompt import Prompt, encode_prompt, shorten, surround, task_text
from .tokenizer import Tokenizer


class PromptWriter:
    """For one tokenizer and one of prompt.FORMS.

    What a task text costs, however long, is paid in its first frame. Once shortened it does not grow again with the
    next state, so that the policy reads the same task all the time. For one thread.
    """

    def __init__(self, tokenizer: Tokenizer, form: str, max_tokens: int):
        self._tokenizer, self._form, self._max_tokens = tokenizer, form, max_tokens
        self._task: str | None = None
        self._encoded: tuple[Prompt | None, list[int]] = None, []  # the last prompt, and its ids

    def write(self, task: str, state: np.ndarray) -> tuple[list[int], str | None]:
        """(ids with begin-of-sequence, a warning or None) of a raw task text and the normalised state [D].

        A prompt of more than `max_tokens` loses the end of its task text and nothing else; the warning holds both token
        counts. Raises InputError for a blank text, and where even an empty task does not fit.
        """
        if task != self._task:
            self._begin(task)
        prompt = surround(self._form, self._text, state)
        if self._may_fit:
            ids = self._encode(prompt)
            if len(ids) <= self._max_tokens:
                return ids, None
            self._tokens = len(ids)
        elif not self._tokens:
            self._tokens = len(encode_prompt(self._tokenizer, prompt))
        prompt = surround(self._form, self._kept, state)
        ids = [] if self._kept is self._text else self._encode(prompt)
        if not ids or len(ids) > self._max_tokens:
            prompt, ids = shorten(self._tokenizer, prompt, self._max_tokens)
            self._kept = prompt.task
        return ids, (
            f"the prompt has {self._tokens} tokens, more than {self._max_tokens}: "
            f"task text shortened from {len(self._text)} to {len(self._kept)} characters, {len(ids)} tokens"
        )

    def expect(self, task: str, state: np.ndarray) -> None:
        """Do ahead what takes longest of `write`, whose result and warnings do not depend on it."""
        if task == self._task:
            self._encode(surround(self._form, self._text if self._may_fit else self._kept, state))

    def common(self, ids: list[int]) -> int:
        """How many of these ids, the last written, are those of the prompt up to the end of its task text."""
        prompt = replace(surround(self._form, self._kept, np.empty(0)), after="", then="")
        until = encode_prompt(self._tokenizer, prompt)
        shorter = min(len(ids), len(until))
        return next((i for i in range(shorter) if ids[i] != until[i]), shorter)

    def _encode(self, prompt: Prompt) -> list[int]:
        if prompt != self._encoded[0]:
            self._encoded = prompt, encode_prompt(self._tokenizer, prompt)
        return self._encoded[1]

    def _begin(self, task: str) -> None:
        self._text = self._kept = task_text(self._form, task)
        # Of a text that is too long by itself no state makes a prompt that fits.
        self._may_fit = len(self._tokenizer.encode(self._text)) <= self._max_tokens
        self._tokens, self._task = 0, task
