"""How a parameter is declared and what its values may be; which parameters there are is said in settings.py."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

UNSET = math.nan
"""Default of a number that stays the robot description's own unless it is given."""


@dataclass(frozen=True)
class Declaration:
    """One parameter under its full name, such as `camera.cam_high.max_age`. Its type is that of its default.

    numbers: of a list, that it holds so many numbers; other lists hold names. choices: of each name of a list.
    live: may change while the node is active; others need a cleanup.
    """

    name: str
    default: Any
    description: str
    low: float | None = None
    high: float | None = None
    choices: tuple = ()
    live: bool = False
    numbers: int = 0

    @property
    def unset(self) -> bool:
        """Whether the default is UNSET."""
        return isinstance(self.default, float) and math.isnan(self.default)

    @property
    def bounds(self) -> list[str]:
        """What is said of its values to people: choices (but for the empty one), lowest, highest."""
        choices = [str(choice) for choice in self.choices if choice != ""]
        some = "some" if isinstance(self.default, tuple) else "one"
        said = [f"{some} of " + ", ".join(choices)] if choices else []
        said += [f"at least {self.low:g}"] if self.low is not None else []
        return said + ([f"at most {self.high:g}"] if self.high is not None else [])

    def problem_with(self, value: Any) -> str | None:
        """One line that says what is wrong with a value, or None."""
        problem = self._wrong_type(value) or self._wrong_choice(value) or self._out_of_range(value)
        return problem and f"parameter {self.name} is {value!r}, expected {problem}"

    def checked(self, value: Any) -> Any:
        """A value without a problem as the type that it is declared with."""
        return tuple(map(float, value)) if self.numbers else type(self.default)(value)

    def _wrong_type(self, value: Any) -> str | None:
        if isinstance(self.default, tuple):
            if self.numbers:
                fits = _is_list(value, _is_number) and len(value) in (0, self.numbers)
                return None if fits else f"a list of {self.numbers} numbers"
            if not _is_list(value, lambda v: isinstance(v, str)):
                return "a list of names"
            return None if len(set(value)) == len(value) else "each name once"
        if isinstance(self.default, bool):
            return None if isinstance(value, bool) else "true or false"
        if isinstance(self.default, float):  # YAML writes 10.0 as 10 just as well
            return None if _is_number(value) else "a number"
        if isinstance(self.default, int):
            return None if _is_number(value) and isinstance(value, int) else "a whole number"
        return None if isinstance(value, str) else "a text"

    def _wrong_choice(self, value: Any) -> str | None:
        given = value if isinstance(self.default, tuple) else [value]
        return None if not self.choices or all(v in self.choices for v in given) else self.bounds[0]

    def _out_of_range(self, value: Any) -> str | None:
        numbers = [v for v in (value if self.numbers else [value]) if _is_number(v)]
        if self.unset and not all(map(math.isfinite, numbers)):
            return None if math.isnan(value) else "a finite number"
        low, high = -math.inf if self.low is None else self.low, math.inf if self.high is None else self.high
        if self.numbers and numbers != sorted(set(numbers)):
            return "the lower number first"
        if all(math.isfinite(v) and low <= v <= high for v in numbers):
            return None
        return " and ".join(self.bounds) or "finite numbers"


def parameter(default: Any, description: str, **further: Any) -> Any:
    """A dataclass field that is a parameter; `further` are fields of Declaration."""
    return field(default=default, metadata={"description": description, **further})


def declared(owner: type, prefix: str = "") -> Iterator[Declaration]:
    """The parameters of a dataclass and of its dataclasses; other fields are none."""
    for f in fields(owner):
        if f.metadata:
            yield Declaration(prefix + f.name, f.default, **f.metadata)
        elif is_dataclass(f.default_factory):
            yield from declared(f.default_factory, f"{prefix}{f.name}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_list(value: Any, fits: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(map(fits, value))
