"""`oxygen-replay`: bags in, an evaluation out, without ROS and faster than real time."""

from __future__ import annotations

import argparse
import json
import math
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from ..checkpoint.errors import CheckpointError
from ..command_line import CommandLine, whole
from ..embodiment.errors import InputError, on_one_line
from ..engine.baselines import MODES
from ..machine import describe
from ..parameter_file import load_settings
from ..places import resolve
from ..settings import SettingsError
from .evaluate import ENGINE, Side, unequal
from .heard import Live
from .kept import file_names, find_kept, keep, write_whole
from .many import NoCluster, Order, Piece, in_turn, on_cluster, side_by_side, sides_of
from .overall import overall
from .report import page
from .rollout import Part
from .sources import NOTHING, Names
from .terminal import Meter, remarks, say, table, warnings

_STOP = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130
_NUMBERS = re.compile(r"\[\n([\s\d.,eE+-]+)\]")


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where every bag was evaluated and no gate failed; 1 where not; 130 after Ctrl-C, with a report all the same."""
    options = _parser().parse_args(arguments)
    stop = _Stop()
    try:
        machine = describe(torch.device("cpu"))
        order = _order(options)
        _require_places(options)
        sides = sides_of(order, say if options.verbose else lambda line: None)
        machine["device"] = describe(sides[0].policy.engine.model.device)["gpu"] or "cpu"
        return _run(options, order, sides, stop, machine)
    except (SettingsError, CheckpointError, InputError, NoCluster) as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{error.filename or options.out}: {error.strerror}")
    finally:
        stop.restore()


def require_readable(arguments: Sequence[str]) -> None:
    """What `main` would refuse at once is refused here: the process ends with 2, or SettingsError is raised."""
    _order(_parser().parse_args(arguments))


def _parser() -> CommandLine:
    parser = CommandLine(prog="oxygen-replay", description=(
        "Evaluate a policy on recordings: for each control tick it gets the messages that a node would have had then, "
        "and its actions are compared with the recorded commands. Reads rosbag2 in MCAP and SQLite, split, packed, "
        "with or without metadata, and ROS 1 bags. Writes report.html, report.json and one annotated MCAP for each bag "
        "to --out. Exit code 0 only if every bag was evaluated and no gate failed."))
    parser.add_argument("bags", nargs="+", metavar="BAG", help="recording: a file, or the folder that rosbag2 made")
    parser.add_argument("--config", type=Path, default=resolve("package://oxygen_ros/config/aloha.yaml"),
                        help="parameter file of the robot, as for the node (default: the package's aloha.yaml)")
    parser.add_argument("--mode", choices=MODES, default=ENGINE, metavar="MODE",
                        help=f"engine: {', '.join(MODES)}; oxygen-bench says what each is (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/replay"),
                        help="folder to write to (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write report.json here too")
    parser.add_argument("--no-mcap", action="store_true", help="write no annotated recordings")
    parser.add_argument("--verbose", action="store_true", help="say how policy and robot were made to fit")

    what = parser.add_argument_group("which part of the bags")
    what.add_argument("--start", type=_seconds, default=0.0, metavar="S",
                      help="seconds from the beginning (default: 0)")
    what.add_argument("--seconds", type=_seconds, default=math.inf, metavar="S", help="how many (default: to the end)")
    what.add_argument("--instruction", default="", metavar="TEXT", help="task, in place of what was recorded")
    what.add_argument("--latency", type=_seconds, default=0.0, metavar="S",
                      help="seconds from a tick to its chunk, as on the robot; ticks within are missed (default: 0)")

    names = parser.add_argument_group("what topics are called in the bags")
    names.add_argument("--commands", default="joint_commands", metavar="TOPIC",
                       help="recorded commands: JointState, JointTrajectory or Float64MultiArray; none does without "
                       "(default: %(default)s)")
    names.add_argument("--instruction-topic", default="instruction", metavar="TOPIC",
                       help="oxygen_ros/Instruction or std_msgs/String (default: %(default)s)")
    names.add_argument("--text", default="", metavar="TOPIC", help="recorded words to compare with: std_msgs/String or "
                       "oxygen_ros/LanguageToken (default: none)")
    names.add_argument("--namespace", default="", help="of the robot's relative topics")
    names.add_argument("--remap", nargs="*", default=[], metavar="FROM:=TO", help="topics that have another name")

    other = parser.add_argument_group("a second side over the same bags")
    other.add_argument("--against", type=Path, metavar="YAML", help="another parameter file: policy, settings")
    other.add_argument("--against-mode", choices=MODES, default="", metavar="MODE",
                       help="the same network in another engine")
    other.add_argument("--live", type=Path, metavar="FILE", help="what a node said when this bag was played to it, as "
                       "oxygen-replay-live records it")
    other.add_argument("--live-node", default="/oxygen", metavar="NAME", help="of that node (default: %(default)s)")
    other.add_argument("--expect-equal", type=_limit, metavar="LIMIT",
                       help="fail where actions differ by more, or frames or texts differ at all")

    many = parser.add_argument_group("many bags")
    many.add_argument("--jobs", type=whole(1), default=1, metavar="N", help="processes on this machine (default: 1)")
    many.add_argument("--ray", metavar="ADDRESS", help="a Ray cluster, or `local`; needs the package ray")
    many.add_argument("--resume", action="store_true",
                      help="keep what --out has of the same bags, unchanged, and go on")
    return parser


def _run(options: argparse.Namespace, order: Order, sides: Sequence[Side], stop: _Stop, machine: dict[str, Any]) -> int:
    bags = list(zip(options.bags, file_names(options.bags)))
    cache = options.out / "bags"
    cache.mkdir(exist_ok=True)
    kept = {key: piece for bag, key in bags if options.resume and (piece := find_kept(cache, bag, key, order))}
    if kept:
        say(f"{len(kept)} of {len(bags)} bags are done already")
    pieces, todo = dict(kept), [(bag, key) for bag, key in bags if key not in kept]
    meter = Meter(len(todo))
    for piece in _pieces(todo, order, sides, options, stop, meter):
        pieces[piece.key] = piece
        if piece.recording is not None:
            (options.out / f"{piece.key}.mcap").write_bytes(piece.recording)
        meter.done(piece.result.get("error"))
        if "error" not in piece.result and not piece.result["partial"]:
            keep(cache, piece, order)
    meter.close()

    done = [pieces[key] for _, key in bags if key in pieces]
    results = [piece.result for piece in done]
    evaluated = [result for result in results if "error" not in result]
    partial = len(done) < len(bags) or any(result["partial"] for result in evaluated)
    total = overall(evaluated)
    gate = _gate(evaluated, options.expect_equal, len(bags)) if options.expect_equal is not None else None
    report = {
        "command": "oxygen-replay", "time": time.strftime("%Y-%m-%d %H:%M:%S %z"), "config": str(options.config),
        "machine": machine,
        "part": {"start": options.start, "seconds": options.seconds if math.isfinite(options.seconds) else None,
                 "instruction": options.instruction, "latency": options.latency},
        "sides": {side.name: _described(side, options, number) for number, side in enumerate(sides)},
        "partial": partial, "not_reached": [bag for bag, key in bags if key not in pieces],
        "bags": results, "overall": total, "gate": gate,
    }
    # Rows of numbers stay on one line: thousands of actions would be as many lines.
    text = _NUMBERS.sub(lambda row: "[" + " ".join(row[1].split()) + "]", json.dumps(report, indent=1)) + "\n"
    write_whole(options.out / "report.json", text)
    if options.json:
        write_whole(options.json, text)
    sections = [piece.section for piece in done]
    write_whole(options.out / "report.html", page(_about(report, sides), total, results, sections))

    if evaluated:
        print(table(evaluated, total))
    for result in evaluated:
        for line in remarks(result):
            print(on_one_line(f"{Path(result['bag']).name}: {line}"))
    for line in warnings(report, sides):
        print(line)
    print(f"written to {options.out / 'report.html'} and {options.out / 'report.json'}")
    if gate is not None:
        print(on_one_line(f"equal to {options.expect_equal:g}: "
                          + ("yes" if gate["passed"] else f"NO, {gate['reason']}")))
    if stop.wanted:
        return INTERRUPTED
    return 0 if len(evaluated) == len(bags) and (gate is None or gate["passed"]) else 1


def _require_places(options: argparse.Namespace) -> None:
    """Whatever is to be written can be, which is better known before an hour of work. Raises SettingsError."""
    wanted = [("--out", options.out / "report.json"), ("--out", options.out / "report.html"),
              ("--out", options.out / "bags" / "one.json")]
    wanted += [("--json", options.json)] if options.json else []
    for option, file in wanted:
        given = options.json if option == "--json" else options.out
        if file.is_dir():
            raise SettingsError([f"{option} {given}: {file} is a folder, expected a file"])
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=file.parent):
                pass
        except FileExistsError as error:
            raise SettingsError([f"{option} {given}: {error.filename} is a file, expected a folder"]) from error
        except OSError as error:
            raise SettingsError([f"{option} {given} cannot be written: {error.strerror}"]) from error


def _pieces(todo: Sequence[tuple[str, str]], order: Order, sides: Sequence[Side], options: argparse.Namespace,
            stop: _Stop, meter: Meter) -> Iterator[Piece]:
    if not todo:
        return iter(())
    if options.ray:
        return on_cluster(todo, order, options.ray, lambda: not stop.wanted)
    if options.jobs > 1 and len(todo) > 1:
        return side_by_side(todo, order, min(options.jobs, len(todo)), options.out, lambda: not stop.wanted)

    def goes_on(bag: str, done: float) -> bool:
        meter.show(bag, done)
        return not stop.wanted

    return in_turn(todo, order, sides, options.out, goes_on)


def _order(options: argparse.Namespace) -> Order:
    """Raises SettingsError."""
    remaps = {}
    for remap in options.remap:
        name, separator, other = remap.partition(":=")
        if not separator or not name or not other.startswith("/"):
            raise SettingsError([f"--remap is {remap!r}, expected FROM:=/TO"])
        remaps[name] = other
    others = [options.against is not None or options.against_mode != "", options.live is not None]
    if options.expect_equal is not None and not any(others):
        raise SettingsError(["--expect-equal needs a second side: --against YAML, --against-mode MODE or --live FILE"])
    if options.live and (all(others) or len(options.bags) > 1):
        raise SettingsError(["--live is the second side of one bag: give one, and no --against or --against-mode"])
    commands = options.commands if options.commands else NOTHING
    return Order(
        load_settings(options.config), options.mode,
        Names(options.namespace, remaps, options.instruction_topic, commands, options.text),
        Part(options.start, options.seconds, options.instruction, options.latency),
        load_settings(options.against) if options.against else None, options.against_mode,
        Live(options.live, options.live_node) if options.live else None, not options.no_mcap,
    )


def _described(side: Side, options: argparse.Namespace, number: int) -> dict[str, Any]:
    policy, settings = side.policy, side.settings
    return {
        "config": str(options.against if number and options.against else options.config),
        "policy": str(policy.folder), "layout": policy.layout, "trained": policy.trained, "robot": policy.robot.name,
        "mode": (options.against_mode or options.mode) if number else options.mode, "device": settings.device,
        "dtype": settings.dtype, "control_rate": settings.control_rate, "seed": settings.seed,
    }


def _about(report: dict[str, Any], sides: Sequence[Side]) -> dict[str, Any]:
    rows = {
        name: f"{d['policy']} ({d['layout']}), robot {d['robot']}, engine {d['mode']}, {d['dtype']} on {d['device']}, "
        f"{d['control_rate']:g} Hz, seed {d['seed']}, {d['config']}" for name, d in report["sides"].items()
    }
    machine, part = report["machine"], report["part"]
    rows["machine"] = f"{machine['cpu']}, {machine['cores']} cores, torch {machine['torch']}, {machine['device']}"
    if part["start"] or part["seconds"]:
        rows["part"] = f"from {part['start']:g} s" + (f", {part['seconds']:g} s" if part["seconds"] else "")
    if report["gate"]:
        rows["equal"] = "yes" if report["gate"]["passed"] else f"NO: {report['gate']['reason']}"
    return {"time": report["time"], "rows": rows, "warnings": warnings(report, sides)}


def _gate(results: Sequence[dict[str, Any]], limit: float, bags: int) -> dict[str, Any]:
    """Passed only where every bag was compared."""
    for result in results:
        found = result.get("difference")
        reason = "the second side was not reached" if found is None else unequal(found, limit)
        if reason:
            return {"limit": limit, "passed": False, "reason": f"{result['bag']}: {reason}"}
    missing = bags - len(results)
    reason = f"{missing} of {bags} bags {'was' if missing == 1 else 'were'} not evaluated" if missing else None
    return {"limit": limit, "passed": not missing, "reason": reason}


class _Stop:
    """Ctrl-C and SIGTERM ask for the report of what there is; the second one ends at once."""

    def __init__(self) -> None:
        self.wanted = False
        self._before = {number: signal.signal(number, self._ask) for number in _STOP}

    def _ask(self, number: int, frame: object) -> None:
        self.wanted = True
        for again in _STOP:
            signal.signal(again, signal.SIG_DFL)
        print("\noxygen-replay: stopping; the report of what there is comes at once, Ctrl-C again does without it",
              file=sys.stderr, flush=True)

    def restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"expected 0 or more, found {text!r}")
    return value


def _limit(text: str) -> float:
    value = _seconds(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"expected a finite number from 0 on, found {text!r}")
    return value


def _fail(cause: str) -> int:
    say(f"oxygen-replay: {cause}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
