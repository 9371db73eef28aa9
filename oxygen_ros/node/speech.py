"""Language as the robot's listeners hear it: token by token, as finished utterances, as memories."""

from __future__ import annotations

from collections.abc import Callable

from std_msgs.msg import String

from ..embodiment.tokenizer import StreamingDecoder, Tokenizer
from ..engine.outputs import FinishReason, Task, Token
from ..msg import LanguageToken
from . import messages

_SAID = (FinishReason.END_OF_TEXT, FinishReason.LENGTH)


class Speech:
    """Turns engine tokens into text. Deltas of one request, joined, are the whole text."""

    def __init__(self, tokenizer: Tokenizer, frame_id: str, *, token: Callable[[LanguageToken], None],
                 utterance: Callable[[String], None], memory: Callable[[LanguageToken], None]) -> None:
        self._tokenizer, self._frame_id = tokenizer, frame_id
        self._publish_token, self._publish_utterance, self._publish_memory = token, utterance, memory
        self._decoders: dict[int, StreamingDecoder] = {}
        self._texts: dict[int, str] = {}

    def hear(self, token: Token) -> None:
        """Publish one token, and with the last one of a request what it amounts to."""
        request = token.request_id
        decoder = self._decoders.setdefault(request, StreamingDecoder(self._tokenizer))
        delta = decoder.push(token.token_id) if token.token_id >= 0 else ""
        if token.last:
            delta += decoder.flush()
        text = self._texts[request] = self._texts.get(request, "") + delta
        self._publish_token(messages.language_token(token, delta, self._frame_id))
        if token.last:
            del self._decoders[request], self._texts[request]
            self._conclude(token, text)

    def refuse(self, token: Token) -> None:
        """Publish the only token of a request that was not taken. May run beside `hear`."""
        self._publish_token(messages.language_token(token, "", self._frame_id))

    def _conclude(self, token: Token, text: str) -> None:
        if token.finish_reason not in _SAID:
            return
        if token.task is Task.REMEMBER:
            self._publish_memory(messages.language_token(token, text, self._frame_id))
        else:
            self._publish_utterance(String(data=text))
