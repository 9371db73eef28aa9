"""What the model reads: task text and state numbers in the public prompt forms (pi05.md sections 8 and 9.4)."""

from __future__ import annotations

import string
from dataclasses import dataclass

import numpy as np

from .errors import InputError
from .tokenizer import Tokenizer

FORMS = ("state", "plain", "subtask", "subtask_state")
_BIN_EDGES = np.linspace(-1, 1, 257)[:-1]


@dataclass(frozen=True)
class Prompt:
    """The task text and what surrounds it. `then` is tokenised by itself, as openpi does with the newline."""

    before: str
    task: str
    after: str
    then: str = ""

    def pieces(self) -> list[str]:
        """The texts that are tokenised one by one, the first after begin-of-sequence."""
        return [piece for piece in (self.before + self.task + self.after, self.then) if piece]


def clean_text(text: str) -> str:
    """Stripped, `_` and newline as spaces; case and punctuation kept. Half a surrogate pair, which no tokenizer
    takes, becomes U+FFFD. Raises InputError for text with nothing to read in it."""
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = text.strip().replace("_", " ").replace("\n", " ")
    if not any(character.isprintable() and not character.isspace() for character in text):
        raise InputError("instruction", "an empty or blank text", "what the robot should do")
    return text


def subtask_text(text: str) -> str:
    """The high-level prompt of subtask decoding: cleaned, lower case, and one full stop for whatever ended it."""
    text = clean_text(text.lower())
    return (text[:-1] if text[-1] in string.punctuation else text) + "."


def state_bins(state: np.ndarray) -> np.ndarray:
    """Normalised state [D] -> int64 [D]: the bin of 1/128 width from -1, in 0..255, and -1 for what lies below."""
    return np.searchsorted(_BIN_EDGES, state, side="right") - 1


def build_prompt(form: str, task: str, state: np.ndarray) -> Prompt:
    """One of FORMS from a raw task text and the normalised, unpadded state [D]. Raises InputError for blank text.

    state: openpi, LeRobot. plain: the same without state. subtask: OxyGen. subtask_state: openpi_subtask.
    """
    bins = " ".join(map(str, state_bins(state)))
    if form == "state":
        return Prompt("Task: ", clean_text(task), f", State: {bins};\nAction: ")
    if form == "plain":
        return Prompt("", clean_text(task), "", then="\n")
    if form == "subtask":
        return Prompt("Task: ", subtask_text(task), " Subtask: ")
    if form == "subtask_state":
        return Prompt("Task: ", subtask_text(task), f"; State: {bins}; Subtask: ")
    raise InputError("prompt form", repr(form), f"one of {', '.join(FORMS)}")


def encode_prompt(tokenizer: Tokenizer, prompt: Prompt, max_tokens: int) -> tuple[list[int], str | None]:
    """(ids with begin-of-sequence, a warning or None).

    An over-long prompt loses the end of its task text and nothing else: the longest beginning that fits in
    `max_tokens` is kept, so state and cue stay whole. The warning holds both token counts. Raises InputError where
    even an empty task does not fit.
    """
    ids = _encode(tokenizer, prompt)
    if len(ids) <= max_tokens:
        return ids, None
    kept, shortened = "", _encode(tokenizer, _shortened(prompt, ""))
    if len(shortened) > max_tokens:
        raise InputError("prompt", f"{len(shortened)} tokens without any task text", f"at most {max_tokens}")
    fits, too_long = 0, len(prompt.task)
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        candidate = prompt.task[:middle].rstrip()
        candidate_ids = _encode(tokenizer, _shortened(prompt, candidate))
        if len(candidate_ids) <= max_tokens:
            fits, kept, shortened = middle, candidate, candidate_ids
        else:
            too_long = middle
    return shortened, (
        f"the prompt has {len(ids)} tokens, more than {max_tokens}: "
        f"task text shortened from {len(prompt.task)} to {len(kept)} characters, {len(shortened)} tokens"
    )


def _shortened(prompt: Prompt, task: str) -> Prompt:
    return Prompt(prompt.before, task, prompt.after, prompt.then)


def _encode(tokenizer: Tokenizer, prompt: Prompt) -> list[int]:
    return [tokenizer.bos, *(i for piece in prompt.pieces() for i in tokenizer.encode(piece))]
