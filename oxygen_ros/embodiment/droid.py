"""DROID: a Franka arm with a Robotiq gripper and one of its exterior cameras (pi05.md section 9.5, `pi05_droid`)."""

_ARM = [f"panda_joint{i}" for i in range(1, 8)]

DROID = {
    "name": "droid",
    "frame_id": "panda_link0",
    "step_dt": 1 / 15,
    "representation": "velocity",
    "prompt": "state",
    "cameras": [
        {"name": "exterior_image_1_left", "slot": "base_0_rgb", "required": True},
        {"name": "wrist_image_left", "slot": "left_wrist_0_rgb", "required": True},
    ],
    "joints": [*_ARM, "gripper"],
    "grippers": {"gripper": {"closed": 1.0, "open": 0.0, "model_closed": 1.0, "model_open": 0.0}},
    "action_limits": {**{name: [-1.0, 1.0] for name in _ARM}, "gripper": [0.0, 1.0]},
}
"""Robot units: DROID's. State: radians, and gripper 0 open to 1 closed. Actions: joint velocities scaled to [-1, 1],
gripper position."""
