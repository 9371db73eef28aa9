"""What the model reads: task text and state numbers in the public prompt forms (pi05.md sections 8 and 9.4)."""

from __future__ import annotations

import string
from dataclasses import dataclass, replace

import numpy as np

from .errors import InputError
from .tokenizer import Tokenizer

FORMS = ("state", "plain", "subtask", "subtask_state")
LANGUAGE_TASKS = ("ask", "remember", "subtask")
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


def task_text(form: str, task: str) -> str:
    """The task as this form writes it. Raises InputError for blank text."""
    return subtask_text(task) if form.startswith("subtask") else clean_text(task)


def surround(form: str, text: str, state: np.ndarray) -> Prompt:
    """The prompt around a text of `task_text`. state: [D], normalised, unpadded. Raises InputError for another form.

    Form state is openpi's and LeRobot's, plain the same without the state, subtask OxyGen's, subtask_state
    openpi_subtask's.
    """
    bins = " ".join(map(str, state_bins(state)))
    if form == "state":
        return Prompt("Task: ", text, f", State: {bins};\nAction: ")
    if form == "plain":
        return Prompt("", text, "", then="\n")
    if form == "subtask":
        return Prompt("Task: ", text, " Subtask: ")
    if form == "subtask_state":
        return Prompt("Task: ", text, f"; State: {bins}; Subtask: ")
    raise InputError("prompt form", repr(form), f"one of {', '.join(FORMS)}")


def encode_prompt(tokenizer: Tokenizer, prompt: Prompt) -> list[int]:
    """Token ids of the whole prompt, begin-of-sequence first."""
    return [tokenizer.bos, *(i for piece in prompt.pieces() for i in tokenizer.encode(piece))]


def shorten(tokenizer: Tokenizer, prompt: Prompt, max_tokens: int) -> tuple[Prompt, list[int]]:
    """An over-long prompt without the end of its task text, and its ids: at most `max_tokens`.

    The longest beginning of the text that fits is kept, so state and cue stay whole. Raises InputError where even an
    empty text does not fit.
    """

    def beginning(length: int) -> tuple[Prompt, list[int]]:
        shorter = replace(prompt, task=prompt.task[:length].rstrip())
        return shorter, encode_prompt(tokenizer, shorter)

    kept, ids = beginning(0)
    if len(ids) > max_tokens:
        raise InputError("prompt", f"{len(ids)} tokens without any task text", f"at most {max_tokens}")
    # From the short end, since the text may be of any length and the part that fits is small.
    fits, step = 0, 64
    while step and fits < len(prompt.task):
        longer, longer_ids = beginning(fits + step)
        if len(longer_ids) <= max_tokens:
            fits, kept, ids = fits + step, longer, longer_ids
            step *= 2
        else:
            break
    too_long = min(fits + step, len(prompt.task) + 1)
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        shorter, shorter_ids = beginning(middle)
        if len(shorter_ids) <= max_tokens:
            fits, kept, ids = middle, shorter, shorter_ids
        else:
            too_long = middle
    return kept, ids
