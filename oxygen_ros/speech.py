"""Language as the robot's listeners hear it: token by token, as finished utterances, as memories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .embodiment.tokenizer import StreamingDecoder, Tokenizer
from .engine.outputs import FinishReason, Task, Token
from .stop_strings import StopStrings

_SAID = (FinishReason.END_OF_TEXT, FinishReason.LENGTH)


@dataclass
class _Text:
    """What a request has said. given: how many characters of it have been handed on."""

    decoder: StreamingDecoder
    whole: str = ""
    given: int = 0


class Speech:
    """Turns engine tokens into text.

    token: is given each token and what it adds to its text. utterance: a finished answer. memory: the last token of a
    finished caption, and all its text. stop: strings at which texts end, left out of them.
    """

    def __init__(self, tokenizer: Tokenizer, *, token: Callable[[Token, str], None],
                 utterance: Callable[[str], None], memory: Callable[[Token, str], None],
                 stop: Callable[[], Sequence[str]] = tuple) -> None:
        self._tokenizer, self._stop = tokenizer, stop
        self._token, self._utterance, self._memory = token, utterance, memory
        self._texts: dict[int, _Text] = {}  # by request

    def hear(self, token: Token) -> None:
        """Hand on one token, and with the last one of a request what it amounts to."""
        text = self._texts.setdefault(token.request_id, _Text(StreamingDecoder(self._tokenizer)))
        if token.token_id >= 0:
            text.whole += text.decoder.push(token.token_id)
        if token.last:
            text.whole += text.decoder.flush()
        stop, given = StopStrings(self._stop()), text.given
        end = stop.find(text.whole) if token.last else stop.settled(text.whole)
        text.given = len(text.whole) if end is None else max(end, given)
        self._token(token, text.whole[given : text.given])
        if token.last:
            del self._texts[token.request_id]
            self._conclude(token, text.whole[: text.given])

    def refuse(self, token: Token) -> None:
        """Hand on the only token of a request that was not taken. May run beside `hear`."""
        self._token(token, "")

    def _conclude(self, token: Token, text: str) -> None:
        if token.finish_reason not in _SAID:
            return
        if token.task is Task.REMEMBER:
            self._memory(token, text)
        else:
            self._utterance(text)
