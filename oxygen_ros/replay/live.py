"""`oxygen-replay-live`: a recording played to a running node, what comes out recorded, and that evaluated.

The node runs with use_sim_time; time is the recording's. It is configured and activated from here, at the recording's
first moment, so that its control ticks are those of offline replay.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from std_msgs.msg import String

from ..command_line import CommandLine
from ..msg import ActionChunk, FrameStats, LanguageToken
from ..node.lifecycle_client import LifecycleClient
from ..node.spinner import Spinner
from ..ros_arguments import RosArgumentsError, without_ros_arguments
from ..settings import SettingsError
from .bag import Bag, BagError, in_its_own_time, open_bag
from .main import main as evaluate
from .main import require_readable
from .player import Player
from .writing import Recording

_STOP = (signal.SIGINT, signal.SIGTERM)
_LATCHED = QoSProfile(depth=100, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
OUTPUTS = {
    "action_chunk": (ActionChunk, QoSProfile(depth=1000)),
    "language_tokens": (LanguageToken, QoSProfile(depth=1000)),
    "frame_stats": (FrameStats, QoSProfile(depth=1000, reliability=ReliabilityPolicy.BEST_EFFORT)),
    "utterance": (String, _LATCHED),
    "memory": (LanguageToken, _LATCHED),
    "/diagnostics": (DiagnosticArray, QoSProfile(depth=100)),
}
"""what a node says: topic -> type and how it is heard"""
_TAIL = 1.0  # s in which the last frames end


class LiveError(Exception):
    """The node cannot be played to; the message says why."""


class Recorder(Node):
    """Hears everything that a node says, and writes it at the time of /clock."""

    def __init__(self, target: str, recording: Recording) -> None:
        super().__init__("oxygen_replay_live", parameter_overrides=[Parameter("use_sim_time", value=True)])
        self.count = 0
        self._recording, self._lock = recording, threading.Lock()
        for name, (kind, profile) in OUTPUTS.items():
            topic = name if name.startswith("/") else f"{target}/{name}"
            self.create_subscription(kind, topic, self._hearer(topic, kind), profile, raw=True)

    def _hearer(self, topic: str, kind: type):
        full = f"{kind.__module__.partition('.')[0]}/msg/{kind.__name__}"

        def hear(data: bytes) -> None:
            now_ns = self.get_clock().now().nanoseconds
            if not now_ns:  # before anybody said what time it is
                return
            with self._lock:
                self._recording.write_raw(topic, full, now_ns, bytes(data))
                self.count += 1

        return hear

    def close(self) -> None:
        with self._lock:
            self._recording.close()


def play(bag: Bag, target: str, out: Path, *, rate: float, start: float, clock: float, stop: threading.Event) -> int:
    """Play to the node and record it. Returns how many messages were recorded. Raises LiveError, BagError."""
    with out.open("wb") as file:
        recorder = Recorder(target, Recording(file))
        teller = rclpy.create_node("oxygen_replay_player")
        executor = SingleThreadedExecutor()
        executor.add_node(recorder)
        spinner = Spinner(executor)
        try:
            its_own = [n for n in bag.topics if n.startswith(f"{target}/") or n in ("/diagnostics", "/rosout")]
            player = Player(teller, bag, exclude=its_own, rate=rate, start=start, clock=clock)
            lifecycle = LifecycleClient(recorder, target)
            _bring_up(lifecycle, recorder, player, bag.start_ns + round(start * 1e9), stop)
            if not stop.is_set():
                player.play(stop)
                player.finish(2.0)
                stop.wait(_TAIL)
            lifecycle.change("deactivate")
            stop.wait(0.2)
        except TimeoutError as error:
            raise LiveError(str(error)) from error
        finally:
            spinner.stop()
            recorder.close()
            recorder.destroy_node()
            teller.destroy_node()
        return recorder.count


def _bring_up(lifecycle: LifecycleClient, recorder: Recorder, player: Player, first_ns: int, stop: threading.Event
              ) -> None:
    """Activate the node when its clock, which is ours, shows the recording's first moment."""
    if lifecycle.state(timeout=30.0) == "unconfigured" and not lifecycle.change("configure"):
        raise LiveError("the node cannot be configured; its log says why")
    end = time.monotonic() + 20.0
    while recorder.get_clock().now().nanoseconds != first_ns:
        if time.monotonic() > end:
            raise LiveError("nobody hears /clock after 20 s")
        player.tell_time(first_ns)
        if stop.wait(0.1):
            return
    for _ in range(5):  # the node may have found the clock later than we did
        player.tell_time(first_ns)
        stop.wait(0.1)
    if not lifecycle.change("activate"):
        raise LiveError("the node cannot be activated; its log says why")


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv if arguments is None else ["oxygen-replay-live", *arguments]
    parser = CommandLine(
        prog="oxygen-replay-live", description="Play a recording with its own time (/clock) to a node that runs with "
        "use_sim_time, record what it says, and evaluate that beside offline replay. Configures and activates the "
        "node. What is not listed here goes to oxygen-replay.",
    )
    parser.add_argument("bag", help="recording, as for oxygen-replay")
    parser.add_argument("--node", default="/oxygen", help="full name of the node (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/replay_live"),
                        help="folder to write to (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=1.0, help="times real time (default: %(default)s)")
    parser.add_argument("--start", type=float, default=0.0, metavar="S", help="seconds to leave out (default: 0)")
    parser.add_argument("--clock", type=float, default=100.0, metavar="HZ", help="of /clock (default: %(default)s)")
    try:
        options, further = parser.parse_known_args(without_ros_arguments(arguments)[1:])
        if not options.rate > 0 or not options.start >= 0 or not 1 <= options.clock <= 10_000:
            parser.error("expected --rate above 0, --start from 0 on, --clock from 1 to 10000")
        bag = in_its_own_time(open_bag(options.bag))
        said = options.out / "said.mcap"
        evaluation = [str(bag.path), "--out", str(options.out), "--start", str(options.start), "--live", str(said),
                      "--live-node", options.node, *further]
        require_readable(evaluation)  # rather than after the whole recording
        options.out.mkdir(parents=True, exist_ok=True)
    except (RosArgumentsError, SettingsError, BagError, OSError) as error:
        return _fail(str(error))

    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in _STOP}
    rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
    try:
        print(f"playing {bag.path} to {options.node}: {bag.duration - options.start:.1f} s", flush=True)
        count = play(bag, options.node, said, rate=options.rate, start=options.start, clock=options.clock, stop=stop)
    except (LiveError, BagError) as error:
        return _fail(str(error))
    finally:
        rclpy.shutdown()
        for number, handler in before.items():
            signal.signal(number, handler)
    print(f"{count} messages of the node are in {said}", flush=True)
    code = evaluate(evaluation)
    return 130 if stop.is_set() else code


def _fail(cause: str) -> int:
    print(f"oxygen-replay-live: {cause}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
