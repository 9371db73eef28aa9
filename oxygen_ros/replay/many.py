"""Many bags: one after the other, several processes on this machine, or a Ray cluster, with the same results."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..embodiment.errors import on_one_line
from ..settings import Settings
from .annotate import write_recording
from .bag import BagError, Stopped
from .evaluate import Side, evaluate, in_mode, load_side
from .heard import Live
from .report import bag_section
from .rollout import Part
from .sources import Names


class NoCluster(Exception):
    """Ray is not here, or its cluster is not there; the message says what to do."""


@dataclass(frozen=True)
class Order:
    """What is done with each bag. against: a second policy's settings; against_mode: or the same in this engine mode.

    live: a second side that a node was. recording: whether to write an annotated MCAP.
    """

    settings: Settings
    mode: str
    names: Names
    part: Part
    against: Settings | None = None
    against_mode: str = ""
    live: Live | None = None
    recording: bool = True


@dataclass(frozen=True)
class Piece:
    """What became of one bag. result has `error` where it could not be evaluated; section: its part of the report;
    recording: the annotated MCAP, where it is not yet in its place."""

    bag: str
    key: str
    result: dict[str, Any]
    section: str = ""
    recording: bytes | None = None


def sides_of(order: Order, say: Callable[[str], None] = lambda line: None) -> list[Side]:
    """Loads what is evaluated. Raises what `load_policy` raises."""
    names = _names(order)
    sides = [load_side(names[0], order.settings, order.mode, say)]
    if order.against is not None:
        sides.append(load_side(names[1], order.against, order.against_mode or order.mode, say))
    elif order.against_mode:
        sides.append(in_mode(sides[0], names[1], order.against_mode))
    return sides


def _names(order: Order) -> tuple[str, str]:
    if order.against is None and order.against_mode and order.against_mode != order.mode:
        return order.mode, order.against_mode
    return ("a", "b") if order.against is not None or order.against_mode else (order.mode, "")


def one(bag: str, key: str, sides: Sequence[Side], order: Order, folder: Path, goes_on: Callable[[float], bool]
        ) -> Piece | None:
    """Evaluate one bag; its recording goes to folder/key.mcap. Nothing that is wrong with a bag is raised.

    None where it was stopped before there was anything. A recording that was stopped is left out.
    """
    try:
        done = evaluate(bag, sides, order.names, order.part, goes_on, order.live)
        if order.recording:
            with suppress(Stopped):
                write_recording(done, folder / f"{key}.mcap")
        return Piece(bag, key, done.result, bag_section(done, key))
    except Stopped:
        return None
    except BagError as error:
        text = str(error)
        text = text if not bag or bag in text else f"{bag}: {text}"
        return Piece(bag, key, {"bag": bag, "error": on_one_line(text)})
    except Exception as error:  # one bag must not take the others' results along
        return Piece(bag, key, {"bag": bag, "error": on_one_line(f"{bag}: {type(error).__name__}: {error}")})


def in_turn(bags: Sequence[tuple[str, str]], order: Order, sides: Sequence[Side], folder: Path,
            goes_on: Callable[[str, float], bool]) -> Iterator[Piece]:
    """bags: (path, key). goes_on: is told which bag and how much of it is done."""
    for bag, key in bags:
        if not goes_on(bag, 0.0):
            return
        piece = one(bag, key, sides, order, folder, lambda done, b=bag: goes_on(b, done))
        if piece is not None:
            yield piece


# Several processes. A worker keeps what it has loaded.

_worker: dict[str, Any] = {}


def side_by_side(bags: Sequence[tuple[str, str]], order: Order, jobs: int, folder: Path, goes_on: Callable[[], bool]
                 ) -> Iterator[Piece]:
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    stop = context.Event()
    with ProcessPoolExecutor(jobs, context, _begin, (_sharing(order, jobs), stop)) as pool:
        running = {pool.submit(_work, bag, key, folder): (bag, key) for bag, key in bags}
        pending = set(running)
        while pending:
            try:
                for future in as_completed(pending, timeout=0.2):
                    pending.discard(future)
                    try:
                        if (piece := future.result()) is not None:
                            yield piece
                    except CancelledError:
                        pass
                    except BrokenProcessPool:
                        bag, key = running[future]
                        reason = f"a process of --jobs {jobs} ended by itself, perhaps for want of memory; use fewer"
                        yield Piece(bag, key, {"bag": bag, "error": f"{bag}: {reason}"})
            except TimeoutError:
                pass
            if not goes_on() and not stop.is_set():
                stop.set()
                for future in pending:
                    future.cancel()


def _sharing(order: Order, jobs: int) -> Order:
    """All threads of the machine between the workers, where the settings leave the number open."""
    threads = max(1, (os.cpu_count() or 1) // jobs)

    def share(settings: Settings | None) -> Settings | None:
        return settings if settings is None or settings.threads else replace(settings, threads=threads)

    return replace(order, settings=share(order.settings), against=share(order.against))


def _begin(order: Order, stop: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who started us; it tells us by `stop`
    _worker.update(order=order, stop=stop, sides=sides_of(order))


def _work(bag: str, key: str, folder: Path) -> Piece | None:
    return one(bag, key, _worker["sides"], _worker["order"], folder, lambda done: not _worker["stop"].is_set())


# A cluster


def on_cluster(bags: Sequence[tuple[str, str]], order: Order, address: str, goes_on: Callable[[], bool]
               ) -> Iterator[Piece]:
    """Paths are as the cluster's machines see them. Raises NoCluster."""
    try:
        import ray
    except ModuleNotFoundError:
        raise NoCluster("--ray needs the package ray, which is not installed: pip install ray") from None
    try:
        ray.init(address=None if address == "local" else address, log_to_driver=False, logging_level="error")
    except Exception as error:
        raise NoCluster(f"--ray {address}: {str(error).splitlines()[0]}") from error
    try:
        work = ray.remote(_work_far)
        waiting = [work.remote(bag, key, order) for bag, key in bags]
        while waiting and goes_on():
            ready, waiting = ray.wait(waiting, timeout=0.5)
            for piece in ray.get(ready):
                yield piece
    finally:
        ray.shutdown()


def _work_far(bag: str, key: str, order: Order) -> Piece:
    if _worker.get("order") != order:
        _worker.update(order=order, sides=sides_of(order))
    with tempfile.TemporaryDirectory() as folder:
        piece = one(bag, key, _worker["sides"], order, Path(folder), lambda done: True)
        file = Path(folder, f"{key}.mcap")
        return replace(piece, recording=file.read_bytes()) if file.is_file() else piece
