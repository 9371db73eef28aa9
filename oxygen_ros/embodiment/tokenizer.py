"""Text to token ids and back, from a local SentencePiece or Hugging Face file. Nothing here ever opens a socket."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType

from .errors import InputError

FILES = ("tokenizer.model", "paligemma_tokenizer.model", "tokenizer.json")
"""Names looked for in a folder, in this order."""

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Tokenizer:
    """encode(text) -> ids without begin or end of sequence; decode(ids) -> text, none for control and unknown ids.

    bos, eos, pad: ids of the control pieces. vocab_size: number of pieces.
    """

    def __init__(
        self,
        encode: Callable[[str], list[int]],
        decode: Callable[[list[int]], str],
        *,
        bos: int,
        eos: int,
        pad: int,
        vocab_size: int,
    ):
        self._encode, self._decode = encode, decode
        self.bos, self.eos, self.pad, self.vocab_size = bos, eos, pad, vocab_size

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """From a file, or from the first of FILES in a folder. Raises InputError if there is none, or a broken one."""
        path = Path(path)
        candidates = [path / name for name in FILES] if path.is_dir() else [path]
        file = next((candidate for candidate in candidates if candidate.is_file()), None)
        if file is None:
            found, remedy = f"none at {path.absolute()}", "copy it there, or say with parameter tokenizer where it is"
            raise InputError("tokenizer", found, " or ".join(FILES), remedy)
        return _load_huggingface(file) if file.suffix == ".json" else _load_sentencepiece(file)

    def encode(self, text: str) -> list[int]:
        """Token ids of the text alone; text that spells a control piece is text."""
        return self._encode(text)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of all ids at once; a byte that belongs to no whole character is U+FFFD."""
        return self._decode([int(i) for i in ids if 0 <= i < self.vocab_size])


class StreamingDecoder:
    """Text as tokens come: the deltas, with `flush()` at the end, concatenate to `tokenizer.decode` of all ids.

    What the next token may still change, the bytes of an unfinished character, is held back.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer, self._ids, self._given = tokenizer, [], 0

    def push(self, token_id: int) -> str:
        """The text that this token completes, often one word, sometimes nothing."""
        self._ids.append(token_id)
        return self._give(self._tokenizer.decode(self._ids).rstrip("\ufffd"))

    def flush(self) -> str:
        """The rest: nothing, or one U+FFFD for each byte of a character that never ended."""
        return self._give(self._tokenizer.decode(self._ids))

    def _give(self, text: str) -> str:
        delta, self._given = text[self._given :], len(text)
        return delta


def _package(name: str, file: Path) -> ModuleType:
    """Neither comes with ROS. Raises InputError."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        found = f"{sys.executable} without a Python package {name} that works ({error})"
        remedy = f"{sys.executable} -m pip install {name}"
        raise InputError(f"tokenizer {file}", found, "one with it", remedy) from error


def _load_sentencepiece(file: Path) -> Tokenizer:
    SentencePieceProcessor = _package("sentencepiece", file).SentencePieceProcessor
    try:
        model = file.read_bytes()
    except OSError as error:
        found = f"a file that cannot be read ({error.strerror})"
        raise InputError(f"tokenizer {file}", found, "a SentencePiece model") from error
    try:
        processor = SentencePieceProcessor(model_proto=model)
        size = processor.get_piece_size()
    except (RuntimeError, OSError) as error:
        raise InputError(f"tokenizer {file}", f"{len(model)} bytes", "a SentencePiece model", str(error)) from error
    if size == 0:  # an empty file is no error to the library
        raise InputError(f"tokenizer {file}", f"{len(model)} bytes without a piece", "a SentencePiece model")
    bos, eos, pad = processor.bos_id(), processor.eos_id(), max(0, processor.pad_id())
    if bos < 0 or eos < 0:
        raise InputError(f"tokenizer {file}", f"bos id {bos} and eos id {eos}", "both from 0 on")
    return Tokenizer(processor.encode, processor.decode, bos=bos, eos=eos, pad=pad, vocab_size=size)


def _load_huggingface(file: Path) -> Tokenizer:
    HuggingFaceTokenizer = _package("tokenizers", file).Tokenizer
    try:
        inner = HuggingFaceTokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception
        found = f"{file.stat().st_size} bytes"
        raise InputError(f"tokenizer {file}", found, "a Hugging Face tokenizer.json", str(error)) from error
    inner.no_truncation()
    inner.no_padding()
    inner.encode_special_tokens = True  # an instruction that spells "<eos>" must not end the prompt

    def control(*spellings: str) -> int:
        ids = (inner.token_to_id(spelling) for spelling in spellings)
        found = next((i for i in ids if i is not None), None)
        if found is None:
            raise InputError(f"tokenizer {file}", f"no {spellings[0]} piece", " or ".join(spellings))
        return found

    silent = {i for i, token in inner.get_added_tokens_decoder().items() if token.special}

    def decode(ids: list[int]) -> str:
        pieces = [piece for i in ids if i not in silent and (piece := inner.id_to_token(i)) is not None]
        pieces = _join_bytes(pieces)
        return inner.decoder.decode(pieces) if inner.decoder else "".join(pieces)

    return Tokenizer(
        lambda text: inner.encode(text, add_special_tokens=False).ids,
        decode,
        bos=control("<bos>", "<s>"),
        eos=control("<eos>", "</s>"),
        pad=control("<pad>", "<unk>"),
        vocab_size=inner.get_vocab_size(),
    )


def _join_bytes(pieces: Sequence[str]) -> list[str]:
    """Runs of byte pieces as text. The library's own decoder gives up a whole run, finished characters included, for
    one unfinished character at its end; text already given out would change."""
    joined, run = [], bytearray()
    for piece in (*pieces, ""):
        if byte := _BYTE_PIECE.fullmatch(piece):
            run.append(int(byte[1], 16))
            continue
        if run:
            joined.append(_utf8(bytes(run)))
            run.clear()
        joined.append(piece)
    return joined[:-1]


def _utf8(data: bytes) -> str:
    # One U+FFFD for each byte, as SentencePiece does; Python's "replace" gives one for several.
    return data.decode("utf-8", "surrogateescape").translate(_ESCAPED)


_ESCAPED = {0xDC00 + byte: "\ufffd" for byte in range(0x80, 0x100)}
