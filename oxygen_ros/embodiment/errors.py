"""What a robot sent, or its owner declared, and cannot be used."""

from __future__ import annotations

_LONGEST = 600  # characters; what is found is often text that somebody else chose


def on_one_line(text: str) -> str:
    """Without control characters: they are written as in a string of Python."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _printable(text: str) -> str:
    """On one line, and no longer than somebody would read."""
    text = on_one_line(text[: 2 * _LONGEST])
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"


class InputError(ValueError):
    """Bad input of a robot or of its description. The message names the thing, what was found, what was expected
    and, where one helps, the remedy; the caller adds where it came from (topic, file, parameter)."""

    def __init__(self, thing: str, found: str, expected: str, remedy: str = ""):
        text = f"{thing}: found {found}, expected {expected}" + (f"; {remedy}" if remedy else "")
        super().__init__(_printable(text))
