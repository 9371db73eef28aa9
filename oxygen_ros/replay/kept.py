"""What an earlier run has evaluated already, and whether that still holds."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from ..places import resolve
from .many import Order, Piece


def find_kept(cache: Path, bag: str, key: str, order: Order) -> Piece | None:
    """None where there is nothing, or where what it depends on has changed."""
    try:
        kept = json.loads((cache / f"{key}.json").read_text())
        if kept["of"] == _fingerprint(bag, order):
            return Piece(bag, key, kept["result"], kept["section"])
    except (OSError, ValueError, KeyError):
        pass
    return None


def keep(cache: Path, piece: Piece, order: Order) -> None:
    write_whole(cache / f"{piece.key}.json", json.dumps(
        {"of": _fingerprint(piece.bag, order), "result": piece.result, "section": piece.section}))


def _fingerprint(bag: str, order: Order) -> str:
    """Of what a result depends on: the order, the bag's files and the policies', by size and time of change."""
    places = [bag, order.settings.policy, order.against.policy if order.against else ""]
    files = []
    for place in filter(None, places):
        path = resolve(place)
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        files += [(str(f), (s := f.stat()).st_size, s.st_mtime_ns) for f in inside if f.is_file()]
    return hashlib.sha256(repr((order, files)).encode()).hexdigest()


def file_names(bags: Sequence[str]) -> list[str]:
    """A file name for each bag, the same in every run with the same bags."""
    taken: set[str] = set()
    names = []
    for bag in bags:
        stem = re.sub(r"[^\w.-]+", "_", Path(bag).name.partition(".")[0]) or "bag"
        key, number = stem, 2
        while key in taken:
            key, number = f"{stem}_{number}", number + 1
        taken.add(key)
        names.append(key)
    return names


def write_whole(path: Path, text: str) -> None:
    """The file appears when it is whole."""
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(text)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
