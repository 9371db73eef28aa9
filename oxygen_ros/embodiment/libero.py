"""LIBERO: a simulated Franka arm led by its hand (pi05.md section 9.5, `pi05_libero`).

LIBERO's simulator renders upside down and its training pictures were turned by 180 degrees: set `rotation: 180` on
both cameras when they come straight from the simulator, not when they come from the published data set.
"""

LIBERO = {
    "name": "libero",
    "frame_id": "base_link",
    "step_dt": 0.05,
    "representation": "end_effector_delta",
    "prompt": "plain",
    "cameras": [
        {"name": "image", "slot": "base_0_rgb", "required": True},
        {"name": "wrist_image", "slot": "left_wrist_0_rgb", "required": True},
    ],
    "joints": ["eef_x", "eef_y", "eef_z", "eef_rx", "eef_ry", "eef_rz", "finger_joint1", "finger_joint2"],
    "actions": ["delta_x", "delta_y", "delta_z", "delta_rx", "delta_ry", "delta_rz", "gripper"],
}
"""Robot units: the simulator's. State: metres, axis-angle in radians, finger positions in metres. Actions: its
controller's scaled deltas in [-1, 1], gripper -1 open to 1 closed."""
