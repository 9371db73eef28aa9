"""What the robot is told to do: chunks, and a hold when it is to stop. One at a time, from whichever thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from .continuity import Command, Continuity, Seam
from .embodiment.pipeline import ModelInput, Pipeline
from .inputs import Inputs, Snapshot
from .instructions import ControlTask, Instructions
from .pi05.rtc import Guidance
from .settings import Settings
from .source import NotReady, Now


@dataclass(frozen=True)
class Chunk:
    """What the robot is to do: actions float32 [H, action_dim] in robot units, as in msg/ActionChunk.msg.

    sent_ns: when it is given out. Times are ROS time. snapshot: what it was made from; a hold is made from none.
    state: [state_dim], robot units, where the robot was when it was made, or for a hold of displacements where it had
    been led to; None if unknown.
    """

    actions: np.ndarray
    sequence: int
    instruction_id: int
    stamp_ns: int
    start_ns: int
    sent_ns: int
    snapshot: Snapshot | None
    state: np.ndarray | None


class Commander:
    """`begin` and `send` are the frame thread's, `hold` comes from any: a STOP does not wait for a frame.

    horizon: actions in a chunk. give: is called with each chunk, under a lock that keeps them in order. numbers: of
    frames and holds.
    """

    def __init__(self, pipeline: Pipeline, horizon: int, settings: Callable[[], Settings], inputs: Inputs,
                 instructions: Instructions, give: Callable[[Chunk], None], now: Callable[[], Now],
                 numbers: Iterator[int]) -> None:
        self._horizon = horizon
        self._settings, self._inputs, self._instructions = settings, inputs, instructions
        self._give, self._now = give, now
        self._used = settings()
        self._continuity = Continuity(pipeline, self._used)
        self._numbers = numbers
        self._lock = threading.Lock()

    def number(self) -> int:
        """The next sequence number, which no other frame or hold ever has."""
        return next(self._numbers)

    def forget(self) -> None:
        """The robot stands still, wherever that is."""
        with self._lock:
            self._continuity.forget()

    def begin(self, task: ControlTask, snapshot: Snapshot, seen: ModelInput, now: Now) -> tuple[Seam, Guidance | None]:
        """What the chunk of a frame that begins now is to join."""
        with self._lock:
            self._keep_up()
            seam = self._continuity.begin(task.run, snapshot.state, seen.state, snapshot.stamp_ns, now.ros_ns)
            return seam, self._continuity.guidance(seam)

    def send(self, actions: np.ndarray, seam: Seam, task: ControlTask, snapshot: Snapshot, sequence: int
             ) -> Command | None:
        """actions: [H, D], robot units, finite. None if the robot was stopped meanwhile, or all of them are past:
        nothing is given out then."""
        with self._lock:
            if self._instructions.run != task.run:
                return None
            self._keep_up()  # limits that were set meanwhile hold from now on
            now_ns = self._now().ros_ns
            command = self._continuity.finish(actions, seam, now_ns)
            if command is None:
                return None
            self._give(Chunk(command.actions, sequence, task.instruction_id, seam.stamp_ns, command.start_ns, now_ns,
                             snapshot, snapshot.state))
            return command

    def hold(self, instruction_id: int) -> bool:
        """End the motion under way, if stop_policy says so. No chunk that was begun before comes after.

        False if there is no telling where to stay: nothing is given out then."""
        with self._lock:
            now = self._now()
            if self._settings().stop_policy != "hold":
                return True
            try:
                state, _ = self._inputs.joints.state(now)
            except NotReady:
                state = None
            led = self._continuity.led_to(now.ros_ns, state)
            command = self._continuity.hold(now.ros_ns, state, self._horizon)
            if command is None:
                return False
            self._give(Chunk(command.actions, self.number(), instruction_id, now.ros_ns, command.start_ns, now.ros_ns,
                             None, led))
            return True

    def _keep_up(self) -> None:
        if (settings := self._settings()) is not self._used:
            self._used = settings
            self._continuity.use(settings)
