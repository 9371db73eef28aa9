"""`oxygen-demo`: the main job, seen from outside: a recorded robot, the node, an independent listener."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.node import Node
from sensor_msgs.msg import JointState

from .children import child_process, end_on_signals, keep_to_ourselves, last_error
from .command_line import CommandLine, whole
from .msg import ActionChunk, FrameStats, Instruction, LanguageToken
from .node import qos
from .node.lifecycle_client import LifecycleClient, wait_until
from .node.spinner import spinning
from .parameter_file import load_settings
from .places import resolve
from .replay.bag import BagError, open_bag
from .settings import SettingsError
from .stamps import nanoseconds

TASK = "transfer the cube"
QUESTIONS = ((101, 2.0, "where is the red cube?"), (102, 2.15, "what is the robot doing?"))
"""request id, seconds after the instruction, text; the first is still being answered when the second comes"""
ANSWER_TOKENS = 96
NODE = "/oxygen"


class DemoError(Exception):
    """The demo cannot go on; the message says why."""


@dataclass
class Heard:
    """What came over DDS."""

    chunks: list[ActionChunk] = field(default_factory=list)
    chunk_times: list[float] = field(default_factory=list)
    stats: list[FrameStats] = field(default_factory=list)
    tokens: list[LanguageToken] = field(default_factory=list)
    token_times: list[float] = field(default_factory=list)
    commands: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    inputs_seen: bool = False
    texts: dict[int, str] = field(default_factory=dict)
    weights: str = ""


class Listener(Node):
    """Subscribes to everything the node says and to the recorded commands, and sends instructions."""

    def __init__(self, heard: Heard) -> None:
        super().__init__("oxygen_demo")
        self.heard = heard
        self._instructions = self.create_publisher(Instruction, "instruction", qos.INSTRUCTION_LATCHED)
        self.create_subscription(ActionChunk, f"{NODE}/action_chunk", self._chunk, qos.action_chunk(0.0, 0.0))
        self.create_subscription(LanguageToken, f"{NODE}/language_tokens", self._token, qos.LANGUAGE_TOKENS)
        self.create_subscription(FrameStats, f"{NODE}/frame_stats", self.heard.stats.append, qos.FRAME_STATS)
        self.create_subscription(DiagnosticArray, "/diagnostics", self._diagnostics, qos.DIAGNOSTICS)
        self.create_subscription(JointState, "joint_commands", self._command, 100)

    def tell(self, task: int, text: str, request_id: int = 0) -> None:
        self._instructions.publish(Instruction(id=request_id, task=task, text=text, max_tokens=ANSWER_TOKENS))

    def _chunk(self, message: ActionChunk) -> None:
        self.heard.chunk_times.append(time.monotonic())
        self.heard.chunks.append(message)

    def _token(self, message: LanguageToken) -> None:
        self.heard.token_times.append(time.monotonic())
        self.heard.tokens.append(message)
        self.heard.texts[message.request_id] = self.heard.texts.get(message.request_id, "") + message.text

    def _command(self, message: JointState) -> None:
        self.heard.commands.append((nanoseconds(message.header.stamp), dict(zip(message.name, message.position))))

    def _diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            values = {value.key: value.value for value in status.values}
            if status.name == f"{NODE}: engine":
                self.heard.weights = values.get("weights", self.heard.weights)
            elif status.name == f"{NODE}: inputs":
                counts = [int(value) for key, value in values.items() if key.endswith(" received")]
                self.heard.inputs_seen = bool(counts) and all(counts)


def action_error(chunks: list[ActionChunk], commands: list[tuple[int, dict[str, float]]]) -> float | None:
    """Mean absolute difference between each action and the command recorded for the moment it is due.

    In the robot's units (radians, and metres for grippers), over all dimensions; None without a common moment.
    """
    if not chunks or not commands:
        return None
    stamps = np.array([stamp for stamp, _ in commands])
    differences = []
    for chunk in chunks:
        start, step = nanoseconds(chunk.start), nanoseconds(chunk.step_dt)
        actions = np.array(chunk.data, np.float32).reshape(chunk.horizon, chunk.action_dim)
        for row, action in enumerate(actions):
            index = int(np.searchsorted(stamps, start + row * step, side="right")) - 1
            if index < 0 or start + row * step - stamps[index] > 2 * step:
                continue
            command = commands[index][1]
            differences.append([abs(action[dim] - command[name]) for dim, name in enumerate(chunk.names)])
    return float(np.mean(differences)) if differences else None


def summarize(heard: Heard) -> dict:
    """The numbers of `summary.json`. Rates are over the time between the first and the last chunk (token)."""
    frames = [s for s in heard.stats if s.denoise > 0]
    span = heard.chunk_times[-1] - heard.chunk_times[0] if len(heard.chunk_times) > 1 else None
    rate = (len(heard.chunks) - 1) / span if span else None
    said = [t for t, token in zip(heard.token_times, heard.tokens) if token.token_id >= 0]
    latency = np.array([s.first_chunk_latency for s in frames])
    finished = (LanguageToken.END_OF_TEXT, LanguageToken.LENGTH)
    return {
        "frames": len(frames),
        "chunks_received": len(heard.chunks),
        "chunk_rate_hz": rate,
        "action_rate_hz": rate and rate * heard.chunks[0].horizon,
        "first_chunk_latency_s": {
            name: float(np.percentile(latency, q)) if len(latency) else None for name, q in (("p50", 50), ("p99", 99))
        },
        "deadline_misses": heard.stats[-1].deadline_misses if heard.stats else None,
        "tokens_received": len(said),
        "tokens_per_s": len(said) / (said[-1] - said[0]) if len(said) > 1 else None,
        "requests_completed": sum(t.last and t.finish_reason in finished for t in heard.tokens),
        "stale_inputs": heard.stats[-1].stale_inputs if heard.stats else None,
        "weights": heard.weights or None,
        "action_mae": action_error(heard.chunks, heard.commands),
    }


def table(summary: dict) -> str:
    rows = []
    for key, value in summary.items():
        shown = ", ".join(f"{k} {_number(v)}" for k, v in value.items()) if isinstance(value, dict) else _number(value)
        rows.append(f"  {key:<24}{shown}")
    return "\n".join(rows)


def _number(value: object) -> str:
    return "not measured" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def run(config: Path, bag_path: Path, out: Path, times: int, heard: Heard) -> None:
    """Play the bag to a node in another process and listen. Raises DemoError, BagError or SettingsError."""
    settings, bag = load_settings(config), open_bag(bag_path)
    topics = ["/" + settings.topic_of(name).removeprefix("/") for name in settings.cameras]
    missing = [topic for topic in topics if topic not in bag.topics]
    if missing:
        raise DemoError(f"{bag.path} has no {', '.join(missing)}, which {config} names; it has {', '.join(bag.topics)}")
    module = [sys.executable, "-m"]
    node_command = [*module, "oxygen_ros.node.main", "--ros-args", "--params-file", str(config)]
    play_command = [*module, "oxygen_ros.replay.player", str(bag.path), "--restamp", "--times", str(times),
                    "--exclude", "/instruction", "--wait", *topics]
    with child_process(node_command, out / "node.log") as node, spinning(lambda: Listener(heard)) as listener:
        lifecycle = LifecycleClient(listener, NODE, alive=lambda: node.poll() is None)
        for transition in ("configure", "activate"):
            print(f"{transition} {NODE} ...", flush=True)
            try:
                done = lifecycle.change(transition)
            except TimeoutError as error:
                raise DemoError(f"{transition}: {error}; {last_error(out / 'node.log')}") from error
            if not done:
                raise DemoError(f"{transition} failed: {last_error(out / 'node.log')}")
        with child_process(play_command, out / "player.log") as player:
            ready = wait_until(lambda: listener.heard.inputs_seen or player.poll() is not None, timeout=40.0)
            if not ready or player.poll() is not None:
                raise DemoError(f"the node hears no cameras or joints: {last_error(out / 'player.log')}")
            _converse(listener, node, player, round(times * bag.duration * 1e9))
            # Before the player goes, which takes a while: silence after the end is nothing that the node missed.
            lifecycle.change("deactivate")
        wait_until(lambda: bool(heard.weights), timeout=3.0)


def _converse(listener: Listener, node: subprocess.Popen, player: subprocess.Popen, length_ns: int) -> None:
    """Give the task, ask the questions, and show what comes until the recording of `length_ns` ends."""
    listener.tell(Instruction.ACT, TASK)
    print(f'instruction: "{TASK}"', flush=True)
    started, open_questions, heard = time.monotonic(), list(QUESTIONS), listener.heard
    shown, told = 0.0, 0
    while player.poll() is None and not (heard.commands and time.time_ns() > heard.commands[0][0] + length_ns):
        if node.poll() is not None:
            raise DemoError(f"the node ended by itself with {node.returncode}")
        elapsed = time.monotonic() - started
        if open_questions and elapsed >= open_questions[0][1]:
            request_id, _, text = open_questions.pop(0)
            listener.tell(Instruction.ASK, text, request_id)
            _below(f'question {request_id}: "{text}"')
        if elapsed - shown >= (0.2 if sys.stdout.isatty() else 1.0):
            count = len(heard.tokens)
            _show(elapsed, heard, news=count > told)
            shown, told = elapsed, count
        time.sleep(0.02)
    _below("")


def _below(line: str) -> None:
    """Under the line that a terminal overwrites."""
    print(("\n" if sys.stdout.isatty() else "") + line, flush=True)


def _show(elapsed: float, heard: Heard, news: bool) -> None:
    """news: whether there are tokens that have not been shown; without, only a terminal is told the texts again."""
    recent = sum(t > time.monotonic() - 1.0 for t in heard.chunk_times[-200:])
    slack = f"{heard.stats[-1].slack * 1e3:4.0f} ms" if heard.stats else "  -   "
    texts = "  ".join(f"{i}: {_printable(text)}" for i, text in sorted(heard.texts.items()))
    line = f"{elapsed:5.1f} s  {recent:3d} chunks/s  slack {slack}  {len(heard.tokens):4d} tokens"
    if sys.stdout.isatty():
        print("\r\033[K" + f"{line}  {texts}"[: shutil.get_terminal_size().columns - 1], end="", flush=True)
    else:
        print(f"{line}  {texts}" if news else line, flush=True)


def _printable(text: str, width: int = 28) -> str:
    """The end of a text, on one line whatever it holds."""
    flat = "".join(c if c.isprintable() else " " for c in text)
    return flat if len(flat) <= width else "..." + flat[-width:]


def main(arguments: list[str] | None = None) -> int:
    parser = CommandLine(
        prog="oxygen-demo", description="Play the sample bag to the node over DDS, give it a task and two questions, "
        "and listen: chunks, tokens, timing. Writes summary.json and the children's logs to --out.",
    )
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder to write to (default: %(default)s)")
    parser.add_argument("--config", type=Path, default=resolve("package://oxygen_ros/config/aloha.yaml"),
                        help="parameter file of the node (default: the package's aloha.yaml)")
    parser.add_argument("--bag", type=Path, default=resolve("package://oxygen_ros/resource/aloha_transfer_cube.mcap"),
                        help="recording to play (default: the package's sample)")
    parser.add_argument("--times", type=whole(1), default=2, metavar="N",
                        help="how often to play it (default: %(default)s)")
    options = parser.parse_args(arguments)
    keep_to_ourselves()
    end_on_signals()
    heard = Heard()
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        run(options.config, options.bag, options.out, options.times, heard)
    except (DemoError, BagError, SettingsError, TimeoutError) as error:
        print(f"oxygen-demo: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"oxygen-demo: --out {options.out}: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\noxygen-demo: interrupted; no summary.json is written, this is what came until then", file=sys.stderr)
        print(table(summarize(heard)))
        return 130
    summary = summarize(heard)
    file = options.out / "summary.json"
    file.write_text(json.dumps(summary, indent=2) + "\n")
    print(table(summary))
    if summary["weights"] == "random":
        print("The policy's weights are random: timing and data flow are real, its actions and words mean nothing.")
    print(f"written to {file}")
    return 0 if summary["chunks_received"] else 1


if __name__ == "__main__":
    sys.exit(main())
