"""`oxygen-soak`: the node in a process of its own, a robot whose sensors fail in turn, what was promised."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import rclpy
from sensor_msgs.msg import CompressedImage, JointState

from ..children import child_process, end_on_signals, keep_to_ourselves, last_error, signals_held_back
from ..command_line import CommandLine
from ..msg import Instruction
from ..node.lifecycle_client import LifecycleClient, wait_until
from ..node.spinner import spinning
from ..places import resolve
from ..replay.bag import BagError, open_bag
from ..ros_arguments import as_arguments
from ..stamps import nanoseconds
from .faults import FAULTS, PER_SECOND, Fault
from .ledger import Allowed, Ledger
from .robot import RATE, Robot

NODE = "/oxygen"
NEEDED, OPTIONAL, KILLED = (f"/cam_{name}/image_raw/compressed" for name in ("high", "right_wrist", "left_wrist"))
JOINTS = "/joint_states"
LIMITS = {JOINTS: 0.2}  # config/aloha.yaml; cameras have the default
CAMERA_LIMIT = 0.5
PERIOD = 0.2
LASTS, CALM = 3.0, 1.0  # s of a fault, and between two
PATIENCE = 10.0  # s until chunks must be back
GROWTH = 24  # MiB that the node's memory may vary once it is warm
ALLOWED = {"left_waist": Allowed(-0.5, 0.5, 2.0), "right_elbow": Allowed(0.5, 1.5, 1.0)}
PARAMETERS = {
    "control_rate": 1 / PERIOD, "chunk_continuity": "rtc", "joint_trajectory": "true", "seed": 1,
    "camera.cam_right_wrist.optional": "true",
    **{f"camera.{name}.frozen_after": 10 for name in ("cam_high", "cam_left_wrist", "cam_right_wrist")},
    **{f"action_limits.{name}": f"[{may.low}, {may.high}]" for name, may in ALLOWED.items()},
    **{f"rate_limits.{name}": may.rate for name, may in ALLOWED.items()},
}


class SoakError(Exception):
    """The soak cannot begin; the message says why."""


@dataclass
class Tally:
    """One fault: how often it was made, counted on /diagnostics, named there, and recovered from."""

    made: int = 0
    counted: int = 0
    named: int = 0
    recovered: int = 0


@dataclass
class Result:
    """What `--json` holds, but for what the ledger adds. memory_mib, threads: of the node, [seconds, value]."""

    seconds: float = 0.0
    state: str = "unknown"
    faults: dict[str, Tally] = field(default_factory=dict)
    memory_mib: list[tuple[float, float]] = field(default_factory=list)
    threads: list[tuple[float, int]] = field(default_factory=list)
    stops: int = 0


class Camera:
    """The camera that can be killed: a process of its own."""

    def __init__(self, log: Path) -> None:
        bag = str(resolve("package://oxygen_ros/resource/aloha_transfer_cube.mcap"))
        others = [topic for topic in open_bag(bag).topics if topic != KILLED]
        module = [sys.executable, "-m", "oxygen_ros.replay.player"]
        self._command = [*module, bag, "--restamp", "--times", "0", "--exclude", *others]
        self._log = log
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        with self._log.open("a") as log, signals_held_back():
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Soak:
    """One run. `broken` are lines of the ledger."""

    def __init__(self, node: rclpy.node.Node, process: subprocess.Popen, camera: Camera, chosen: list[Fault],
                 seed: int) -> None:
        self.result = Result(faults={fault.name: Tally() for fault in chosen})
        self.ledger = Ledger(node, NODE, ALLOWED)
        self.lifecycle = LifecycleClient(node, NODE, alive=lambda: process.poll() is None)
        bag = open_bag(resolve("package://oxygen_ros/resource/aloha_transfer_cube.mcap"))
        self._robot = Robot(node, bag, {NEEDED: CompressedImage, OPTIONAL: CompressedImage, JOINTS: JointState})
        self._node, self._process, self._camera = node, process, camera
        self._chosen, self._dice = chosen, random.Random(seed)
        self._ids, self._began = iter(range(1, 1 << 40)), time.monotonic()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    @property
    def _alive(self) -> bool:
        return self._process.poll() is None

    def run(self, seconds: float) -> None:
        """Faults in turn until the time is over; each is made once at least. Raises SoakError."""
        for transition in ("configure", "activate"):
            if not self.lifecycle.change(transition):
                raise SoakError(f"{transition} failed")
        self._camera.start()
        self._robot.start()
        if not wait_until(self.ledger.heard_by_node, PATIENCE):
            raise SoakError("the node does not listen to instructions")
        self.ledger.act("transfer the cube", next(self._ids))
        if not wait_until(lambda: self.ledger.chunks > 5, 40.0):
            raise SoakError("no chunks although all is well")
        self._began = time.monotonic()
        first = True
        while self._alive and (first or self.elapsed < seconds):
            for fault in self._dice.sample(self._chosen, len(self._chosen)):
                if self._alive and (first or self.elapsed < seconds):
                    self._episode(fault)
            if self._alive:
                self._stop_and_go()
            first = False
        self._conclude()

    def close(self) -> None:
        self.result.seconds = self.elapsed
        self._robot.stop()
        self._camera.kill()

    def _episode(self, fault: Fault) -> None:
        topic = JOINTS if fault.joints else KILLED if fault.make is None else self._dice.choice((NEEDED, OPTIONAL))
        tally, key = self.result.faults[fault.name], f"{topic} {fault.counter}"
        self._talk()
        before = 0 if fault.counter == PER_SECOND else self._count(key)
        self.ledger.listen_for()
        chunks, masked = self.ledger.chunks, self.ledger.stats.masked_frames
        allowed = None
        if fault.stops and topic != OPTIONAL:
            limit = LIMITS.get(topic, CAMERA_LIMIT) + PERIOD
            allowed = self.ledger.forbid(self._now(), limit, f"{topic} was {fault.name}")
        self._begin(topic, fault)
        time.sleep(LASTS)
        if not self._alive:
            return
        went_on = self.ledger.chunks > chunks + 2
        if allowed:
            allowed()
        self._end(topic, fault)
        tally.made += 1
        ended, was = self._now(), self.ledger.chunks
        back = wait_until(lambda: self.ledger.chunks > was and self._last_stamp() > ended, PATIENCE)
        took = (self._now() - ended) / 1e9
        tally.recovered += back
        if not back:
            self.ledger.broken.append(f"no chunk {PATIENCE:g} s after {topic} was {fault.name}")
        if not (fault.stops and topic != OPTIONAL) and not went_on:
            self.ledger.broken.append(f"chunks stopped although {topic} was only {fault.name}")
        time.sleep(CALM)
        report = self.ledger.reports
        wait_until(lambda: self.ledger.reports > report, PATIENCE)
        counted = self._fewer(key) if fault.counter == PER_SECOND else self._count(key) - before
        named = not fault.said or any(topic in said and fault.said in said for said in self.ledger.said)
        tally.counted, tally.named = tally.counted + (counted > 0), tally.named + named
        if counted <= 0:
            self.ledger.broken.append(f"{topic} was {fault.name}, but '{fault.counter}' does not show it")
        if not named:
            self.ledger.broken.append(f"{topic} was {fault.name}, but /diagnostics said {self.ledger.said[-1:]}")
        if fault.stops and topic == OPTIONAL and self.ledger.stats.masked_frames <= masked:
            self.ledger.broken.append(f"{topic} was {fault.name}, but no frame went on without it")
        if not self._alive:
            return
        self._measure()
        _say(f"{self.elapsed:6.0f} s  {fault.name + ' ' + topic:<55} counted {counted:3d}, chunks again after "
             f"{took:.2f} s, {self.result.memory_mib[-1][1]:.0f} MiB")

    def _begin(self, topic: str, fault: Fault) -> None:
        if fault.make is None:
            self._camera.kill()
        else:
            self._robot.suffer(topic, fault)

    def _end(self, topic: str, fault: Fault) -> None:
        if fault.make is None:
            self._camera.start()
        else:
            self._robot.recover(topic)

    def _talk(self) -> None:
        """Questions of every kind, some of which are taken back, some of which cannot be served."""
        question, caption, greedy, cancelled = (next(self._ids) for _ in range(4))
        self.ledger.ask(Instruction.ASK, question, "where is the cube?", self._dice.randint(1, 40))
        self.ledger.ask(Instruction.REMEMBER, caption, "", self._dice.randint(1, 40))
        self.ledger.ask(Instruction.ASK, greedy, "what do you see?", 100_000)
        self.ledger.ask(Instruction.ASK, cancelled, "why?", 100)
        self.ledger.cancel(cancelled)

    def _stop_and_go(self) -> None:
        number, sent = next(self._ids), time.monotonic()
        self.ledger.stop(number)
        if wait_until(lambda: self.ledger.hold is not None, 2.0):
            took = time.monotonic() - sent
            if took > PERIOD + 0.5:
                self.ledger.broken.append(f"STOP {number} was obeyed after {took:.2f} s, the period is {PERIOD:g} s")
        else:
            self.ledger.broken.append(f"STOP {number} was not answered with a hold")
        time.sleep(CALM)
        self.result.stops += 1
        chunks = self.ledger.chunks
        self.ledger.act("transfer the cube", next(self._ids))
        if not wait_until(lambda: self.ledger.chunks > chunks, PATIENCE):
            self.ledger.broken.append("no chunk after a new instruction")

    def _conclude(self) -> None:
        ledger = self.ledger
        if not self._alive:
            self.result.state = "gone"
            ledger.broken.append(f"the node's process ended within {self.elapsed:.0f} s")
            return
        if not wait_until(lambda: not ledger.unanswered(), 30.0):
            ledger.broken.append(f"requests without a last token: {ledger.unanswered()}")
        if not wait_until(lambda: not ledger.unspoken(), PATIENCE):
            ledger.broken.append(f"answers and captions that ended, but were not told as a whole: {ledger.unspoken()}")
        self.result.state = self.lifecycle.state()
        if self.result.state != "active":
            ledger.broken.append(f"the node is {self.result.state}, not active")
        for message, times in ledger.errors.items():
            ledger.broken.append(f"/diagnostics said {times} times at level ERROR: {message}")
        grown = growth(self.result.memory_mib)
        if grown > GROWTH:
            ledger.broken.append(f"the node's memory grew by {grown:.0f} MiB, {GROWTH} are allowed")
        half = self.result.threads[len(self.result.threads) // 2 :]
        if half and half[-1][1] > half[0][1] + 1:
            ledger.broken.append(f"the node's threads grew from {half[0][1]} to {half[-1][1]}")

    def _measure(self) -> None:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines())
        self.result.memory_mib.append((round(self.elapsed, 1), int(status["VmRSS"].split()[0]) / 1024))
        self.result.threads.append((round(self.elapsed, 1), int(status["Threads"])))

    def _fewer(self, key: str) -> int:
        """Messages a second that a report said were missing, more than half of all; else 0."""
        lowest = min(float(values[key]) for values in self.ledger.told)
        return round(RATE - lowest) if lowest < RATE / 2 else 0

    def _count(self, key: str) -> int:
        return int(self.ledger.values.get(key, 0))

    def _last_stamp(self) -> int:
        return nanoseconds(self.ledger.last_chunk.header.stamp)

    def _now(self) -> int:
        return self._node.get_clock().now().nanoseconds


def growth(memory: list[tuple[float, float]]) -> float:
    """MiB from the highest of the second quarter to the highest of the last one; the first is for warming up."""
    values, quarter = [value for _, value in memory], len(memory) // 4
    return max(values[-quarter:]) - max(values[quarter : 2 * quarter]) if quarter else 0.0


def _say(line: str) -> None:
    print(line, flush=True)


def _chosen(names: list[str]) -> list[Fault]:
    if names == ["all"]:
        return list(FAULTS.values())
    unknown = [name for name in names if name not in FAULTS]
    if unknown:
        raise SoakError(f"--faults {', '.join(unknown)} is not known; there are all, {', '.join(FAULTS)}")
    return [FAULTS[name] for name in names]


def main(arguments: list[str] | None = None) -> int:
    parser = CommandLine(
        prog="oxygen-soak", description="Run the node on the embedded policy while its cameras and joints fail in "
        "turn, and while it is asked, told and stopped. Whatever it promised and did not keep is listed, and makes "
        "exit 1: it stays active, every request ends with a last token, every fault is counted and named, no chunk is "
        "made of bad data or leaves its limits, STOP and ACT are obeyed, chunks come back, memory stays.",
    )
    parser.add_argument("--seconds", type=float, default=120.0, metavar="S",
                        help="at least so long; each fault is made once all the same (default: %(default)g)")
    parser.add_argument("--faults", default="all", help=f"all, or some, with commas: {', '.join(FAULTS)}")
    parser.add_argument("--seed", type=int, default=0, help="of the faults' order (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/soak"), help="folder of the logs (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")
    options = parser.parse_args(arguments)
    keep_to_ourselves()
    end_on_signals()
    soak, partial = None, False
    log = options.out / "node.log"
    try:
        chosen = _chosen([name.strip() for name in options.faults.split(",")])
        options.out.mkdir(parents=True, exist_ok=True)
        with child_process(_node_command(), log) as process, spinning(lambda: rclpy.create_node("oxygen_soak")) as node:
            soak = Soak(node, process, Camera(options.out / "camera.log"), chosen, options.seed)
            try:
                soak.run(options.seconds)
            finally:
                soak.close()
    except (SoakError, BagError, TimeoutError, OSError) as error:
        why = f"; {last_error(log)}" if log.is_file() and soak is not None else ""
        print(f"oxygen-soak: {error}{why}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\noxygen-soak: interrupted; this is what came until then", file=sys.stderr)
        partial = True
    if soak is None:
        return 130
    broken = soak.ledger.broken
    if not partial and process.returncode != 0:
        broken.append(f"the node ended with {process.returncode}")
    if "Traceback" in log.read_text():
        broken.append(f"a traceback in {log}")
    report = {
        **asdict(soak.result), "partial": partial, "chunks": soak.ledger.chunks, "language": dict(soak.ledger.counts),
        "memory_growth_mib": growth(soak.result.memory_mib), "broken": broken,
    }
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    _summarize(report)
    return 130 if partial else 1 if broken else 0


def _node_command() -> list[str]:
    config = resolve("package://oxygen_ros/config/aloha.yaml")
    return [sys.executable, "-m", "oxygen_ros.node.main", "--ros-args", "--params-file", str(config),
            *as_arguments(PARAMETERS)]


def _summarize(report: dict) -> None:
    print(f"{'fault':<20} made counted named recovered")
    for name, tally in report["faults"].items():
        print(f"{name:<20} {tally['made']:4d} {tally['counted']:7d} {tally['named']:5d} {tally['recovered']:9d}")
    said = ", ".join(f"{name} {count}" for name, count in report["language"].items())
    ended = "interrupted" if report["partial"] else f"the node is {report['state']}"
    print(f"{report['seconds']:.0f} s, {report['chunks']} chunks, memory grew by "
          f"{report['memory_growth_mib']:.1f} MiB, {ended}")
    print(f"language: {said}")
    for line in report["broken"]:
        print(f"BROKEN: {line}")
    print("every promise was kept" if not report["broken"] else f"{len(report['broken'])} promises were broken")


if __name__ == "__main__":
    sys.exit(main())
