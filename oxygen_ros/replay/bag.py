"""A recording, whatever wrote it: one file or a folder of them, packed or not; nothing is ever written beside it."""

from __future__ import annotations

import errno
import heapq
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import yaml

from ..plain_cdr import header_stamp_ns
from .compression import PACKED, PackedError, unpack_file, unpacked
from .storage import STORAGES, BagError, Content, Recorded, Topic, gathered

__all__ = ["Bag", "BagError", "Recorded", "Stopped", "Topic", "in_its_own_time", "open_bag"]


_ASKED_EVERY = 100  # messages
_RECOVER = {
    ".mcap": "`mcap recover FILE -o OTHER` saves what is whole",
    ".db3": "`sqlite3 FILE .recover | sqlite3 OTHER` saves what is whole",
    ".bag": "`rosbag reindex FILE` saves what is whole",
}


@dataclass(frozen=True)
class _File:
    """shown: as the user knows it; read: where its plain content lies. `held` keeps the latter while it is needed."""

    shown: Path
    read: Path
    held: Any = None

    def content(self) -> Content:
        try:
            return STORAGES[self.read.suffix].content(self.read)
        except Exception as error:  # each library has its own, and lets through those of its decompressors
            raise BagError(f"{self.shown} is not a readable {_kind(self.read)} file: {self._reason(error)}") from error

    def messages(self, topics: Collection[str] | None) -> Iterator[Recorded]:
        messages = STORAGES[self.read.suffix].messages(self.read, topics)
        while True:
            try:
                message = next(messages)
                yield Recorded(message.topic, message.received_ns, unpacked(message.data))
            except StopIteration:
                return
            except Exception as error:
                raise BagError(f"{self.shown} breaks off: {self._reason(error)}") from error

    def _reason(self, error: Exception) -> str:
        """With what saves the rest, where its writer was cut off or its disk forgot."""
        if isinstance(error, BagError):
            return _reason(error)
        # A seek to before the beginning says just `Invalid argument`.
        reason = "it is too short" if isinstance(error, OSError) and error.errno == errno.EINVAL else _reason(error)
        remedy = _RECOVER.get(self.read.suffix)
        return f"{reason}; {remedy}" if remedy else reason


@dataclass(frozen=True)
class _Clock:
    """What /clock told, and when that was received, int64 [N] each."""

    received_ns: np.ndarray
    told_ns: np.ndarray

    def at(self, received_ns: int) -> int:
        """Between two messages time goes on as the recorder's did."""
        last = max(int(np.searchsorted(self.received_ns, received_ns, side="right")) - 1, 0)
        return int(self.told_ns[last]) + received_ns - int(self.received_ns[last])


class Stopped(Exception):
    """Nobody wants the rest of a recording any more."""


