"""The same arms led by their hands: a target pose per gripper, not joint targets (gym-aloha's end-effector model).

A soft weld pulls each gripper to a target body, which is inverse kinematics by simulation: the joints find their way,
with limits, friction and contact. The expert is written here and its joint positions are replayed in `world.World`.
"""
from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from . import robot, world

_SIDES = ("left", "right")
_BASE_X, _BASE_Y = {"left": -0.469, "right": 0.469}, 0.5  # of the arms' first joints: vx300s_left.xml, vx300s_right.xml
# The model's own weld (0.25) lags by centimetres for a second; this one arrives, and still yields to contact.
_WELD_IMPEDANCE = 0.99


@dataclass(frozen=True)
class Hand:
    """Where one gripper should be.

    position: [3] point between the fingers, 17 mm behind their tips, m, world frame.
    roll: about the direction the gripper points in; 0 puts the fingers side by side, pi/2 one above the other, rad.
    pitch: downwards from the horizontal, rad.
    yaw: about the vertical; at 0 the grippers point at each other along x, rad.
    opening: 0 closed, 1 open.
    """

    position: tuple[float, float, float]
    roll: float = 0.0
    pitch: float = 0.0
    yaw: float = 0.0
    opening: float = 0.0


def heading(side: str, position: np.ndarray) -> float:
    """The yaw at which a hand at this position lies in the plane of its arm, its forearm and wrist unrolled, rad."""
    x, y = (np.asarray(position)[:2] - (_BASE_X[side], _BASE_Y)) * _forward(side)
    return float(np.arctan2(y, x))


class Hands:
    """The end-effector task: `step` moves both hands towards their targets for 1/50 s."""

    def __init__(self):
        self._model = world.load_model("bimanual_viperx_end_effector_transfer_cube")
        self._model.eq_solimp[:, :2] = _WELD_IMPEDANCE
        self._data = mujoco.MjData(self._model)

    def reset(self, seed: int) -> None:
        """Arms at rest, the cube at this seed's place, and the targets where the hands are."""
        world.place(self._model, self._data, seed)
        mujoco.mj_forward(self._model, self._data)
        for index, side in enumerate(_SIDES):
            gripper = self._data.body(f"vx300s_{side}/gripper_link")
            weld = self._model.eq_data[index]  # [3:10]: pose of the gripper in the frame of its target
            inverse_position, inverse_attitude = np.zeros(3), np.zeros(4)
            mujoco.mju_negPose(inverse_position, inverse_attitude, weld[3:6], weld[6:10])
            mujoco.mju_mulPose(self._data.mocap_pos[index], self._data.mocap_quat[index],
                               gripper.xpos, gripper.xquat, inverse_position, inverse_attitude)
        self._grip(robot.FINGER_CLOSED, robot.FINGER_CLOSED)
        mujoco.mj_forward(self._model, self._data)

    def hand(self, side: str) -> Hand:
        """The target of a side ("left" or "right") as it stands after `reset`, closed."""
        index = _SIDES.index(side)
        w, _, y, _ = self._data.mocap_quat[index]
        return Hand(tuple(self._data.mocap_pos[index]), pitch=_forward(side) * 2 * np.arctan2(y, w))

    def step(self, left: Hand, right: Hand) -> np.ndarray:
        """Lead both hands for one period. Returns [14] joint targets (robot units) that repeat it on the real joints:
        the arm positions reached and the gripper positions asked for (a gripper that reached its target holds nothing).
        """
        for index, (side, hand) in enumerate(zip(_SIDES, (left, right))):
            self._data.mocap_pos[index] = hand.position
            self._data.mocap_quat[index] = _attitude(side, hand)
        grips = [robot.finger_position(hand.opening) for hand in (left, right)]
        self._grip(*grips)
        world.advance(self._model, self._data)
        targets = world.joint_positions(self._data)
        targets[list(robot.GRIPPERS)] = grips
        return targets

    @property
    def cube(self) -> np.ndarray:
        """[3] centre of the cube in the world frame, m."""
        return self._data.body("box").xpos.copy()

    def _grip(self, left: float, right: float) -> None:
        self._data.ctrl[:] = (left, -left, right, -right)


def _forward(side: str) -> int:
    return 1 if side == "left" else -1  # along x: the arms face each other


def _attitude(side: str, hand: Hand) -> np.ndarray:
    """[4] quaternion (w, x, y, z): roll, then pitch, then yaw. A target of either side at (1, 0, 0, 0) is level."""
    attitude = np.array((1.0, 0.0, 0.0, 0.0))
    turns = (((1, 0, 0), hand.roll), ((0, 1, 0), _forward(side) * hand.pitch), ((0, 0, 1), hand.yaw))
    for axis, angle in turns:
        turn = np.zeros(4)
        mujoco.mju_axisAngle2Quat(turn, axis, angle)
        mujoco.mju_mulQuat(attitude, turn, attitude.copy())
    return attitude
