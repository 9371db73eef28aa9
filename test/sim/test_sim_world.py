"""The simulated robot is gym-aloha's, the expert hands the cube over, and the sample bag is what it says it is."""
from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest
from sim_bags import ROOT, SAMPLE, positions, read

pytest.importorskip(
    "gym_aloha", reason="the simulator is not installed: make test installs it, or pip install gym-aloha")

from oxygen_ros.sim import expert, gl, robot, world  # noqa: E402
from oxygen_ros.sim.cameras import CAMERAS, mount_cameras  # noqa: E402

SEED = 5


@pytest.fixture(scope="module")
def demonstration():
    return expert.demonstrate(SEED)


@pytest.fixture
def pictured():
    try:
        gl.require()
    except RuntimeError as error:
        pytest.skip(str(error))
    made = world.World(320, 240)
    made.reset(SEED)
    yield made
    made.close()


def test_it_moves_and_scores_exactly_as_gym_alohas_own_environment(demonstration):
    from dm_control import mujoco
    from dm_control.rl import control
    from gym_aloha.constants import ASSETS_DIR, DT, normalize_puppet_gripper_position
    from gym_aloha.tasks import sim
    from gym_aloha.utils import sample_box_pose

    class WithoutPictures(sim.TransferCubeTask):
        def get_observation(self, physics):
            return {"qpos": self.get_qpos(physics), "qvel": physics.data.qvel.copy()}

    theirs = control.Environment(
        mujoco.Physics.from_xml_path(str(ASSETS_DIR / "bimanual_viperx_transfer_cube.xml")), WithoutPictures(),
        float("inf"), control_timestep=DT)
    sim.BOX_POSE[0] = sample_box_pose(SEED)
    theirs.reset()
    ours = world.World()
    ours.reset(SEED)
    scores = set()
    for targets in demonstration.targets:
        normalised = targets.copy()
        normalised[[6, 13]] = normalize_puppet_gripper_position(targets[[6, 13]])
        step = theirs.step(normalised)
        ours.step(targets)
        positions = ours.positions
        positions[[6, 13]] = normalize_puppet_gripper_position(positions[[6, 13]])
        np.testing.assert_allclose(positions, step.observation["qpos"], rtol=0, atol=1e-9)
        velocities = np.concatenate([step.observation["qvel"][:7], step.observation["qvel"][8:15]])
        np.testing.assert_allclose(ours.velocities, velocities, rtol=0, atol=1e-9)
        np.testing.assert_allclose(ours.cube, theirs.physics.named.data.geom_xpos["red_box"], rtol=0, atol=1e-9)
        assert ours.reward == step.reward
        scores.add(ours.reward)
    assert {0, 1, 2, 4} <= scores


@pytest.mark.parametrize("bad", [np.zeros(13), np.zeros((2, 14)), np.full(14, np.nan), np.full(14, np.inf)])
def test_bad_targets_are_refused_and_the_next_good_ones_work(bad):
    robot_world = world.World()
    robot_world.reset(SEED)
    before = robot_world.positions
    with pytest.raises(ValueError, match="expected 14 finite numbers"):
        robot_world.step(bad)
    np.testing.assert_array_equal(robot_world.positions, before)
    target = before.copy()
    target[0] += 0.2
    for _ in range(50):
        robot_world.step(target)
    assert robot_world.positions[0] == pytest.approx(before[0] + 0.2, abs=0.03)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_expert_succeeds(seed):
    shown = expert.demonstrate(seed)
    assert shown.targets.shape == (400, 14) and len(shown.phases) == 400
    assert list(dict.fromkeys(shown.phases)) == [name for _, name in expert.PHASES]
    trial = expert.replay(shown, seed)
    assert trial.succeeded
    assert trial.states.shape == (400, 14)
    np.testing.assert_allclose(trial.states[0], [0, -0.96, 1.16, 0, -0.3, 0, 0.02239] * 2)


@pytest.mark.parametrize("gripper", robot.GRIPPERS)
def test_a_hand_that_never_closes_is_not_a_success(demonstration, gripper):
    targets = demonstration.targets.copy()
    targets[:, gripper] = robot.finger_position(1.0)
    assert not expert.replay(dataclasses.replace(demonstration, targets=targets), SEED).succeeded


def test_a_hand_that_never_lets_go_is_not_a_success(demonstration):
    steps = round(5.9 * world.RATE_HZ)  # both hold the cube
    both = expert.Demonstration(demonstration.targets[:steps], demonstration.phases[:steps])
    assert expert.replay(demonstration, SEED).succeeded
    assert not expert.replay(both, SEED).succeeded


def test_the_sample_bag_is_this_experts():
    """On another machine too: noise of 1e-16 in every period moves commands by 1e-13 and states by up to 7e-7."""
    heard, _, _ = read(SAMPLE)
    shown = expert.demonstrate(0)
    np.testing.assert_allclose(positions(heard["/joint_commands"]), shown.targets, rtol=0, atol=1e-9)
    np.testing.assert_allclose(positions(heard["/joint_states"]), expert.replay(shown, 0).states, rtol=0, atol=1e-5)


def test_without_gl_the_physics_runs_and_the_recorder_says_what_to_install(tmp_path):
    def python(*arguments):
        return subprocess.run([sys.executable, *arguments], cwd=ROOT, env={**os.environ, "MUJOCO_GL": "disabled"},
                              capture_output=True, text=True, timeout=60)

    physics = python(
        "-c", "from oxygen_ros.sim import world; w = world.World(); w.reset(0); w.step(w.positions); print(w.cube)")
    assert physics.returncode == 0, physics.stderr
    recorder = python("-m", "oxygen_ros.sim.record", "--out", str(tmp_path / "a.mcap"))
    assert recorder.returncode == 1
    assert "apt-get install libegl1 libgl1" in recorder.stderr and recorder.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("camera", CAMERAS)
def test_cameras_take_pictures(pictured, camera):
    taken = pictured.picture(camera)
    assert taken.shape == (240, 320, 3) and taken.dtype == np.uint8
    assert taken.std() > 20
    with pytest.raises(KeyError):
        pictured.picture("cam_low")


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_wrist_camera_is_screwed_to_its_gripper(side):
    """The model's own aims anew at each instant, and flips over as the gripper points straight down."""
    import mujoco  # after oxygen_ros.sim, which chooses its GL library

    model = world.load_model("bimanual_viperx_transfer_cube")
    mount_cameras(model)
    data = mujoco.MjData(model)
    for wrist_angle in (0.0, 1.0, 1.56, 1.58, 2.0):  # rad: straight down lies between the third and the fourth
        data.joint(f"vx300s_{side}/wrist_angle").qpos = wrist_angle
        data.joint(f"vx300s_{side}/forearm_roll").qpos = wrist_angle / 2
        mujoco.mj_forward(model, data)
        camera, gripper = data.camera(f"{side}_wrist"), data.body(f"vx300s_{side}/gripper_link")
        right, up, backward = camera.xmat.reshape(3, 3).T
        forward, leftward, upward = gripper.xmat.reshape(3, 3).T
        to_fingers = data.body(f"vx300s_{side}/camera_focus").xpos - camera.xpos
        np.testing.assert_allclose(-backward, to_fingers / np.linalg.norm(to_fingers), atol=1e-9)
        np.testing.assert_allclose(right, -leftward, atol=1e-9)
        assert up @ upward > 0.8 and up @ forward > 0.4
