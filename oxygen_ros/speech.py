"""Language as the robot's listeners hear it: token by token, as finished utterances, as memories."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .embodiment.tokenizer import StreamingDecoder, Tokenizer
from .engine.outputs import FinishReason, Task, Token
from .stop_strings import StopStrings

_SAID = (FinishReason.END_OF_TEXT, FinishReason.LENGTH)


class Speech:
    """Turns engine tokens into text.

    token: is given each token and what it adds to its text. stop: strings at which texts end, left out of them. utterance: a finished answer. memory: the last token of a
    finished caption, and all its text.
    """

    def __init__(self, tokenizer: Tokenizer, *, token: Callable[[Token, str], None],
                 utterance: Callable[[str], None], memory: Callable[[Token, str], None],
                 stop: Callable[[], Sequence[str]] = tuple) -> None:
        self._tokenizer, self._stop = tokenizer, stop
        self._token, self._utterance, self._memory = token, utterance, memory
        self._decoders: dict[int, StreamingDecoder] = {}
        self._texts: dict[int, str] = {}
        self._given: dict[int, int] = {}

    def hear(self, token: Token) -> None:
        """Hand on one token, and with the last one of a request what it amounts to."""
        request = token.request_id
        decoder = self._decoders.setdefault(request, StreamingDecoder(self._tokenizer))
        text = self._texts.get(request, "") + (decoder.push(token.token_id) if token.token_id >= 0 else "")
        stop, given = StopStrings(self._stop()), self._given.get(request, 0)
        if token.last:
            text += decoder.flush()
        end = stop.find(text) if token.last else stop.settled(text)
        end = len(text) if end is None else max(end, given)
        self._texts[request], self._given[request] = text, end
        self._token(token, text[given:end])
        if token.last:
            del self._decoders[request], self._texts[request], self._given[request]
            self._conclude(token, text[:end])

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
