"""Everything that exists between configure and cleanup: policy, topics, the frame loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields

from rclpy.duration import Duration
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.lifecycle import LifecycleNodeMixin
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory
from visualization_msgs.msg import MarkerArray

from .. import msg
from ..embodiment.errors import InputError
from ..embodiment.pipeline import ModelInput
from ..engine import outputs
from ..engine.engine import FrameError
from ..policy import Policy, load_policy
from ..settings import Settings
from . import messages, qos
from .frame_loop import FrameLoop, Tick
from .inputs import CameraInput, Inputs, JointInput, NotReady, Now, Snapshot
from .instructions import ControlTask, Instructions
from .speech import Speech
from .throttle import Throttle


@dataclass
class Health:
    """What diagnostics report; written by the frame thread."""

    waiting_for: tuple[str, ...] = ()
    last_error: str = ""
    failures_in_a_row: int = 0
    stale_inputs: int = 0
    late_chunks: int = 0
    last_chunk: float | None = None  # time.monotonic
    stats: msg.FrameStats | None = None


@dataclass(frozen=True)
class Frame:
    """One frame in the making."""

    sequence: int
    tick: Tick
    began: float  # time.monotonic
    task: ControlTask | None = None
    snapshot: Snapshot | None = None
    seen: ModelInput | None = None
    preprocess: float = 0.0


class Session:
    """A configured node. The network is loaded and warm; `activate` starts frames, `deactivate` ends them."""

    def __init__(self, node: LifecycleNodeMixin, settings: Settings, reading: Callable[[int, int], None]) -> None:
        self.settings = settings
        self.policy: Policy = load_policy(settings, node.get_logger().info, reading)
        self.health = Health()
        self._node, self._log = node, node.get_logger()
        self._throttle = Throttle()
        self._timer = None
        self._sequence = 0
        self._last_began: float | None = None
        self._moving_until_ns = 0
        self._publishers = self._create_publishers()
        self.speech = Speech(
            self.policy.pipeline.tokenizer, self.policy.robot.frame_id,
            token=self._tokens.publish, utterance=self._utterance.publish, memory=self._memory.publish,
        )
        self.instructions = Instructions(
            self.policy.pipeline, self.policy.engine, lambda: self.settings.language,
            reject=self.speech.hear, complain=self._complain, info=self._log.info,
        )
        self.loop = FrameLoop(self._guarded_frame)
        self._subscriptions: list = []
        self.inputs = self._subscribe()

    # Life

    def activate(self) -> None:
        """Begin to make frames, from data that arrives from now on."""
        self.inputs.clear()
        self._moving_until_ns, self._last_began = 0, None
        self.health = Health()
        if self.instructions.task is None and self.settings.instruction:
            self.instructions.obey(msg.Instruction(text=self.settings.instruction))
        self._timer = self._node.create_timer(
            1.0 / self.settings.control_rate, self._on_timer
        )

    def deactivate(self) -> None:
        """End after the frame in flight; language requests end with a last token (CANCELLED)."""
        if self._timer is not None:
            self._node.destroy_timer(self._timer)
            self._timer = None
        self.loop.wait_idle()
        for token in self.policy.engine.drain("the node was deactivated"):
            self.speech.hear(token)

    def close(self) -> None:
        """Give everything back. The session cannot be used again."""
        self.deactivate()
        self.loop.close()
        # Destroying a publisher forgets what its subscribers have not acknowledged yet.
        self._tokens.wait_for_all_acked(Duration(seconds=0.5))
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        for publisher in self._publishers:
            self._node.destroy_lifecycle_publisher(publisher)

    # Topics

    def _create_publishers(self) -> list:
        node, s = self._node, self.settings

        def publisher(kind: type, topic: str, profile):
            return node.create_lifecycle_publisher(kind, topic, profile, qos_overriding_options=qos.overridable())

        command = qos.action_chunk(s.chunk_deadline, s.chunk_lifespan)
        self._chunks = publisher(msg.ActionChunk, "~/action_chunk", command)
        self._trajectory = publisher(JointTrajectory, "~/joint_trajectory", command) if s.joint_trajectory else None
        self._tokens = publisher(msg.LanguageToken, "~/language_tokens", qos.LANGUAGE_TOKENS)
        self._utterance = publisher(String, "~/utterance", qos.UTTERANCE)
        self._memory = publisher(msg.LanguageToken, "~/memory", qos.MEMORY)
        self._stats = publisher(msg.FrameStats, "~/frame_stats", qos.FRAME_STATS)
        self._path = publisher(MarkerArray, "~/predicted_path", qos.PREDICTED_PATH)
        every = (self._chunks, self._trajectory, self._tokens, self._utterance, self._memory, self._stats, self._path)
        return [p for p in every if p is not None]

    def _subscribe(self) -> Inputs:
        s, robot = self.settings, self.policy.robot

        def subscribe(kind: type, topic: str, callback, profile, *, entity: str | None = None, **options) -> str:
            subscription = self._node.create_subscription(
                kind, topic, callback, profile, qos_overriding_options=qos.overridable(entity), **options
            )
            self._subscriptions.append(subscription)
            return subscription.topic_name

        cameras = {}
        for name in s.cameras:
            camera = cameras[name] = self._camera(name)
            kind = messages.CAMERA_TYPES[s.camera[name].transport]
            camera.topic = subscribe(kind, camera.topic, self._on_picture(camera), qos.SENSOR, raw=True)
        joints = JointInput("joint_states", robot.joints, s.joint_state_max_age)
        joints.topic = subscribe(JointState, "joint_states", self._on_joints, qos.SENSOR)
        subscribe(msg.Instruction, "instruction", self._on_instruction, qos.INSTRUCTION, entity="volatile", raw=True)
        # That it matches no volatile publisher is what the other one is for, and no news to anybody.
        subscribe(msg.Instruction, "instruction", self._on_instruction, qos.INSTRUCTION_LATCHED, entity="latched", raw=True,
                  event_callbacks=SubscriptionEventCallbacks(use_default_callbacks=False))
        return Inputs(joints, cameras)

    def _camera(self, name: str) -> CameraInput:
        given = self.settings.camera[name]
        return CameraInput(self.settings.topic_of(name), lambda data: messages.pixels(data, given.transport), given.max_age)

    def _on_picture(self, camera: CameraInput) -> Callable[[bytes], None]:
        return lambda data: camera.receive(bytes(data), self._now())

    def _on_joints(self, message: JointState) -> None:
        stamp_ns = message.header.stamp.sec * 1_000_000_000 + message.header.stamp.nanosec
        try:
            self.inputs.joints.receive(message.name, message.position, stamp_ns, self._now())
        except InputError as error:
            self._warn("joint_states", f"joint state refused: {error}")

    def _on_instruction(self, serialized: bytes, info) -> None:
        self.instructions.hear(bytes(serialized), info["source_timestamp"])

    def _on_timer(self) -> None:
        period = 1.0 / self.settings.control_rate
        self.loop.tick(Tick(time.monotonic() + period, period))

    # Frames

    def _guarded_frame(self, tick: Tick) -> None:
        """A frame may fail; the loop, the node and the next frame do not."""
        self._sequence += 1
        frame = Frame(self._sequence, tick, time.monotonic())
        try:
            self._frame(frame)
            self.health.failures_in_a_row = 0
        except Exception as error:
            self.health.failures_in_a_row += 1
            kind = "frame" if isinstance(error, FrameError) else type(error).__name__
            self.health.last_error = f"frame {frame.sequence}: {error}"
            self._throttle(self._log.error, f"frame failed: {kind}",
                           f"frame {frame.sequence} failed, no chunk is published ({kind}: {error}); "
                           f"{self.health.failures_in_a_row} in a row")

    def _frame(self, frame: Frame) -> None:
        engine = self.policy.engine
        deadline = frame.tick.deadline - self.settings.language.margin
        try:
            frame = self._observe(frame)
        except (NotReady, InputError) as error:
            stream = engine.language(deadline)
            if self.instructions.task is not None:
                self.health.stale_inputs += 1
                for reason in getattr(error, "reasons", (str(error),)):
                    self._warn(reason.partition(":")[0] + reason.partition(":")[2][:12], f"no chunk: {reason}")
            self.health.waiting_for = getattr(error, "reasons", (str(error),))
        else:
            self.health.waiting_for = ()
            stream = engine.frame(self.policy.observation(frame.seen, frame.snapshot.stamp_ns), deadline)
        for output in stream:
            if isinstance(output, outputs.Actions):
                self._publish_chunk(frame, output)
            elif isinstance(output, outputs.Token):
                self.speech.hear(output)
            else:
                self._publish_stats(frame, output)

    def _observe(self, frame: Frame) -> Frame:
        """Decode the newest messages into model input. Raises NotReady or InputError."""
        task = self.instructions.task
        if task is None:
            raise NotReady(["instruction: none yet, publish one with task ACT"])
        snapshot = self.inputs.snapshot(self._now())
        for source in self.inputs:
            if source.problem:
                self._warn(f"refused {source.topic}", f"message refused, the last good one is used: {source.problem}")
        seen = self.policy.pipeline.observe(snapshot.images, snapshot.state, task.text)
        for warning in seen.warnings:
            self._warn(warning.partition("=")[0][:24], warning)
        return Frame(frame.sequence, frame.tick, frame.began, task, snapshot, seen, time.monotonic() - frame.began)

    def _publish_chunk(self, frame: Frame, output: outputs.Actions) -> None:
        if self.instructions.task is None:  # stopped while this frame was being computed
            return
        robot = self.policy.robot
        actions = self.policy.robot_actions(output.actions, frame.seen)
        now_ns = self._now().ros_ns
        moving = now_ns <= self._moving_until_ns
        start_ns = output.stamp_ns if moving else now_ns
        self._chunks.publish(messages.action_chunk(
            robot, actions, sequence=frame.sequence, instruction_id=frame.task.instruction_id,
            stamp_ns=output.stamp_ns, start_ns=start_ns, latency_ns=max(0, now_ns - output.stamp_ns),
        ))
        self._moving_until_ns = start_ns + round(len(actions) * robot.step_dt * 1e9)
        self.health.last_chunk = time.monotonic()
        if self._trajectory is not None:
            self._trajectory.publish(messages.joint_trajectory(robot, actions, start_ns=start_ns, now_ns=now_ns))
        self._path.publish(messages.predicted_path(robot, actions, start_ns=start_ns))

    def _publish_stats(self, frame: Frame, measured: outputs.FrameStats) -> None:
        ended = time.monotonic()
        ours = {
            "sequence": frame.sequence,
            "period": 0.0 if self._last_began is None else frame.began - self._last_began,
            "preprocess": frame.preprocess,
            "first_chunk_latency": frame.preprocess + measured.first_chunk_latency if frame.seen else 0.0,
            "total": ended - frame.began,
            "slack": frame.tick.deadline - ended,
            "deadline_misses": self.loop.misses,
            "stale_inputs": self.health.stale_inputs,
            "observation_age": (self._now().ros_ns - frame.snapshot.stamp_ns) / 1e9 if frame.snapshot else 0.0,
        }
        known = set(msg.FrameStats.get_fields_and_field_types())
        theirs = {f.name: getattr(measured, f.name) for f in fields(measured) if f.name in known}
        self._last_began = frame.began
        self.health.stats = msg.FrameStats(**{**theirs, **ours})
        self._stats.publish(self.health.stats)

    # Helpers

    def _now(self) -> Now:
        return Now(time.monotonic_ns(), self._node.get_clock().now().nanoseconds)

    def _warn(self, key: str, text: str) -> None:
        self._throttle(self._log.warning, key, text)

    def _complain(self, text: str) -> None:
        self.health.last_error = text
        self._warn(text[:24], text)
