"""A LeRobot folder behaves as the LeRobot that wrote it, and the notes say so."""

import json

import numpy as np
import pytest
from conftest import REFERENCE
from safetensors.numpy import load_file
from spoil import EMBEDDING, assert_as_recorded, edit, step, weights, write

from oxygen_ros.checkpoint.conventions import Conventions
from oxygen_ros.checkpoint.errors import CheckpointError
from oxygen_ros.checkpoint.load import load
from oxygen_ros.embodiment.normalization import Normalizer, Statistics
from oxygen_ros.embodiment.prompt import surround, task_text

TEXTS = json.loads((REFERENCE / "preprocess.json").read_text())
STATES = load_file(REFERENCE / "preprocess.safetensors")["raw_state"]


def without_relative_steps(folder):
    """The processor files of LeRobot 0.4.4 and 0.5.0, and their config.json."""
    gone = ("relative_actions_processor", "absolute_actions_processor")
    for file in ("policy_preprocessor.json", "policy_postprocessor.json"):
        edit(folder / file, lambda c: c.update(steps=[s for s in c["steps"] if s["registry_name"] not in gone]))
    fields = ("use_relative_actions", "relative_exclude_joints", "action_feature_names")
    edit(folder / "config.json", lambda c: [c.pop(name) for name in fields])


def prompts(checkpoint) -> list[str]:
    """The recorded tasks and states, written as this folder's conventions say."""
    rules = checkpoint.conventions
    normalizer = Normalizer(rules.normalization["state"], Statistics(**checkpoint.statistics["state"]), 5, "state")
    written = []
    for task, state in zip(TEXTS["tasks"], STATES):
        numbers = normalizer.normalize(state)
        if rules.padded_state_dim:
            numbers = np.pad(numbers, (0, rules.padded_state_dim - 5))
        prompt = surround(rules.prompt, task_text(rules.prompt, task), numbers)
        written.append("".join(prompt.pieces()))
    return written


def test_lerobot_0_6(lerobot_folder):
    checkpoint = load(lerobot_folder)
    assert prompts(checkpoint) == TEXTS["prompt_with_state"]
    rules = checkpoint.conventions
    assert (rules.resize, rules.accumulated_time, rules.padding) == ("lerobot", False, -1.0)
    assert [n for n in checkpoint.notes if n.startswith("written by LeRobot 0.5 or later (relative_actions_processor")]


def test_lerobot_0_4_pads_the_state_in_the_prompt(lerobot_folder):
    without_relative_steps(lerobot_folder)
    write(lerobot_folder, {name: value for name, value in weights(lerobot_folder).items() if name != EMBEDDING})
    checkpoint = load(lerobot_folder)
    assert checkpoint.conventions.padded_state_dim == 8
    assert prompts(checkpoint) == TEXTS["prompt_with_state_padded_lerobot_0_4_4"]
    assert checkpoint.conventions.padding == -3.0
    assert [n for n in checkpoint.notes if "written by LeRobot 0.4.x" in n and "padded to 8 numbers" in n]
    assert_as_recorded(lerobot_folder)


def test_lerobot_0_5_0_is_told_from_0_4_by_the_matrix_stored_twice(lerobot_folder):
    without_relative_steps(lerobot_folder)
    checkpoint = load(lerobot_folder)
    assert checkpoint.conventions.padded_state_dim is None
    assert prompts(checkpoint) == TEXTS["prompt_with_state"]
    assert [n for n in checkpoint.notes if "LeRobot 0.5 or later (embedding and head stored apart)" in n]


def test_a_later_folder_that_lost_its_embedding_is_no_older_one(lerobot_folder):
    write(lerobot_folder, {name: value for name, value in weights(lerobot_folder).items() if name != EMBEDDING})
    assert load(lerobot_folder).conventions.padded_state_dim is None


def test_openpi(openpi_folder):
    assert load(openpi_folder).conventions == Conventions(
        normalization={"state": "openpi_quantile", "actions": "openpi_quantile"}, resize="openpi",
        accumulated_time=True, padded_state_dim=None, prompt=None, camera_features=(), relative_actions=None,
        action_features=(), padding=-1.0,
    )


