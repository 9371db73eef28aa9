"""The three cameras of an ALOHA, in the gym-aloha model: one above the table, one on each wrist.

The model aims its wrist cameras anew at every instant, with the world's vertical as "up": the picture flips over when
a gripper points down. A real one is screwed to the gripper, so here they are; with the field of view of the RealSense
D405 that ALOHA carries, and a near plane that does not cut the gripper open.
"""
from __future__ import annotations

import mujoco
import numpy as np

from . import gl

CAMERAS = {"cam_high": "top", "cam_left_wrist": "left_wrist", "cam_right_wrist": "right_wrist"}  # ours: the model's

_WRIST_FIELD_OF_VIEW = 58.0  # vertical, degrees: Intel RealSense D400 series datasheet, D405
_NEAR = 0.01  # of the model's extent (1.7 m)


def mount_cameras(model: mujoco.MjModel) -> None:
    """Fix both wrist cameras to their grippers, aimed between the fingers as the model aims them at rest."""
    model.vis.map.znear = _NEAR
    for side in ("left", "right"):
        camera = model.camera(f"{side}_wrist")
        backward = camera.pos - model.body(f"vx300s_{side}/camera_focus").pos  # a camera looks along its own -z
        backward /= np.linalg.norm(backward)
        rightward = np.cross((0.0, 0.0, 1.0), backward)
        rightward /= np.linalg.norm(rightward)
        axes = np.column_stack((rightward, np.cross(backward, rightward), backward))
        mujoco.mju_mat2Quat(camera.quat, axes.ravel())
        camera.mode[:] = mujoco.mjtCamLight.mjCAMLIGHT_FIXED
        camera.fovy[:] = _WRIST_FIELD_OF_VIEW


class Photographer:
    """Renders a model's cameras off screen. Raises RuntimeError where there is no GL library (Debian: libegl1, libgl1).

    Close it: at interpreter exit EGL is gone before the renderer's own finaliser runs.
    """

    def __init__(self, model: mujoco.MjModel, width: int, height: int):
        gl.require()
        self._renderer = mujoco.Renderer(model, height, width)
        # Shadows and reflections are four fifths of the time of a software-rendered image.
        self._renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = 0
        self._renderer.scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = 0

    def picture(self, data: mujoco.MjData, camera: str) -> np.ndarray:
        """[height, width, 3] uint8 RGB from a camera of `CAMERAS`. Raises KeyError for another name."""
        self._renderer.update_scene(data, CAMERAS[camera])
        return self._renderer.render()

    def close(self) -> None:
        self._renderer.close()
