"""oxygen-record-sim: record the scripted expert's demonstrations as a robot's bag."""
from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from ..command_line import CommandLine, whole

_COMMAND = "oxygen-record-sim"


def main(argv: list[str] | None = None) -> int:
    """Returns 0 for a complete bag, 1 for an error, 130 where Ctrl-C cut it short (what there is stays readable)."""
    arguments = _arguments(argv)
    stops: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, frame: stops.append(number))
    try:
        return _record(arguments, stops)
    except (OSError, RuntimeError) as error:
        return _fail(str(error))
    finally:
        signal.signal(signal.SIGINT, previous)


def _record(arguments: argparse.Namespace, stops: list[int]) -> int:
    from . import recording, world  # here, so that --help works without the simulator
    from .bag import BagWriter
    from .messages import Composer, load_types

    out: Path = arguments.out
    part = out.with_name(out.name + ".part")  # a failed run leaves an earlier bag of this name as it was
    types = load_types()
    robot = world.World(*arguments.size)
    try:
        with part.open("wb") as stream:
            bag = BagWriter(stream, types)
            every = world.RATE_HZ // arguments.image_rate
            order = recording.Order(arguments.seed, arguments.episodes, every, arguments.seconds)
            recording.record(bag, robot, Composer(types, arguments.jpeg_quality), order, lambda: bool(stops), _say)
            bag.close()
        os.replace(part, out)
    finally:
        robot.close()
        part.unlink(missing_ok=True)
    _say(f"{out}: {bag.count} messages, {out.stat().st_size / 1e6:.2f} MB{', cut short by Ctrl-C' if stops else ''}")
    return 128 + signal.SIGINT if stops else 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = CommandLine(prog=_COMMAND, description=(
        "Record demonstrations of the simulated ALOHA as a robot's bag (MCAP): three compressed cameras, joint states "
        "and joint commands at 50 Hz, the instruction, and the phase the scripted expert is in. Each seed is a place "
        "of the cube; the same seed gives the same messages. A seed on which the expert fails is refused, with a word, "
        "and the next one taken. Needs the packages gym-aloha, mcap, rosbags and pillow, and libegl1 and libgl1."))
    parser.add_argument("--seed", type=whole(0), default=0, help="first seed (default: %(default)s)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.mcap",
                        help="the bag; one that exists is replaced")
    parser.add_argument("--episodes", type=whole(1), default=1, metavar="N",
                        help="how many, one second apart (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="S",
                        help="at most this much of each (default: all, 8 s)")
    parser.add_argument("--size", type=_size, default=(640, 480), metavar="WxH",
                        help="of the pictures (default: 640x480)")
    parser.add_argument("--image-rate", type=int, choices=(5, 10, 25, 50), default=25, help="Hz (default: %(default)s)")
    parser.add_argument("--jpeg-quality", type=int, choices=range(1, 96), metavar="1..95", default=85,
                        help="(default: %(default)s)")
    arguments = parser.parse_args(argv)
    if not arguments.seconds > 0:
        parser.error(f"argument --seconds: expected more than 0, found {arguments.seconds:g}")
    return arguments


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    if not (width.isdecimal() and height.isdecimal() and 0 < int(width) <= 640 and 0 < int(height) <= 480):
        raise argparse.ArgumentTypeError(f"expected WIDTHxHEIGHT up to 640x480, found {text!r}")
    return int(width), int(height)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _fail(cause: str) -> int:
    _say(f"{_COMMAND}: {cause}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
