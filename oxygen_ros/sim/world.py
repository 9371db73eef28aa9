"""The simulated robot: gym-aloha's two ViperX arms, a table and a red cube, in MuJoCo.

Only the model files of the `gym-aloha` package are used. The physics is stepped in the order in which
dm_control steps it, so a trajectory here equals the one `gym_aloha/AlohaTransferCube-v0` would make
(`test/sim/test_sim_world.py` holds the two side by side), without the three images that package renders each step.
"""
from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import mujoco
import numpy as np

from . import robot
from .cameras import Photographer, mount_cameras

RATE_HZ = 50
TASK_REWARD = 4  # the left gripper has the cube, off the table

# Rest pose of one arm and its two fingers, in qpos order [rad, m]: gym_aloha.constants.START_ARM_POSE.
REST = (0.0, -0.96, 1.16, 0.0, -0.3, 0.0, 0.02239, -0.02239)
# Where the cube may start [m]: gym_aloha.utils.sample_box_pose. It is dropped from 3 cm above the table.
CUBE_LOW, CUBE_HIGH = (0.0, 0.4, 0.05), (0.2, 0.6, 0.05)

_ROBOT_QPOS = 16  # both arms: six joints and two fingers each
_JOINTS = [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14]  # qpos index of each of our 14 joints


def load_model(name: str) -> mujoco.MjModel:
    """A model of the installed gym-aloha package, by file name without `.xml`.

    Raises ModuleNotFoundError, with the remedy, where the package is not installed.
    """
    spec = find_spec("gym_aloha")  # found, not imported: importing it pulls in dm_control and gymnasium
    if spec is None:
        raise ModuleNotFoundError(
            "the simulated robot needs the package gym-aloha: pip install gym-aloha", name="gym_aloha")
    return mujoco.MjModel.from_xml_path(str(Path(spec.origin).parent / "assets" / f"{name}.xml"))


def place(model: mujoco.MjModel, data: mujoco.MjData, seed: int) -> None:
    """Arms at rest and the cube where gym-aloha puts it for this seed."""
    mujoco.mj_resetData(model, data)
    data.qpos[:_ROBOT_QPOS] = REST * 2
    data.qpos[_ROBOT_QPOS:_ROBOT_QPOS + 3] = np.random.RandomState(seed).uniform(CUBE_LOW, CUBE_HIGH)
    data.qpos[_ROBOT_QPOS + 3:] = (1.0, 0.0, 0.0, 0.0)


def advance(model: mujoco.MjModel, data: mujoco.MjData) -> None:
    """One control period. Ends on mj_step1, so contacts and body poses belong to the new state (as in dm_control)."""
    mujoco.mj_step2(model, data)
    mujoco.mj_step(model, data, nstep=round(1 / RATE_HZ / model.opt.timestep) - 1)
    mujoco.mj_step1(model, data)


def joint_positions(data: mujoco.MjData) -> np.ndarray:
    """[14] positions in robot units (rad; grippers: finger position in m), in the order of `robot.JOINTS`."""
    return data.qpos[_JOINTS].copy()


class World:
    """The transfer-cube task under joint position targets: what a controller of the real robot would see.

    `reset(seed)` before anything else. One `step` is 1/50 s. Pictures need a GL library (Debian: libegl1, libgl1).
    """

    def __init__(self, width: int = 640, height: int = 480):
        self._model = load_model("bimanual_viperx_transfer_cube")
        mount_cameras(self._model)
        self._data = mujoco.MjData(self._model)
        self._size = (width, height)
        self._photographer: Photographer | None = None
        self._cube = self._model.geom("red_box").id
        self._names = {self._model.geom("table").id: "table"} | {
            self._model.geom(f"vx300s_{side}/10_{side}_gripper_finger").id: side for side in ("left", "right")}

    def reset(self, seed: int) -> None:
        """Arms at rest and the cube at this seed's place (the same place as in gym-aloha)."""
        place(self._model, self._data, seed)
        self._data.ctrl[:] = REST * 2
        mujoco.mj_forward(self._model, self._data)

    def step(self, targets: np.ndarray) -> None:
        """Hold these [14] joint targets (robot units, order of `robot.JOINTS`) for one period.

        Raises ValueError for another shape or a value that is not finite.
        """
        targets = np.asarray(targets, dtype=np.float64)
        if targets.shape != (len(robot.JOINTS),) or not np.isfinite(targets).all():
            raise ValueError(f"joint targets: expected {len(robot.JOINTS)} finite numbers, found {targets!r}")
        left, right = targets[:7], targets[7:]
        self._data.ctrl[:] = [*left, -left[6], *right, -right[6]]  # a gripper's fingers mirror each other
        advance(self._model, self._data)

    @property
    def positions(self) -> np.ndarray:
        """[14] joint positions: rad; grippers: finger position in m."""
        return joint_positions(self._data)

    @property
    def velocities(self) -> np.ndarray:
        """[14] joint velocities: rad/s; grippers: m/s."""
        return self._data.qvel[_JOINTS].copy()

    @property
    def cube(self) -> np.ndarray:
        """[3] centre of the cube in the world frame, m."""
        return self._data.geom_xpos[self._cube].copy()

    @property
    def contacts(self) -> frozenset[str]:
        """What touches the cube, of "table", "left" and "right" (the finger by which gym-aloha judges each gripper)."""
        pairs = (c.geom for c in self._data.contact)
        return frozenset(self._names[other] for pair in pairs if self._cube in pair
                         for other in pair if other in self._names)

    @property
    def reward(self) -> int:
        """gym-aloha's score: 1 the right gripper touches the cube, 2 and lifts it; 3 the left one, 4 off the table."""
        touching = self.contacts
        if "left" in touching:
            return 3 if "table" in touching else TASK_REWARD
        if "right" in touching:
            return 1 if "table" in touching else 2
        return 0

    def picture(self, camera: str) -> np.ndarray:
        """[height, width, 3] uint8 RGB from a camera of `cameras.CAMERAS`. Raises KeyError for another name."""
        if self._photographer is None:  # made at the first picture: joints alone need no GL
            self._photographer = Photographer(self._model, *self._size)
        return self._photographer.picture(self._data, camera)

    def close(self) -> None:
        """Free the renderer, if a picture made one."""
        if self._photographer is not None:
            self._photographer.close()
            self._photographer = None
