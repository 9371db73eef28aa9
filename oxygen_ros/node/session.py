"""Everything that exists between configure and cleanup: policy, topics, the frame loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

from rclpy.clock import Clock as RosClock
from rclpy.clock import ClockType
from rclpy.duration import Duration
from rclpy.lifecycle import LifecycleNodeMixin
from rclpy.qos import QoSProfile
from rclpy.subscription import Subscription
from rosgraph_msgs.msg import Clock as ClockMessage
from sensor_msgs.msg import JointState

from .. import msg
from ..engine import outputs
from ..frames import Frames, Tick
from ..instructions import Instruction, Instructions
from ..policy import Policy, load_policy
from ..robot_inputs import Feed, robot_inputs
from ..settings import Settings, SettingsError
from ..source import SIMULATED, Clock, Now, Source
from ..speech import Speech
from . import bond, graph, messages, qos
from .endpoints import Endpoints
from .frame_loop import FrameLoop
from .publishers import Publishers
from .sampling import Ahead, Sample
from .throttle import Throttle

_WARNING = "warning: "
_GRAPH_PERIOD = 3.0  # s; one question about every endpoint takes longer than all the rest of a report


class Session:
    """A configured node. The network is loaded and warm; `activate` starts frames, `deactivate` ends them."""

    def __init__(self, node: LifecycleNodeMixin, settings: Settings, qos_overrides: Sequence[str],
                 reading: Callable[[int, int], None], broken: Callable[[Exception], None], numbers: Iterator[int]
                 ) -> None:
        """qos_overrides: names of those that somebody gave. broken: is given what ends all frames. numbers: as of
        Frames.

        Raises SettingsError and whatever `load_policy` raises; nothing is left behind then."""
        self.settings = settings
        self.warnings: list[str] = []
        self._node, self._log, self._throttle = node, node.get_logger(), Throttle()
        self._broken, self._numbers = broken, numbers
        if settings.bond_heartbeat_period:
            bond.status_type()  # before minutes of loading
        self.policy: Policy = load_policy(settings, self._note, reading)
        self.refused_instructions, self.last_refusal = 0, ""
        self._timing = threading.RLock()
        self.activated = 0.0  # time.monotonic
        self._ticking = False
        self._graph_due, self._graph_problems = 0.0, list[str]()
        self._endpoints = Endpoints(node, self._throttle)
        self.loop = FrameLoop(lambda tick: self.frames.make(tick), broken, lambda due: self.frames.prepare(due))
        try:
            # In the thread that will make the real ones, and before anybody can ask something.
            self.loop.run(lambda: self.policy.rehearse(settings.cameras))
            self._build()
            if strange := self._endpoints.strange_overrides(qos_overrides):
                raise SettingsError(strange)
        except Exception:
            self.loop.close()
            self._endpoints.close()
            raise

    def _build(self) -> None:
        pipeline, engine = self.policy.pipeline, self.policy.engine
        publishers = Publishers(self._endpoints, self.settings, self.policy.robot)
        self._tokens = publishers.tokens
        self.speech = Speech(
            pipeline.tokenizer, token=publishers.token, utterance=publishers.utterance, memory=publishers.memory,
            stop=lambda: self.settings.language.stop,
        )
        self.instructions = Instructions(
            pipeline, engine, lambda: self.settings.language, messages.instruction,
            reject=self.speech.refuse, complain=self._complain, info=self._log.info,
            warn=lambda text: self._warn("instruction", text), seed=self.settings.seed,
            halt=self._halt,
        )
        self.inputs = robot_inputs(
            self.settings, self.policy.robot.joints, Feed("joint_states", messages.joint_state),
            {name: self._camera(name) for name in self.settings.cameras},
        )
        self._go_by(self._simulated())
        self.frames = Frames(
            self.policy, lambda: self.settings, self.inputs, self.instructions, publishers,
            say=self._say, now=self._now, misses=lambda: self.loop.misses, warn=self._warn, error=self._error,
            numbers=self._numbers,
        )
        self._subscribe()
        period = self.settings.bond_heartbeat_period
        self._bond = bond.Bond(self._node, self._endpoints, period) if period else None

    # Life

    def activate(self) -> None:
        """Begin to make frames, from data that arrives from now on."""
        self.activated = time.monotonic()
        self.inputs.clear()
        self.frames.begin()
        self.instructions.interrupt()
        if self.instructions.task is None and self.settings.instruction:
            self.instructions.obey(Instruction(text=self.settings.instruction))
        self.loop.start()
        self._tick(True)
        if self._bond is not None:
            self._bond.form()

    def deactivate(self) -> None:
        """End after the frame in flight; language requests end with a last token (CANCELLED)."""
        self._tick(False)
        self.loop.stop()
        for token in self.policy.engine.drain("the node was deactivated"):
            self._say(token)
        if self._bond is not None:
            self._bond.part()

    def close(self) -> None:
        """Give everything back. The session cannot be used again."""
        self.deactivate()
        self.loop.close()
        # Destroying a publisher forgets what its subscribers have not acknowledged yet.
        self._tokens.wait_for_all_acked(Duration(seconds=0.5))
        self._endpoints.close()

    def use(self, settings: Settings) -> None:
        """Take settings that differ from the present ones in live parameters only."""
        before, self.settings = self.settings, settings
        for name, camera in self.inputs.cameras.items():
            camera.max_age, camera.frozen_after = settings.camera[name].max_age, settings.camera[name].frozen_after
        self.inputs.joints.max_age, self.inputs.skew = settings.joint_state_max_age, settings.camera_skew
        clock_changed = self._simulated() != self._by_simulation
        self._go_by(self._simulated())
        self.policy.use(settings)
        with self._timing:  # a deactivate just now would else be followed by ticks
            if (clock_changed or settings.control_rate != before.control_rate) and self._ticking:
                self._tick(True)

    def graph_problems(self) -> list[str]:
        """What the ROS graph says against our subscriptions, a line each; it is asked now and then."""
        now = time.monotonic()
        if now >= self._graph_due:
            self._graph_due, self._graph_problems = now + _GRAPH_PERIOD, self._ask_graph()
        return self._graph_problems

    def _ask_graph(self) -> list[str]:
        publishers_of = cache(self._node.get_publishers_info_by_topic)
        means = {(camera.topic_name, camera.msg_type): "frames see now one's picture, now the other's"
                 for camera in self._cameras}
        means[self._joints.topic_name, JointState] = "where they tell of the same joint, the last one to speak counts"
        if self._by_simulation:
            means[self._node.resolve_topic_name("/clock"), ClockMessage] = "time jumps from the one's to the other's"
        rivals = [line for (topic, kind), then in means.items()
                  for line in graph.rivals(publishers_of, topic, kind, then)]
        return (graph.deaf(publishers_of, self._judged) + graph.unheard(self._node, self._endpoints.all_publishers)
                + rivals)

    # Topics

    def _camera(self, name: str) -> Feed:
        transport = self.settings.camera[name].transport
        return Feed(self.settings.topic_of(name), lambda data: messages.pixels(data, transport))

    def _subscribe(self) -> None:
        subscribe = self._endpoints.subscription

        # A frame's inputs are made ready before its tick, and so taken when they come.
        def listen(kind: type, source: Source, profile: QoSProfile) -> Subscription:
            made = self._endpoints.sensor(kind, source.topic, partial(receive, source), profile,
                                          Ahead(source.needs_all))
            source.topic = made.topic_name
            return made

        def receive(source: Source, sample: Sample) -> None:
            source.receive(sample.serialized, self._now(), sample.came_ns, sample.skipped)
            if source.settled(self.loop.next_tick):
                self.loop.offer()

        self._cameras = [
            listen(messages.CAMERA_TYPES[self.settings.camera[name].transport], camera, qos.SENSOR)
            for name, camera in self.inputs.cameras.items()
        ]
        self._joints = listen(JointState, self.inputs.joints, qos.JOINTS)
        volatile = subscribe(msg.Instruction, "instruction", self._on_instruction, qos.INSTRUCTION, entity="volatile")
        # That it matches no volatile publisher is what the other one is for, and no news to anybody.
        subscribe(msg.Instruction, "instruction", self._on_instruction, qos.INSTRUCTION_LATCHED, entity="latched")
        self._judged = [*self._cameras, self._joints, volatile]
        self._endpoints.read(self._broken)

    def look(self) -> None:
        """Hear now what has come and would be heard at the next tick."""
        self._endpoints.look()

    def _halt(self, instruction_id: int) -> None:
        self._endpoints.look(self._joints)  # they may say where to stay
        self.frames.halt(instruction_id)

    def _on_instruction(self, serialized: bytes, info) -> None:
        self.instructions.hear(bytes(serialized), info["source_timestamp"])

    def _tick(self, ticking: bool) -> None:
        """At the control rate of now: one that is set at this moment is seen here, or by `use` after it."""
        with self._timing:
            # Whoever sets the system's time back would else have to wait until it is that late again.
            clock = self._node.get_clock() if self._by_simulation else RosClock(clock_type=ClockType.STEADY_TIME)
            self._endpoints.tick(1.0 / self.settings.control_rate if ticking else None, self._on_timer, clock)
            self._ticking = ticking

    def _on_timer(self) -> None:
        period = 1.0 / self.settings.control_rate
        self.loop.tick(Tick(time.monotonic() + period, period))

    # Helpers

    def _simulated(self) -> bool:
        return self._node.get_parameter("use_sim_time").value

    def _go_by(self, simulation: bool) -> None:
        """Simulated time, or the system's."""
        self._by_simulation = simulation
        for source in self.inputs:
            source.clock = SIMULATED if simulation else Clock()

    def _say(self, token: outputs.Token) -> None:
        self.speech.hear(token)
        if token.last:
            self.instructions.ended(token.request_id)

    def _now(self) -> Now:
        # The node's clock says the same, but takes ten times as long, with each message.
        ros_ns = self._node.get_clock().now().nanoseconds if self._by_simulation else time.time_ns()
        return Now(time.monotonic_ns(), ros_ns)

    def _note(self, text: str) -> None:
        if text.startswith(_WARNING):
            self.warnings.append(text.removeprefix(_WARNING))
            self._log.warning(self.warnings[-1])
        else:
            self._log.info(text)

    def _warn(self, topic: str, text: str) -> None:
        if line := self._throttle(topic, text):
            self._log.warning(line)

    def _error(self, topic: str, text: str) -> None:
        if line := self._throttle(topic, text):
            self._log.error(line)

    def _complain(self, text: str) -> None:
        self.refused_instructions, self.last_refusal = self.refused_instructions + 1, text
        self._warn("instruction", text)
