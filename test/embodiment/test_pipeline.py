import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oxygen_ros.embodiment.errors import InputError
from oxygen_ros.embodiment.letterbox import resize_with_pad
from oxygen_ros.embodiment.normalization import Statistics
from oxygen_ros.embodiment.pipeline import Pipeline
from oxygen_ros.embodiment.registry import robot

RNG = np.random.default_rng(0)
PICTURES = {
    name: RNG.integers(0, 256, (45, 60, 3), np.uint8) for name in ("cam_high", "cam_left_wrist", "cam_right_wrist")
}
CASES = {"aloha_pi05": "aloha_openpi", "libero_pi05": "libero", "droid_pi05": "droid"}


def pictures_of(known):
    return {camera.name: RNG.integers(0, 256, (20, 30, 3), np.uint8) for camera in known.cameras[:2]}


def aloha_with(recorded, tokenizer, **options):
    statistics = recorded["robots"]["aloha_pi05"]["norm_stats"]
    return Pipeline(robot("aloha_openpi"), statistics, "openpi_quantile", tokenizer, image_size=28, **options)


@pytest.fixture
def aloha(recorded, tokenizer):
    """ALOHA in openpi's units with its recorded statistics."""
    return aloha_with(recorded, tokenizer)


@pytest.mark.parametrize("case, name", CASES.items())
def test_openpi_s_whole_transform(recorded, tokenizer, case, name):
    case, known = recorded["robots"][case], robot(name)
    pipeline = Pipeline(known, case["norm_stats"], "openpi_quantile", tokenizer, image_size=28)
    state = np.concatenate(list(case["raw_state"].values()))
    observed = pipeline.observe(pictures_of(known), state, case["task"])

    expected = []
    for piece in case["text_pieces"]:
        expected += [tokenizer.bos] * piece["add_bos"] + tokenizer.encode(piece["text"])
    assert observed.tokens.tolist() == expected and observed.tokens.dtype == np.int64
    assert observed.images.shape == (2, 28, 28, 3) and observed.images.dtype == np.uint8
    np.testing.assert_allclose(observed.state, case["state_after_robot_transform"], rtol=0, atol=1e-9)

    model_actions = np.array(case["model_actions"])
    actions = pipeline.act(model_actions, observed.state)
    assert actions.dtype == np.float32
    np.testing.assert_allclose(actions, case["final_actions"], rtol=1e-6, atol=1e-6)
    again = pipeline.model_actions(np.array(case["final_actions"]), observed.state)
    assert again.dtype == np.float32 and again.shape == model_actions.shape
    np.testing.assert_allclose(again[:, : known.action_dim], model_actions[:, : known.action_dim], rtol=0, atol=1e-5)
    assert (again[:, known.action_dim :] == 0).all()


def test_a_left_over_is_told_relative_to_the_new_state(aloha, recorded):
    old = np.array(recorded["robots"]["aloha_pi05"]["state_after_robot_transform"])
    new = old + 0.1
    left_over = aloha.act(np.zeros((4, 32), np.float32), old)
    np.testing.assert_allclose(aloha.act(aloha.model_actions(left_over, new), new), left_over, rtol=0, atol=1e-5)
    assert np.abs(aloha.model_actions(left_over, new) - aloha.model_actions(left_over, old))[:, 0].min() > 0.05


def test_recorded_lerobot_prompts_and_pixels(recorded, tokenizer):
    tensors, texts = recorded["tensors"], recorded["texts"]
    measures = {
        key.split(".")[-1]: value
        for key, value in recorded["lerobot_statistics"].items()
        if key.startswith("observation.state")
    }
    statistics = {
        "state": Statistics(**{m: measures[m] for m in ("mean", "std", "q01", "q99")}),
        "actions": Statistics(q01=np.zeros(5), q99=np.ones(5)),
    }
    known = replace(
        robot("libero"), joints=("a", "b", "c", "d", "e"), actions=("a", "b", "c", "d", "e"), prompt="state"
    )
    current, padded = (
        Pipeline(
            known,
            statistics,
            "lerobot_quantiles",
            tokenizer,
            image_size=28,
            resize="lerobot",
            action_dim=8,
            padded_state_dim=p,
        )
        for p in (None, 8)
    )
    pictures = {"image": tensors["image_0_raw"], "wrist_image": tensors["image_3_raw"]}
    rows = zip(
        tensors["raw_state"],
        texts["tasks"],
        texts["prompt_with_state"],
        texts["prompt_with_state_padded_lerobot_0_4_4"],
    )
    for state, task, text, padded_text in rows:
        observed = current.observe(pictures, state, task)
        assert tokenizer.decode(observed.tokens) == text
        assert tokenizer.decode(padded.observe(pictures, state, task).tokens) == padded_text
    assert observed.images.dtype == np.float32
    for ours, index in zip(observed.images, (0, 3), strict=True):
        np.testing.assert_allclose(ours, tensors[f"image_{index}_lerobot"], rtol=0, atol=1e-5)


