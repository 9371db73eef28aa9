"""From robot observation to robot action on the public layouts, beside the same written out by other means.

Pixels, states and prompt texts are those that LeRobot and openpi themselves recorded in the reference folder; the
network is test/pi05/plain.py in float64; normalisation is spelled out here.
"""

from __future__ import annotations

import json
import shutil
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tokenizers
import torch
from policy_folders import REFERENCE, edit, edit_step, tokenizer_model, write_folder
from safetensors.numpy import load_file

from oxygen_ros.checkpoint.conventions import Conventions
from oxygen_ros.checkpoint.convert import convert
from oxygen_ros.checkpoint.errors import CheckpointError
from oxygen_ros.checkpoint.load import load
from oxygen_ros.embodiment.errors import InputError
from oxygen_ros.engine.outputs import Actions
from oxygen_ros.fitting import fit
from oxygen_ros.policy import load_policy
from oxygen_ros.settings import SettingsError, read

sys.path.append(str(Path(__file__).parent / "pi05"))
from plain import PlainPi05  # noqa: E402

DEFAULT = Path(__file__).resolve().parents[1] / "resource" / "pi05_aloha_tiny"
SLOTS = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")
JOINTS = ["j1", "j2", "j3", "j4", "j5"]
ARM = {
    "robot": "arm", "joints": JOINTS, "actions": [*JOINTS, "gripper"], "step_dt": 0.05, "threads": 1,
    "cameras": ["top", "left", "right"], **{f"camera.{n}.slot": s for n, s in zip(("top", "left", "right"), SLOTS)},
}  # fmt: skip
TENSORS = load_file(REFERENCE / "preprocess.safetensors")
TEXTS = json.loads((REFERENCE / "preprocess.json").read_text())
MEASURES = json.loads((REFERENCE / "openpi/assets/tiny/norm_stats.json").read_text())["norm_stats"]
Q01, Q99 = (np.array(MEASURES["actions"][m]) for m in ("q01", "q99"))
PICTURES = {name: TENSORS[f"image_{i}_raw"] for name, i in zip(("top", "left", "right"), (0, 1, 3))}
TOLERANCE = 3e-5  # of actions in model scale, same schedule (pi05.md section 12)


@pytest.fixture(scope="module")
def pieces():
    return tokenizer_model()


@pytest.fixture
def make(tmp_path, pieces):
    return lambda layout, tokenizer=pieces: write_folder(layout, tmp_path / layout, tokenizer)


def policy_of(folder, say=lambda line: None, **changes):
    return load_policy(read({**ARM, "policy": str(folder), **changes}), say)


def frame(policy, pictures, state, task):
    """One frame: what the model was given, its actions [H, A], and the robot's [H, action_dim]."""
    seen = policy.pipeline.observe(pictures, state, task)
    observation = replace(policy.observation(seen, 0), noise=torch.from_numpy(noise()))
    actions = next(output for output in policy.engine.frame(observation) if isinstance(output, Actions)).actions
    return seen, actions.numpy(), policy.robot_actions(actions, seen)


def noise():
    return np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)


def by_hand(policy, pixels, tokens, accumulated):
    """Model actions [H, A] from pixels [C, 3, S, S] in [-1, 1], in float64 but for openpi's clock."""
    network = PlainPi05(load(policy.folder).model())
    images = [network.image_tokens(torch.tensor(np.array(p), dtype=torch.float64)) for p in pixels]
    prefix = torch.cat([*images, network.embed(torch.tensor(tokens))])
    valid = torch.ones(len(prefix), dtype=torch.bool)
    x, clock = torch.from_numpy(noise()).double(), np.float32(1)
    for step in range(10):
        now = float(clock) if accumulated else 1 - step / 10
        x = x - network.run(prefix, valid, len(prefix), x, now)[1] / 10
        clock = np.float32(clock + np.float32(-0.1))
    return x.numpy()


def unnormalized(actions, layout):
    spread = Q99 - Q01 + (1e-6 if layout == "openpi" else 0)
    return (actions[:, :6] + 1) / 2 * spread + Q01


def pixels_of(index, layout):
    if layout == "openpi":
        return TENSORS[f"image_{index}_openpi_client_uint8"].transpose(2, 0, 1) / 127.5 - 1
    return TENSORS[f"image_{index}_lerobot"]


