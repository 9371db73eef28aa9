"""What a folder is, is told by its content; what is not read is refused with the remedy."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from spoil import LAYER, assert_as_recorded, edit, outcome, weights, write

from oxygen_ros.checkpoint.errors import CheckpointError
from oxygen_ros.checkpoint.files import reading_safetensors
from oxygen_ros.checkpoint.load import load

NATIVE = Path(__file__).parents[2] / "resource" / "pi05_aloha_tiny"


def test_both_layouts_give_the_recorded_actions_and_tokens(folder):
    assert_as_recorded(folder)


def test_the_notes_say_what_was_found(lerobot_folder, openpi_folder):
    lerobot, openpi = load(lerobot_folder), load(openpi_folder)
    assert (lerobot.layout, openpi.layout) == ("lerobot", "openpi")
    assert lerobot.notes[0] == f"{lerobot_folder}: LeRobot policy folder, pi0.5, 113 tensors (113 F32) in 1 file"
    assert openpi.notes[0] == f"{openpi_folder}: openpi PyTorch folder, pi0.5, 112 tensors (112 F32) in 1 file"
    assert not [note for note in (*lerobot.notes, *openpi.notes) if note.startswith("warning")]


def test_both_layouts_hold_the_same_network(lerobot_folder, openpi_folder):
    lerobot, openpi = load(lerobot_folder).model(), load(openpi_folder).model()
    assert lerobot.config == openpi.config
    theirs = dict(openpi.named_parameters())
    assert theirs.keys() == dict(lerobot.named_parameters()).keys()
    assert all(torch.equal(value, theirs[name]) for name, value in lerobot.named_parameters())


def test_sizes_come_from_the_tensors(folder):
    config = load(folder).config
    assert (config.vision.width, config.vision.image_size, config.vision.depth) == (32, 28, 2)
    assert (config.backbone.width, config.backbone.head_dim, config.expert.mlp_dim) == (64, 16, 64)
    assert (config.vocab_size, config.action_dim, config.action_horizon, config.max_token_len) == (512, 8, 6, 12)


def test_a_lerobot_conversion_without_prefix(lerobot_folder):
    write(lerobot_folder, weights(lerobot_folder), prefix="")
    assert_as_recorded(lerobot_folder)


def shards(folder):
    """The folder's weights in three shards and an index -> the index' path."""
    tensors = weights(folder)
    names, map = sorted(tensors), {}
    for k in range(3):
        file = f"model-{k + 1:05d}-of-00003.safetensors"
        save_file({name: tensors[name] for name in names[k::3]}, folder / file)
        map |= dict.fromkeys(names[k::3], file)
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": map}))
    return index


def test_shards(folder):
    shards(folder)
    assert "in 3 files" in load(folder).notes[0]
    assert_as_recorded(folder)


def test_a_missing_shard_is_named(folder):
    shards(folder)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointError, match="names 3 files, but model-00002-of-00003.safetensors is missing"):
        load(folder)


def test_shards_without_their_index(folder):
    shards(folder).unlink()
    with pytest.raises(CheckpointError, match="model-00001-of-00003.safetensors.* is there, but no index"):
        load(folder)


def test_a_broken_index(folder):
    shards(folder).write_text('{"weights": 1}')
    with pytest.raises(CheckpointError, match="index.json is not a safetensors index"):
        load(folder)


def test_a_truncated_file(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(CheckpointError, match="model.safetensors cannot be read as safetensors .*copy the file again"):
        load(folder)


def test_a_file_that_may_not_be_read(folder):
    """The library says of it that it is not there."""
    file, me = folder / "model.safetensors", os.geteuid()
    file.chmod(0)
    try:
        os.seteuid(me or 65534)  # root may read everything
        with pytest.raises(CheckpointError, match="model.safetensors cannot be .*Permission denied"):
            with reading_safetensors(file):
                raise AssertionError("it may be read")
    finally:
        os.seteuid(me)


@pytest.mark.parametrize("name", ["model.pt", "pytorch_model.bin", "policy.ckpt", "weights.pth", "state.pkl"])
def test_pickles_are_refused_with_the_remedy(folder, name):
    (folder / "model.safetensors").rename(folder / name)
    with pytest.raises(CheckpointError, match=f"{name}: pickle .*safetensors.torch.save_file"):
        load(folder)


def test_pickles_beside_the_weights_are_left_alone(openpi_folder):
    """openpi's trainer leaves optimizer.pt and metadata.pt there."""
    for name in ("optimizer.pt", "metadata.pt"):
        (openpi_folder / name).write_bytes(b"\x80\x04not read")
    assert_as_recorded(openpi_folder)


def test_the_trainers_folder_has_no_config_and_so_no_horizon(openpi_folder):
    (openpi_folder / "config.json").unlink()
    assert load(openpi_folder).config.action_horizon == 6  # dims.json says so
    (openpi_folder / "dims.json").unlink()
    with pytest.raises(CheckpointError, match=r'config.json with {"action_horizon": N}'):
        load(openpi_folder)


def test_a_jax_checkpoint(tmp_path):
    (tmp_path / "params").mkdir()
    with pytest.raises(CheckpointError, match="JAX checkpoint .*convert_jax_model_to_pytorch"):
        load(tmp_path)