def test_cameras_come_in_model_order_and_missing_ones_are_left_out(aloha):
    state = np.zeros(14)
    shuffled = dict(reversed(PICTURES.items()))
    observed = aloha.observe(shuffled, state, "go")
    assert observed.cameras == ["cam_high", "cam_left_wrist", "cam_right_wrist"]
    for image, name in zip(observed.images, observed.cameras, strict=True):
        assert np.array_equal(image, resize_with_pad(PICTURES[name], 28))
    del shuffled["cam_left_wrist"]
    assert aloha.observe(shuffled, state, "go").cameras == ["cam_high", "cam_right_wrist"]


@pytest.mark.parametrize(
    "change, words",
    [
        ({"cam_high": None}, ("no picture of cam_high", "required")),
        ({"cam_low": PICTURES["cam_high"]}, ("cam_low", "cam_high, cam_left_wrist")),
        ({"cam_left_wrist": PICTURES["cam_high"].astype(np.float32)}, ("cam_left_wrist", "float32")),
        ({"cam_left_wrist": PICTURES["cam_high"][..., 0]}, ("cam_left_wrist", "[45, 60]")),
    ],
)
def test_pictures_that_do_not_fit(aloha, change, words):
    pictures = {name: image for name, image in {**PICTURES, **change}.items() if image is not None}
    with pytest.raises(InputError) as error:
        aloha.observe(pictures, np.zeros(14), "go")
    for word in words:
        assert word in str(error.value)


def test_a_camera_mounted_upside_down_is_turned_before_it_is_letterboxed(recorded, tokenizer):
    """F10"""
    known = robot("aloha_openpi")
    turned = replace(known, cameras=(replace(known.cameras[0], rotation=90), *known.cameras[1:]))
    pipeline = Pipeline(
        turned, recorded["robots"]["aloha_pi05"]["norm_stats"], "openpi_quantile", tokenizer, image_size=28
    )
    observed = pipeline.observe({"cam_high": PICTURES["cam_high"]}, np.zeros(14), "go")
    assert np.array_equal(observed.images[0], resize_with_pad(np.rot90(PICTURES["cam_high"], -1), 28))


def test_one_joint_one_word_or_one_pixel_changes_the_model_input(aloha):
    """F23"""
    base = aloha.observe(PICTURES, np.zeros(14), "go")
    moved = aloha.observe(PICTURES, np.eye(14)[3] * 0.05, "go")
    told = aloha.observe(PICTURES, np.zeros(14), "stop")
    painted = {**PICTURES, "cam_high": PICTURES["cam_high"].copy()}
    painted["cam_high"][10:20, 10:20] = 0
    assert moved.tokens.tolist() != base.tokens.tolist() != told.tokens.tolist()
    assert not np.array_equal(aloha.observe(painted, np.zeros(14), "go").images, base.images)


def test_state_and_task_that_cannot_be_used(aloha):
    state = np.zeros(14)
    state[4] = np.nan
    with pytest.raises(InputError, match="no finite left_wrist_angle"):
        aloha.observe(PICTURES, state, "go")
    with pytest.raises(InputError, match="14 dimensions"):
        aloha.observe(PICTURES, np.zeros(13), "go")
    with pytest.raises(InputError, match="blank"):
        aloha.observe(PICTURES, np.zeros(14), "  ")


def test_warnings_name_the_joint_and_both_token_counts(aloha):
    state = np.zeros(14)
    state[6] = 1.2
    observed = aloha.observe(PICTURES, state, "fold the towel and " * 300)
    gripper, shortened = observed.warnings
    assert gripper.startswith("left_gripper = 1.2") and "more than 200" in shortened
    assert len(observed.tokens) <= 200
    assert aloha.observe(PICTURES, np.zeros(14), "go").warnings == []


def test_statistics_are_checked_when_the_pipeline_is_built(recorded, tokenizer):
    measures = recorded["robots"]["aloha_pi05"]["norm_stats"]
    short = {**measures, "actions": {key: value[:6] for key, value in measures["actions"].items()}}
    with pytest.raises(InputError, match="actions: found 6 dimensions .*expected 14"):
        Pipeline(robot("aloha"), short, "openpi_quantile", tokenizer)
    with pytest.raises(InputError, match="state: found no q01"):
        Pipeline(robot("aloha"), {"actions": measures["actions"]}, "openpi_quantile", tokenizer)
    with pytest.raises(InputError, match="14 dimensions, expected at most the model's 8"):
        Pipeline(robot("aloha"), measures, "openpi_quantile", tokenizer, action_dim=8)
    with pytest.raises(InputError, match="'nearest'"):
        Pipeline(robot("aloha"), measures, "openpi_quantile", tokenizer, resize="nearest")
    mixed = Pipeline(robot("aloha"), measures, {"state": "openpi_quantile", "actions": "identity"}, tokenizer)
    assert mixed.act(np.full((1, 32), 0.25), np.zeros(14))[0, 0] == 0.25


PROMPTS = {"ask": "\nQuestion: {text}\nAnswer: ", "remember": "\nDescribe: ",
           "subtask": "Task: {instruction} Subtask: "}