@pytest.mark.parametrize("layout", ["openpi", "lerobot"])
def test_the_whole_way_equals_the_same_by_hand(make, pieces, layout):
    log = []
    policy = policy_of(make(layout), log.append)
    assert policy.layout == layout and policy.robot.name == "arm"
    processor = sentencepiece.SentencePieceProcessor(model_proto=pieces)
    pixels = [pixels_of(index, layout) for index in (0, 1, 3)]
    for state, task, text in zip(TENSORS["raw_state"], TEXTS["tasks"], TEXTS["prompt_with_state"]):
        seen, model_actions, robot_actions = frame(policy, PICTURES, state, task)
        assert seen.tokens.tolist() == [2, *processor.encode(text)]
        expected = by_hand(policy, pixels, seen.tokens.tolist(), accumulated=layout == "openpi")
        assert np.abs(model_actions - expected).max() < TOLERANCE
        assert robot_actions.shape == (6, 6) and robot_actions.dtype == np.float32
        assert (np.abs(robot_actions - unnormalized(expected, layout)) / (Q99 - Q01)).max() < TOLERANCE
    told = "\n".join(log)
    rules = "with antialiasing" if layout == "openpi" else "without antialiasing"
    for word in (rules, "quantile", "prompt form state", "top as base_0_rgb, left", "relative actions none", "on cpu"):
        assert word.lower() in told.lower()


def test_both_layouts_of_the_same_weights_give_the_same_actions(make):
    openpi, lerobot = policy_of(make("openpi")), policy_of(make("lerobot"))
    square = {name: TENSORS["image_0_openpi_client_uint8"] for name in PICTURES}  # of the model's size
    for state, task in zip(TENSORS["raw_state"], TEXTS["tasks"]):
        first, second = (frame(policy, square, state, task) for policy in (openpi, lerobot))
        assert first[0].tokens.tolist() == second[0].tokens.tolist()
        assert np.abs(first[1] - second[1]).max() < 5e-4  # the schedules differ
        assert (np.abs(first[2] - second[2]) / (Q99 - Q01)).max() < 5e-4


@pytest.mark.parametrize("layout", ["openpi", "lerobot"])
def test_units_deltas_rotation_and_a_missing_camera(make, pieces, layout):
    """A robot whose second joint counts the other way, whose fifth is a gripper of 0.02 open to 0.1 closed in metres,
    whose first camera hangs upside down, and which has no third one; the policy reads no state."""
    own = {
        "delta": ["j1", "j2"], "flip": ["j2"], "grippers": ["j5"], "gripper.j5.closed": 0.1, "gripper.j5.open": 0.02,
        "cameras": ["hand", "overview"], "camera.hand.slot": SLOTS[1], "camera.overview.slot": SLOTS[0],
        "camera.overview.rotation": 180, "prompt": "plain",
    }  # fmt: skip
    values = {key: value for key, value in ARM.items() if not key.startswith("camera.")}
    policy = load_policy(read({**values, **own, "policy": str(make(layout))}))
    state = np.array([0.1, 0.2, 0.3, 0.4, 0.04])
    pictures = {"hand": PICTURES["left"], "overview": PICTURES["top"][::-1, ::-1]}
    seen, model_actions, robot_actions = frame(policy, pictures, state, " Fold_the towel. ")
    assert seen.cameras == ["overview", "hand"]
    processor = sentencepiece.SentencePieceProcessor(model_proto=pieces)
    assert seen.tokens.tolist() == [2, *processor.encode("Fold the towel."), *processor.encode("\n")]
    pixels = [pixels_of(0, layout), pixels_of(1, layout)]
    expected = by_hand(policy, pixels, seen.tokens.tolist(), accumulated=layout == "openpi")
    assert np.abs(model_actions - expected).max() < TOLERANCE
    expected = unnormalized(expected, layout)
    expected[:, 0] += 0.1
    expected[:, 1] = -(expected[:, 1] - 0.2)
    expected[:, 4] = 0.1 + expected[:, 4] * (0.02 - 0.1)
    assert np.abs(robot_actions - expected).max() < 1e-4


def test_a_folder_of_lerobot_0_4_is_fed_as_0_4_did(make, pieces):
    log = []
    policy = policy_of(make("lerobot_0_4"), log.append)
    for state, task, text in zip(
        TENSORS["raw_state"], TEXTS["tasks"], TEXTS["prompt_with_state_padded_lerobot_0_4_4"]
    ):
        seen, *_ = frame(policy, PICTURES, state, task)
        assert seen.tokens.tolist() == [2, *sentencepiece.SentencePieceProcessor(model_proto=pieces).encode(text)]
    assert "LeRobot 0.4" in "\n".join(log)
    recorded = np.stack([pixels_of(index, "lerobot") for index in (0, 1, 3)])
    black = np.isclose(seen.images, -3)
    assert black.any() and (recorded[black] == -1).all()
    np.testing.assert_allclose(seen.images[~black], recorded[~black], rtol=0, atol=1e-5)


