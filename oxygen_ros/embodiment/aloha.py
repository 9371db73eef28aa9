"""ALOHA and ALOHA 2: two ViperX arms of six joints and a parallel gripper each (pi05.md section 9.5).

pi0.5 was trained on another runtime than the one that drives these arms: four joints count the other way, and the
gripper is an angle of its motor, from which a crank and rod move the fingers. openpi's own client hands over g, 0
closed to 1 open, for the finger position in the state, but for the motor angle in the action. Here both are the
finger position in metres, as in the joint state: the rod's own geometry goes from one to the other, so a commanded
pose is the pose that is then read.
"""

from __future__ import annotations

import numpy as np

from .units import Linear

FINGER_CLOSED, FINGER_OPEN = 0.01844, 0.05800  # m, finger position of the nominal gripper
_CRANK, _ROD = 0.022, 0.036  # m
_PI_CLOSED, _PI_OPEN = 0.5476, 1.6296  # rad, the range that pi scaled its gripper states by
_MOTOR_CLOSED, _MOTOR_OPEN = -0.6213, 1.4910  # rad, the range of openpi's commanded g


class FingerState:
    """openpi's gripper state: finger position g in [0, 1] (robot) <-> motor angle scaled to pi's range (model)."""

    def to_model(self, robot):
        return _PI_RANGE.to_model(_finger_to_angle(_FINGER_RANGE.to_robot(robot)))

    def to_robot(self, model):
        return _FINGER_RANGE.to_model(_angle_to_finger(_PI_RANGE.to_robot(model)))


class MotorAction:
    """openpi's gripper action: commanded motor angle g in [0, 1] (robot) <-> radians above pi's closed (model)."""

    def to_model(self, robot):
        return _MOTOR_RANGE.to_robot(robot) - _PI_CLOSED

    def to_robot(self, model):
        return _MOTOR_RANGE.to_model(model + _PI_CLOSED)


class FingerAction:
    """The same action as finger position g in [0, 1] (robot), through the gripper's geometry."""

    def to_model(self, robot):
        return _finger_to_angle(_FINGER_RANGE.to_robot(robot)) - _PI_CLOSED

    def to_robot(self, model):
        return _FINGER_RANGE.to_model(_angle_to_finger(model + _PI_CLOSED))


_FINGER_RANGE = Linear(robot=(FINGER_CLOSED, FINGER_OPEN), model=(0.0, 1.0))
_MOTOR_RANGE = Linear(robot=(_MOTOR_CLOSED, _MOTOR_OPEN), model=(0.0, 1.0))
_PI_RANGE = Linear(robot=(_PI_CLOSED, _PI_OPEN), model=(0.0, 1.0))


def _finger_to_angle(position):
    """Law of cosines in the triangle of crank, rod and finger position, which ends where the crank points along."""
    position = np.maximum(position, _ROD - _CRANK)  # below 0 there is another triangle, of an open gripper
    sine = (_CRANK**2 + position**2 - _ROD**2) / (2 * _CRANK * position)
    return np.arcsin(np.clip(sine, -1, 1))


def _angle_to_finger(angle):
    reach = _CRANK * np.sin(np.clip(angle, -np.pi / 2, np.pi / 2))
    return reach + np.sqrt(reach**2 + _ROD**2 - _CRANK**2)


_ARM = {  # rad, the joint limits of a ViperX 300 6DOF
    "waist": [-3.14158, 3.14158],
    "shoulder": [-1.85005, 1.25664],
    "elbow": [-1.76278, 1.6057],
    "forearm_roll": [-3.14158, 3.14158],
    "wrist_angle": [-1.8675, 2.23402],
    "wrist_rotate": [-3.14158, 3.14158],
}
_SIDES = ("left", "right")

ALOHA = {
    "name": "aloha",
    "frame_id": "base_link",
    "step_dt": 0.02,
    "representation": "absolute_position",
    "prompt": "state",
    "cameras": [
        {"name": "cam_high", "slot": "base_0_rgb", "required": True},
        {"name": "cam_left_wrist", "slot": "left_wrist_0_rgb"},
        {"name": "cam_right_wrist", "slot": "right_wrist_0_rgb"},
    ],
    "joints": [f"{side}_{joint}" for side in _SIDES for joint in (*_ARM, "gripper")],
    "delta": [f"{side}_{joint}" for side in _SIDES for joint in _ARM],
    "flip": [f"{side}_{joint}" for side in _SIDES for joint in ("shoulder", "elbow")],
    "grippers": {
        f"{side}_gripper": {"closed": FINGER_CLOSED, "open": FINGER_OPEN, "convention": "aloha_finger"}
        for side in _SIDES
    },
    "limits": {f"{side}_{joint}": limits for side in _SIDES for joint, limits in _ARM.items()},
}
"""Robot units: radians, and metres of finger position."""

ALOHA_OPENPI = {
    **ALOHA,
    "name": "aloha_openpi",
    "grippers": {f"{side}_gripper": {"closed": 0.0, "open": 1.0, "convention": "aloha_motor"} for side in _SIDES},
}
"""The units of openpi's own client: radians, and g for the grippers (state: finger position, action: motor angle)."""