def test_the_folder_above_lerobots(tmp_path, lerobot_folder):
    shutil.move(lerobot_folder, tmp_path / "last" / "pretrained_model")
    with pytest.raises(CheckpointError, match="no model.safetensors .*the policy folder is .*last/pretrained_model"):
        load(tmp_path / "last")


def test_nothing_there(tmp_path):
    with pytest.raises(CheckpointError, match="neither model.safetensors nor model.safetensors.index.json"):
        load(tmp_path)
    with pytest.raises(CheckpointError, match="is not a folder"):
        load(tmp_path / "nowhere")


def test_a_lerobot_folder_without_its_config(lerobot_folder):
    (lerobot_folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match="is a LeRobot folder, but its config.json is missing"):
        load(lerobot_folder)


def test_another_lerobot_policy(lerobot_folder):
    edit(lerobot_folder / "config.json", lambda c: c.update(type="act"))
    with pytest.raises(CheckpointError, match="of type 'act'; only pi05 is read"):
        load(lerobot_folder)


def test_pi0_is_told_from_its_tensors(openpi_folder):
    tensors = {n: v for n, v in weights(openpi_folder).items() if ".dense." not in n and "time" not in n}
    tensors |= {"state_proj.weight": torch.ones(32, 8), "action_time_mlp_in.weight": torch.ones(32, 64)}
    write(openpi_folder, tensors)
    with pytest.raises(CheckpointError, match="this is a pi0 checkpoint, not pi0.5"):
        load(openpi_folder)


def test_pi0_names_of_the_time_projection(openpi_folder):
    """LeRobot reads pi0.5 conversions that kept them; so do we, and the state projection is a left-over."""
    tensors = {name.replace("time_mlp_", "action_time_mlp_"): v for name, v in weights(openpi_folder).items()}
    write(openpi_folder, tensors | {"state_proj.weight": torch.ones(32, 8)})
    assert_as_recorded(openpi_folder)
    assert not [note for note in load(openpi_folder).notes if note.startswith("warning")]


def test_something_else(openpi_folder):
    write(openpi_folder, {"encoder.weight": torch.ones(3)})
    with pytest.raises(CheckpointError, match="not pi0.5's.*the 1 found, such as encoder.weight"):
        load(openpi_folder)


@pytest.mark.parametrize("feature", [
    {"use_visual_memory": True}, {"use_proprioceptive_memory": True}, {"rtc_training_max_delay": 4},
])
def test_what_changes_the_network_is_refused(lerobot_folder, feature):
    edit(lerobot_folder / "config.json", lambda c: c.update(dict.fromkeys(feature)))
    load(lerobot_folder)
    edit(lerobot_folder / "config.json", lambda c: c.update(feature))
    (name, value), = feature.items()
    with pytest.raises(CheckpointError, match=f"config.json sets {name} = {value}"):
        load(lerobot_folder)


@pytest.mark.parametrize("change", [
    lambda c: c.update(input_features=3), lambda c: c.update(input_features={"observation.images.x": "VISUAL"}),
    lambda c: c.update(chunk_size="fifty"), lambda c: c.update(normalization_mapping=["QUANTILES"]),
], ids=["number", "text for an object", "text for a number", "list for an object"])
def test_a_config_of_another_shape_is_one_line(lerobot_folder, change):
    edit(lerobot_folder / "config.json", change)
    with pytest.raises(CheckpointError) as error:
        load(lerobot_folder)
    assert "JSON files" in str(error.value) or "config.json" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("keys, value", [
    (("conventions", "normalization"), {}), (("conventions", "normalization"), None), (("conventions", "resize"), {}),
    (("conventions", "normalization", "state"), 3), (("model", "vision", "patch_size"), 0),
    (("model", "vision", "depth"), "four"), (("model", "vision", "depth"), 0),
    (("model", "vision", "width"), 4 * 10**9), (("weights",), []),
], ids=lambda value: str(value))
def test_a_config_of_ours_that_somebody_changed_is_one_line(tmp_path, keys, value):
    shutil.copytree(NATIVE, tmp_path / "ours")

    def change(content):
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    edit(tmp_path / "ours" / "config.json", change)
    with pytest.raises(CheckpointError) as error:
        load(tmp_path / "ours")
    assert str(tmp_path / "ours") in str(error.value) and "\n" not in str(error.value)


def test_quantised_weights(folder):
    tensors = weights(folder)
    name = LAYER + "mlp.down_proj.weight"
    write(folder, tensors | {name: tensors[name].to(torch.int8)})
    with pytest.raises(CheckpointError, match=f"1 weights .*{name} \\(I8\\); known: F32, F16.*without quantisation"):
        load(folder)


def test_progress_counts_and_may_end_the_loading(folder):
    class Enough(Exception):
        pass

    def count(done, total):
        seen.append((done, total))
        if done == 3:
            raise Enough

    seen: list = []
    with pytest.raises(Enough):
        load(folder).model(progress=count)
    assert seen == [(1, 85), (2, 85), (3, 85)]


def test_tokens_and_actions_depend_on_the_weights(folder):
    """Guards the tests of this folder: a changed weight does not pass for the recorded policy."""
    tensors = weights(folder)
    tensors[LAYER + "self_attn.o_proj.weight"] += 0.5
    write(folder, tensors)
    with pytest.raises(AssertionError):
        assert_as_recorded(folder)
    assert outcome(load(folder))[0].isfinite().all()
