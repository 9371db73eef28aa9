"""What a robot sent, or its owner declared, and cannot be used."""

from __future__ import annotations


class InputError(ValueError):
    """Bad input of a robot or of its description. The message names the thing, what was found, what was expected
    and, where one helps, the remedy; the caller adds where it came from (topic, file, parameter)."""

    def __init__(self, thing: str, found: str, expected: str, remedy: str = ""):
        super().__init__(f"{thing}: found {found}, expected {expected}" + (f"; {remedy}" if remedy else ""))
        self.thing, self.found, self.expected, self.remedy = thing, found, expected, remedy