@pytest.mark.parametrize("layout", ["openpi", "lerobot", "lerobot_0_4"])
def test_a_converted_folder_gives_the_same_actions(make, tmp_path, layout):
    source = make(layout)
    convert(load(source), tmp_path / "ours")
    ours, theirs = policy_of(tmp_path / "ours"), policy_of(source)
    assert ours.layout == "oxygen"
    for state, task in zip(TENSORS["raw_state"], TEXTS["tasks"]):
        (seen, _, actions), (their_seen, _, their_actions) = (frame(p, PICTURES, state, task) for p in (ours, theirs))
        assert np.array_equal(seen.images, their_seen.images) and np.array_equal(seen.tokens, their_seen.tokens)
        assert np.array_equal(actions, their_actions)


def test_lerobot_s_mean_and_deviation(make):
    folder = make("lerobot")
    norm_map = {"VISUAL": "IDENTITY", "STATE": "MEAN_STD", "ACTION": "MEAN_STD"}
    for step in ("normalizer_processor", "unnormalizer_processor"):
        edit_step(folder, step, norm_map=norm_map)
    edit(folder / "config.json", lambda config: config.update(normalization_mapping=norm_map))
    policy, state = policy_of(folder), TENSORS["raw_state"][0]
    seen, model_actions, robot_actions = frame(policy, PICTURES, state, "go")
    mean, std = (np.array(MEASURES["actions"][m]) for m in ("mean", "std"))
    np.testing.assert_allclose(robot_actions, model_actions[:, :6] * std + mean, rtol=0, atol=1e-5)
    mean, std = (np.array(MEASURES["state"][m]) for m in ("mean", "std"))
    bins = np.floor(((state - mean) / (std + 1e-8) + 1) * 128).clip(-1, 255).astype(int)
    written = policy.pipeline.tokenizer.decode(seen.tokens)
    assert written == f"Task: go, State: {' '.join(map(str, bins))};\nAction: "


def name_features(folder, *names):
    def change(config):
        features = config["input_features"]
        visual = {key: value for key, value in features.items() if value["type"] == "VISUAL"}
        renamed = {f"observation.images.{name}": value for name, value in zip(names, visual.values(), strict=True)}
        config["input_features"] = {**renamed, "observation.state": features["observation.state"]}

    edit(folder / "config.json", change)
    return folder


def test_lerobot_cameras_by_name_by_slot_or_refused_with_both_lists(make):
    folder, log = name_features(make("lerobot"), "wrist", "top", "front"), []
    slots = {"camera.left.slot": "wrist", "camera.right.slot": "front", "camera.top.slot": ""}
    by_slot = policy_of(folder, log.append, **slots)
    assert frame(by_slot, PICTURES, np.zeros(5), "go")[0].cameras == ["left", "top", "right"]
    assert "left as wrist, top, right as front" in "\n".join(log)
    two = {**{k: v for k, v in ARM.items() if not k.startswith("camera.")}, "cameras": ["front", "wrist"]}
    log.clear()
    by_name = load_policy(read({**two, "policy": str(folder)}), log.append)
    assert frame(by_name, {"front": PICTURES["top"], "wrist": PICTURES["left"]}, np.zeros(5), "go")[0].cameras == [
        "wrist", "front"
    ]  # fmt: skip
    assert "without top" in "\n".join(log)
    crossed = {"camera.front.slot": "observation.images.wrist", "camera.wrist.slot": "front"}
    by_parameter = load_policy(read({**two, **crossed, "policy": str(folder)}))
    assert [camera.name for camera in by_parameter.robot.cameras] == ["front", "wrist"]
    with pytest.raises(InputError) as error:
        policy_of(folder)
    for word in ("left (slot left_wrist_0_rgb)", "wrist, top, front", "camera.<name>.slot"):
        assert word in str(error.value)


def relative(folder, names=(*JOINTS, "Gripper_Main")):
    names = list(names)
    edit(folder / "config.json", lambda config: config.update(use_relative_actions=True, action_feature_names=names))
    edit_step(folder, "relative_actions_processor", enabled=True, action_names=names)
    edit_step(folder, "absolute_actions_processor", enabled=True)
    return folder


