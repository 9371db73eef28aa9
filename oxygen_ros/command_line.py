"""How the commands read their arguments: a mistake is one line, as everything is that they say of one."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn


class CommandLine(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def whole(least: int) -> Callable[[str], int]:
    """What reads a whole number that is not smaller, for `type`."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} on, found {text!r}")
        return int(text)

    return read