def test_language_prompts_continue_the_prefix_or_are_all_of_it(recorded, tokenizer):
    aloha = aloha_with(recorded, tokenizer, language_prompts=PROMPTS)
    ids = aloha.language_prompt("ask", " what is\non the_table? ")
    assert ids.dtype == np.int64 and tokenizer.bos not in ids
    assert tokenizer.decode(ids) == "\nQuestion: what is on the table?\nAnswer: "
    assert tokenizer.decode(aloha.language_prompt("remember")) == "\nDescribe: "
    assert "{text}" in tokenizer.decode(aloha.language_prompt("ask", "is {text} fine?"))
    whole = aloha.language_prompt("subtask", instruction=" Fold the_towel! ", whole=True)
    assert whole.tolist() == [tokenizer.bos, *tokenizer.encode("Task: fold the towel. Subtask: ")]
    with pytest.raises(InputError, match="blank"):
        aloha.language_prompt("ask", " ")
    with pytest.raises(InputError, match="blank"):
        aloha.language_prompt("subtask")
    with pytest.raises(InputError, match="'sing', expected one of ask, remember, subtask"):
        aloha.language_prompt("sing")


def test_language_may_share_the_task_text_only(recorded, tokenizer, aloha):
    """The tokens up to there are the same for every state, so they may be shared by what does not read the state."""
    sharing = aloha_with(recorded, tokenizer, shares_task_only=True)
    picture = {"cam_high": np.zeros((4, 4, 3), np.uint8)}
    low, high = (sharing.observe(picture, np.full(14, value), "fold the towel") for value in (0.0, 0.3))
    assert low.shared_tokens == high.shared_tokens and low.tokens.tolist() != high.tokens.tolist()
    shared = low.tokens[: low.shared_tokens].tolist()
    assert shared == high.tokens[: low.shared_tokens].tolist()
    assert tokenizer.decode(shared[1:]).startswith("Task: fold the towel"[:-1]) and len(shared) < len(low.tokens)
    assert aloha.observe(picture, np.zeros(14), "fold").shared_tokens is None


def test_neither_ros_nor_torch_is_needed():
    code = """
import sys
for name in ("rclpy", "torch", "sensor_msgs"):
    sys.modules[name] = None
import oxygen_ros.embodiment.pipeline, oxygen_ros.embodiment.registry, oxygen_ros.embodiment.joints
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_prepared_pictures_are_those_very_ones(aloha):
    state = np.full(14, 0.5)
    plain = aloha.observe(PICTURES, state, "wave").images
    aloha.prepare(PICTURES)
    np.testing.assert_array_equal(aloha.observe(PICTURES, state, "wave").images, plain)
    # Another picture of the same camera is another picture, whatever was prepared.
    newer = {**PICTURES, "cam_high": PICTURES["cam_left_wrist"]}
    seen = aloha.observe(newer, state, "wave").images
    np.testing.assert_array_equal(seen[0], plain[1])
    np.testing.assert_array_equal(seen[1:], plain[1:])


def test_whatever_is_expected_the_observation_is_the_same(recorded, tokenizer):
    """Also where tasks are shortened, and stay as short as the longest state has made them."""
    guessing, plain = (aloha_with(recorded, tokenizer, max_tokens=100) for _ in range(2))
    joints = np.array(list(recorded["robots"]["aloha_pi05"]["raw_state"].values())[0])
    tasks = ["transfer the cube", "put every single one of the cubes into the box " * 2, "stop " * 60]
    states = [joints, joints + 0.1, np.zeros_like(joints)]
    shortened, random = 0, np.random.default_rng(3)
    for _ in range(60):
        for task, state in random.integers(3, size=(random.integers(3), 2)):
            guessing.expect(states[state], tasks[task])
        task, state = random.integers(3, size=2)
        ours, theirs = (p.observe(PICTURES, states[state], tasks[task]) for p in (guessing, plain))
        assert ours.tokens.tolist() == theirs.tokens.tolist() and ours.warnings == theirs.warnings
        assert np.array_equal(ours.state, theirs.state)
        shortened += "shortened" in str(ours.warnings)
    assert 20 < shortened < 60


def test_a_state_that_was_changed_in_place_is_another_one(aloha):
    joints = np.zeros(14)
    aloha.observe(PICTURES, joints, "go")
    joints[:] = 0.3
    seen = aloha.observe(PICTURES, joints, "go")
    other = aloha.observe(PICTURES, np.full(14, 0.3), "go")
    assert np.array_equal(seen.state, other.state) and seen.tokens.tolist() == other.tokens.tolist()
    assert np.array_equal(seen.state, aloha.robot.to_model_state(np.full(14, 0.3)))


def test_a_state_that_cannot_be_used_is_not_expected_either(aloha):
    joints = np.zeros(14)
    aloha.observe(PICTURES, joints, "go")
    for spoilt in (np.full(14, np.nan), np.zeros(13)):
        with pytest.raises(InputError, match="state"):
            aloha.expect(spoilt, "go")
        with pytest.raises(InputError, match="state"):
            aloha.observe(PICTURES, spoilt, "go")