def test_lerobot_s_relative_actions_are_the_folder_s_to_say(make):
    folder, log = make("lerobot"), []
    absolute = policy_of(folder)
    state = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    base = frame(absolute, PICTURES, state, "go")[2]
    policy = policy_of(relative(folder), log.append)
    moved = frame(policy, PICTURES, state, "go")[2]
    np.testing.assert_allclose(moved - base, np.tile([*state, 0], (6, 1)), rtol=0, atol=1e-5)
    assert "relative actions j1, j2, j3, j4, j5" in "\n".join(log)
    assert policy_of(folder, delta=JOINTS).robot.delta == tuple(JOINTS)
    with pytest.raises(SettingsError, match="delta lists j1, expected the relative actions of the policy: j1, j2"):
        policy_of(folder, delta=["j1"])
    with pytest.raises(CheckpointError, match="2 actions .*the robot 6"):
        policy_of(relative(folder, names=("a", "b")))


def test_a_known_robot_s_deltas_are_openpi_s_not_those_of_a_lerobot_policy():
    values = {"robot": "aloha", "cameras": ["cam_high"]}
    openpi, log = load(DEFAULT), []
    lerobot = replace(openpi, conventions=Conventions(resize="lerobot"))
    assert len(fit(read(values), openpi, log.append).delta) == 12 and "absolute" not in "\n".join(log)
    assert fit(read(values), lerobot, log.append).delta == () and "absolute" in "\n".join(log)
    assert fit(read({**values, "delta": ["left_waist"]}), lerobot, log.append).delta == ("left_waist",)
    assert "warning: this LeRobot folder has absolute actions" in "\n".join(log)
    assert "set flip: [none] and grippers: [none]" in "\n".join(log)
    log.clear()
    plain = fit(read({**values, "flip": ["none"], "grippers": ["none"]}), lerobot, log.append)
    assert plain.to_model_state(np.arange(14.0)).tolist() == list(range(14)) and "warning" not in "\n".join(log)


@pytest.mark.parametrize("prompt, form", [("", "state"), ("plain", "plain"), ("subtask", "subtask")])
def test_the_prompt_form_is_the_parameter_s_else_the_folder_s(make, prompt, form):
    folder, log = make("lerobot"), []
    policy = policy_of(folder, log.append, prompt=prompt)
    assert policy.robot.prompt == form and f"prompt form {form}" in "\n".join(log)


# Tokenizer (F19)


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a socket was opened")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)


@pytest.mark.parametrize("layout", ["openpi", "lerobot"])
def test_a_tokenizer_in_the_folder_or_by_parameter(make, tmp_path, pieces, no_network, layout):
    expected = frame(policy_of(make(layout)), PICTURES, np.zeros(5), "go")[0].tokens.tolist()
    (tmp_path / layout / "tokenizer.model").rename(tmp_path / "elsewhere.model")
    for place in ("elsewhere.model", "folder"):
        (tmp_path / "folder").mkdir(exist_ok=True)
        shutil.copy(tmp_path / "elsewhere.model", tmp_path / "folder" / "paligemma_tokenizer.model")
        policy = policy_of(tmp_path / layout, tokenizer=str(tmp_path / place))
        assert frame(policy, PICTURES, np.zeros(5), "go")[0].tokens.tolist() == expected


def test_a_hugging_face_file_alone(make, no_network):
    folder = make("openpi", tokenizer=None)
    pieces = {piece: i for i, piece in enumerate(["<pad>", "<eos>", "<bos>", "<unk>", *map(chr, range(10, 127))])}
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=pieces, merges=[], unk_token="<unk>"))
    inner.add_special_tokens(["<pad>", "<eos>", "<bos>", "<unk>"])
    inner.save(str(folder / "tokenizer.json"))
    tokens = frame(policy_of(folder), PICTURES, np.zeros(5), "go")[0].tokens.tolist()
    assert tokens[:4] == [2, pieces["T"], pieces["a"], pieces["s"]] and tokens[-1] == pieces[" "]


@pytest.mark.parametrize("layout", ["openpi", "lerobot"])
def test_no_tokenizer_is_told_at_once_with_names_and_place_and_asks_nobody(make, no_network, layout):
    folder = make(layout, tokenizer=None)  # LeRobot's preprocessor names google/paligemma-3b-pt-224
    began = time.monotonic()
    with pytest.raises(InputError) as error:
        policy_of(folder)
    assert time.monotonic() - began < 1
    for word in ("tokenizer.model", "paligemma_tokenizer.model", "tokenizer.json", str(folder), "parameter tokenizer"):
        assert word in str(error.value)


def test_a_tokenizer_of_another_policy(make):
    with pytest.raises(CheckpointError, match="648 pieces.*embedding 512"):
        policy_of(make("openpi"), tokenizer=str(DEFAULT))


# Statistics (F31, F33)