@dataclass(frozen=True)
class Bag:
    """start_ns, end_ns: receipt of the first and the last message. clock: by what receipt is told, else its own.

    wanted: whether to go on reading, which may take long; it is asked now and then.
    """

    path: Path
    topics: Mapping[str, Topic]
    start_ns: int
    end_ns: int
    counts: Mapping[str, int] = field(default_factory=dict)
    files: tuple[_File, ...] = ()
    clock: _Clock | None = None
    wanted: Callable[[], bool] = lambda: True

    @property
    def duration(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9

    def messages(self, topics: Collection[str] | None = None) -> Iterator[Recorded]:
        """Of these topics, or of all, in the order of receipt. Raises BagError where a file breaks off, and Stopped."""
        messages = heapq.merge(*(file.messages(topics) for file in self.files), key=lambda message: message.received_ns)
        for number, message in enumerate(messages):
            if number % _ASKED_EVERY == 0 and not self.wanted():
                raise Stopped
            yield message if self.clock is None else replace(message, received_ns=self.clock.at(message.received_ns))


def open_bag(path: str | Path) -> Bag:
    """A recording file (.mcap, .db3, .bag; also packed), or the folder that rosbag2 made. Raises BagError."""
    if not str(path).strip():
        raise BagError("a bag's name is empty; expected a file, or the folder that rosbag2 made")
    path = Path(path).expanduser()
    files = tuple(_plain(file) for file in _files(path))
    contents = [file.content() for file in files]
    topics, counts = gathered((t, c.counts.get(t.name, 0)) for c in contents for t in c.topics.values())
    filled = [content for content in contents if sum(content.counts.values())]
    if not filled:
        raise BagError(f"{path} holds no messages")
    start, end = min(c.start_ns for c in filled), max(c.end_ns for c in filled)
    return Bag(path, topics, start, end, dict(counts), files)


def in_its_own_time(bag: Bag) -> Bag:
    """With receipt told by the bag's /clock, where it holds one: a simulation stamps in that time. Raises BagError."""
    topic = bag.topics.get("/clock")
    if topic is None or not bag.counts.get("/clock") or topic.type.rpartition("/")[2] != "Clock":
        return bag
    # A serialised Clock is a stamp, as a header begins with one.
    told = np.array([(m.received_ns, header_stamp_ns(m.data)) for m in bag.messages(["/clock"])], np.int64)
    clock = _Clock(told[:, 0], told[:, 1])
    return replace(bag, clock=clock, start_ns=clock.at(bag.start_ns), end_ns=clock.at(bag.end_ns))


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return _listed(path) or _found(path)
    if not path.is_file():
        raise BagError(f"{path} is not a file or folder; expected an MCAP recording, or another that rosbag2 wrote")
    if not _is_storage(path):
        raise BagError(f"{path} is not a recording: its name ends in none of {', '.join(STORAGES)}, packed or not")
    return [path]


def _listed(folder: Path) -> list[Path]:
    """The files that metadata.yaml names. What else it says, the files say better."""
    try:
        about = yaml.safe_load((folder / "metadata.yaml").read_text())["rosbag2_bagfile_information"]
        names = [PurePosixPath(name).name for name in about["relative_file_paths"]]
    except (OSError, yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError):
        return []
    files = []
    for name in names:  # rosbag2 has written the names of packed files with and without their suffix
        plain = name.removesuffix(Path(name).suffix) if Path(name).suffix in PACKED else name
        there = [folder / n for n in (name, plain, *(plain + suffix for suffix in PACKED)) if (folder / n).is_file()]
        if not there:
            raise BagError(f"{folder} lacks {name}, which its metadata.yaml names")
        files.append(there[0])
    return files


def _found(folder: Path) -> list[Path]:
    files = {_plain_name(file): file for file in sorted(folder.iterdir(), reverse=True) if _is_storage(file)}
    if not files:
        raise BagError(f"{folder} holds no recording: no file whose name ends in {', '.join(STORAGES)}, packed or not")
    return sorted(files.values())


def _is_storage(file: Path) -> bool:
    return Path(_plain_name(file)).suffix in STORAGES and file.is_file()


def _plain_name(file: Path) -> str:
    return file.stem if file.suffix in PACKED else file.name


def _plain(file: Path) -> _File:
    """The file itself, or an unpacked copy in a temporary folder that goes when nobody needs it any more."""
    journal = file.with_name(file.name + "-wal")  # of SQLite, when its writer was cut off
    unfinished = journal.is_file() and journal.stat().st_size
    if file.suffix not in PACKED and not unfinished:
        return _File(file, file)
    folder = tempfile.TemporaryDirectory(prefix="oxygen_ros_")
    plain = Path(folder.name, _plain_name(file))
    try:
        if unfinished:
            shutil.copy(file, plain)
            shutil.copy(journal, plain.with_name(journal.name))
            with sqlite3.connect(plain) as copy:
                copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        else:
            unpack_file(file, plain)
    except (PackedError, OSError, sqlite3.Error) as error:
        raise BagError(f"{file} cannot be unpacked: {_reason(error)}") from error
    return _File(file, plain, folder)


def _kind(file: Path) -> str:
    return {".mcap": "MCAP", ".db3": "SQLite"}.get(file.suffix, "ROS 1")


def _reason(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error)) or type(error).__name__
