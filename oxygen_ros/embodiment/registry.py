"""The robots known by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .aloha import ALOHA, ALOHA_OPENPI
from .droid import DROID
from .errors import InputError
from .generic import from_dict
from .libero import LIBERO
from .robot import Robot

ROBOTS = {description["name"]: description for description in (ALOHA, ALOHA_OPENPI, DROID, LIBERO)}
"""name -> description, each complete and each a starting point for an owner's own."""


def robot(name: str, changes: Mapping[str, Any] | None = None) -> Robot:
    """A known robot, but for the keys of its description that are given (for example `grippers` of another range).

    A changed mapping or list replaces the whole key. Raises InputError.
    """
    if name not in ROBOTS:
        raise InputError("robot", repr(name), f"one of {', '.join(ROBOTS)}", "or describe your own")
    return from_dict({**ROBOTS[name], **(changes or {})})