def test_cameras_in_the_models_order_under_the_robots_names(lerobot_folder):
    def reorder(config):
        image = config["input_features"].pop("observation.images.base_0_rgb")
        config["input_features"] |= {"observation.images.base_0_rgb": image, "observation.images.empty_camera_0": image}
        config["empty_cameras"] = 1

    edit(lerobot_folder / "config.json", reorder)
    assert load(lerobot_folder).conventions.camera_features == ("left_wrist_0_rgb", "right_wrist_0_rgb", "base_0_rgb")
    renaming = {"observation.images.front": "observation.images.base_0_rgb",
                "observation.image": "observation.images.right_wrist_0_rgb"}
    edit(lerobot_folder / "policy_preprocessor.json",
         lambda c: step(c, "rename_observations_processor")["config"].update(rename_map=renaming))
    checkpoint = load(lerobot_folder)
    assert checkpoint.conventions.camera_features == ("left_wrist_0_rgb", "image", "front")
    (note,) = [n for n in checkpoint.notes if n.startswith("cameras")]
    assert "order: left_wrist_0_rgb, image, front; 1 empty, left out; renamed: " in note


def relative(folder, names, excluded=("gripper",)):
    """use_relative_actions, as LeRobot 0.6.1 writes it."""
    edit(folder / "config.json", lambda c: c.update(use_relative_actions=True, action_feature_names=names))
    edit(folder / "policy_preprocessor.json", lambda c: step(c, "relative_actions_processor")["config"].update(
        enabled=True, action_names=names, exclude_joints=list(excluded)))
    edit(folder / "policy_postprocessor.json",
         lambda c: step(c, "absolute_actions_processor")["config"].update(enabled=True))


def test_relative_actions_with_excluded_joints(lerobot_folder):
    relative(lerobot_folder, ["waist.pos", "Left_Gripper.pos", "elbow.pos", "wrist.pos", "roll.pos", "gripper.pos"])
    rules = load(lerobot_folder).conventions
    assert rules.relative_actions == ("Left_Gripper.pos", "gripper.pos")
    assert rules.deltas(("a", "b", "c", "d", "e", "f")) == ("a", "c", "d", "e")  # by position: the robot's names differ
    with pytest.raises(CheckpointError, match="the policy has 6 actions .*the robot 2 \\(a, b\\)"):
        rules.deltas(("a", "b"))


def test_relative_actions_without_names_exclude_nothing(lerobot_folder):
    relative(lerobot_folder, None)
    checkpoint = load(lerobot_folder)
    assert checkpoint.conventions.relative_actions == ()
    assert checkpoint.conventions.deltas(("elbow", "gripper")) == ("elbow", "gripper")
    assert [n for n in checkpoint.notes if n.startswith("warning: gripper would be excluded")]


def test_absolute_actions_leave_it_to_the_robot(lerobot_folder):
    assert load(lerobot_folder).conventions.deltas(("elbow", "gripper")) is None


def test_the_processor_files_decide_on_relative_actions(lerobot_folder):
    edit(lerobot_folder / "config.json", lambda c: c.update(use_relative_actions=True))
    checkpoint = load(lerobot_folder)
    assert checkpoint.conventions.relative_actions is None
    assert [n for n in checkpoint.notes if "use_relative_actions is True in config.json but False in the proc" in n]


def test_other_step_counts_and_unknown_steps_are_said(lerobot_folder):
    edit(lerobot_folder / "config.json", lambda c: c.update(num_inference_steps=5))
    edit(lerobot_folder / "policy_preprocessor.json", lambda c: c["steps"].append({"registry_name": "my_filter"}))
    told = [n for n in load(lerobot_folder).notes if n.startswith("warning")]
    assert len(told) == 2
    assert "5 denoise steps (num_inference_steps); parameter denoise_steps decides" in told[0]
    assert told[1].endswith("left out: my_filter")


def test_a_processor_file_that_is_none(lerobot_folder):
    (lerobot_folder / "policy_preprocessor.json").write_text('{"steps": 3}')
    with pytest.raises(CheckpointError, match="policy_preprocessor.json is not a LeRobot processor description"):
        load(lerobot_folder)