def statistics_of(folder, change):
    edit(folder / "assets/tiny/norm_stats.json", lambda content: change(content["norm_stats"]))
    return folder


def resized(feature, width):
    def change(statistics):
        for measure, values in statistics[feature].items():
            statistics[feature][measure] = (values + [0.0] * width)[:width]

    return change


@pytest.mark.parametrize("feature, width", [("state", 5), ("actions", 6)])
def test_statistics_narrower_than_the_robot(make, feature, width):
    folder = statistics_of(make("openpi"), resized(feature, width - 1))
    with pytest.raises(InputError, match=f"statistics of {feature}: found {width - 1} dimensions.*expected {width}"):
        policy_of(folder)


def test_statistics_wider_than_the_robot(make):
    folder, log = make("openpi"), []
    expected = frame(policy_of(folder, log.append), PICTURES, np.zeros(5), "go")[2]
    for feature in ("state", "actions"):
        statistics_of(folder, resized(feature, 32))
    assert np.array_equal(frame(policy_of(folder, log.append), PICTURES, np.zeros(5), "go")[2], expected)
    assert "warning" not in "\n".join(log)
    narrow = {"joints": JOINTS[:4], "actions": JOINTS[:4]}
    policy_of(folder, log.append, **narrow)
    assert "statistics of state have 32 dimensions" in "\n".join(log)
    with pytest.raises(InputError, match="statistics of state: found 5 dimensions.*expected 4"):
        policy_of(make("lerobot"), **narrow)


def test_more_actions_than_the_model_has(make):
    with pytest.raises(InputError, match="actions of arm: found 9 dimensions, expected at most the model's 8"):
        policy_of(make("openpi"), actions=list("abcdefghi"))


def test_several_statistics_and_none(make):
    folder = make("openpi")
    shutil.copytree(folder / "assets" / "tiny", folder / "assets" / "other" / "arm")
    with pytest.raises(CheckpointError, match="other/arm, tiny.*asset_id"):
        policy_of(folder)
    log = []
    policy_of(folder, log.append, asset_id="other/arm")
    assert "other/arm/norm_stats.json" in "\n".join(log)
    shutil.rmtree(folder / "assets")
    with pytest.raises(CheckpointError, match="no normalisation statistics"):
        policy_of(folder)
    raw = policy_of(folder, log.append, identity_statistics=True)
    seen, model_actions, robot_actions = frame(raw, PICTURES, np.zeros(5), "go")
    assert np.array_equal(model_actions[:, :6], robot_actions) and "warning: no statistics" in "\n".join(log)


# Robot and policy


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"policy": ""}, ("policy is empty",)),
        ({"robot": "alhoa", "joints": [], "actions": []}, ("'alhoa'", "aloha", "config/generic.yaml")),
        ({"robot": "", "joints": [], "actions": []}, ("robot is empty and the policy names none",)),
        ({"device": "tpu"}, ("device", "'tpu'")),
        ({"device": "meta"}, ("device", "'meta'", "cannot use")),
        ({"policy": "package://"}, ("package://",)),
        ({"policy": "~nobody_of_this_name/policy"}, ("~nobody_of_this_name/policy cannot be found",)),
        ({"policy": "/x" * 3000}, ("cannot be found", "too long")),
    ],
)
def test_settings_that_no_policy_can_run_with(make, changes, words):
    values = {**ARM, "policy": str(make("openpi")), **changes}
    with pytest.raises(SettingsError) as error:
        load_policy(read(values))
    for word in words:
        assert word in str(error.value)


def test_the_robot_that_the_policy_names():
    log = []
    policy = load_policy(read({"policy": str(DEFAULT), "cameras": ["cam_high"]}), log.append)
    assert policy.robot.name == "aloha" and "warning: the weights are random" in "\n".join(log)


def test_a_rehearsal_changes_nothing_that_comes_after():
    """The first real chunk is the same with and without it, and it leaves no request and no slot behind."""

    def first_chunk(rehearsed):
        policy = load_policy(read({"policy": str(DEFAULT), "cameras": ["cam_high"], "seed": 3}))
        if rehearsed:
            policy.rehearse(["cam_high"])
        state = policy.robot.to_robot_state(np.zeros(14))
        seen = policy.pipeline.observe({"cam_high": np.full((48, 64, 3), 90, np.uint8)}, state, "transfer the cube")
        actions, stats = policy.engine.frame(policy.observation(seen, 5))
        assert stats.slots_used == 0 and seen.cameras == ["cam_high"]
        return actions.actions

    assert torch.equal(first_chunk(True), first_chunk(False))
