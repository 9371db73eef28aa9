"""Texts at which an answer ends. They are not part of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .embodiment.tokenizer import StreamingDecoder, Tokenizer


class StopStrings:
    """Finds the first of some strings in a text that is still growing."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = [string for string in strings if string]

    def find(self, text: str) -> int | None:
        """Where the text ends, None if it goes on."""
        found = [at for string in self._strings if (at := text.find(string)) >= 0]
        return min(found, default=None)

    def settled(self, text: str) -> int:
        """How much of the text will stay, whatever follows: all but what may be the beginning of one of the strings."""
        end = self.find(text)
        if end is not None:
            return end
        held = (
            length for string in self._strings for length in range(min(len(string) - 1, len(text)), 0, -1)
            if text.endswith(string[:length])
        )
        return len(text) - max(held, default=0)


def ends_at(strings: Sequence[str], tokenizer: Tokenizer) -> Callable[[Sequence[int]], bool] | None:
    """For `LanguageRequest.ends`: whether the text of the token ids said so far holds one of the strings."""
    if not strings:
        return None
    stop, decoder, said = StopStrings(strings), StreamingDecoder(tokenizer), []

    def ends(token_ids: Sequence[int]) -> bool:
        said.append(decoder.push(token_ids[-1]))
        return stop.find("".join(said)) is not None

    return ends
