"""One error lists all that is missing, extra or misshapen by part of the network, with the likely cause."""

import pytest
import torch
from spoil import EMBEDDING, HEAD, LAYER, weights, write

from oxygen_ros.checkpoint.errors import CheckpointError
from oxygen_ros.checkpoint.inventory import take_inventory
from oxygen_ros.checkpoint.layouts import sources
from oxygen_ros.checkpoint.load import load
from oxygen_ros.checkpoint.sizes import Stated, infer_config
from oxygen_ros.pi05.config import PRESETS

EXPERT = "paligemma_with_expert.gemma_expert.model."
VISION = "paligemma_with_expert.paligemma.model.vision_tower.vision_model."


def refusal(folder, tensors) -> str:
    write(folder, tensors)
    with pytest.raises(CheckpointError) as error:
        load(folder)
    return str(error.value)


def test_every_part_is_listed_with_expected_and_found_shape(folder):
    tensors = weights(folder)
    del tensors[VISION + "embeddings.position_embedding.weight"], tensors[LAYER + "mlp.down_proj.weight"]
    del tensors[EXPERT + "norm.dense.bias"], tensors["time_mlp_out.weight"]
    tensors[LAYER + "self_attn.k_proj.weight"] = torch.ones(48, 64)
    tensors["action_in_proj.weight"] = torch.ones(32, 9)
    tensors |= {"value_head.weight": torch.ones(2), HEAD: torch.ones(512, 63), EMBEDDING: torch.ones(512, 64)}
    # 256 positions where no tensor shows how many: the released model's.
    lines = refusal(folder, tensors).splitlines()
    assert lines[0] == f"{folder} is not a whole pi0.5 policy:"
    assert lines[1:-1] == [
        "  action and time projections: 1 missing: time_mlp_out.weight [32, 32]",
        "  action and time projections: 1 of another shape: action_in_proj.weight: found [32, 9], expected [32, 8]",
        f"  backbone: 1 missing: {LAYER}mlp.down_proj.weight [64, 128]",
        f"  backbone: 1 of another shape: {LAYER}self_attn.k_proj.weight: found [48, 64], expected [16, 64]",
        f"  expert: 1 missing: {EXPERT}norm.dense.bias [96]",
        f"  language head: 1 of another shape: {HEAD}: found [512, 63], expected [512, 64]",
        "  unknown: 1 not part of pi0.5: value_head.weight",
        f"  vision tower: 1 missing: {VISION}embeddings.position_embedding.weight [256, 32]",
    ]


def test_a_lost_part_is_a_broken_copy(folder):
    tensors = {name: value for name, value in weights(folder).items() if VISION not in name or "layers.1." not in name}
    told = refusal(folder, tensors | {VISION + "encoder.layers.1.layer_norm1.weight": torch.ones(32)})
    assert "vision tower: 15 missing: " in told and "and 9 more" in told
    assert told.endswith("likely cause: an interrupted copy or conversion, or only a part of the policy was saved")


def test_the_last_layer_lost_on_one_side(folder):
    tensors = {name: value for name, value in weights(folder).items() if EXPERT + "layers.2." not in name}
    told = refusal(folder, tensors)
    assert "expert: 11 missing" in told and f"{EXPERT}layers.2.input_layernorm.dense.bias [96]" in told


def test_another_variant(folder):
    tensors = {
        name: torch.ones(value.shape[0], 40) if name.startswith(EXPERT) and "mlp.gate_proj" in name
        else torch.ones(96, 40) if name.startswith(EXPERT) and "dense.weight" in name else value
        for name, value in weights(folder).items()
    }
    told = refusal(folder, tensors)
    assert "found [96, 40], expected [96, 32]" in told
    assert told.endswith("likely cause: another variant of the network than pi0.5's (gemma_2b with gemma_300m)")


def test_one_changed_tensor(folder):
    told = refusal(folder, weights(folder) | {LAYER + "input_layernorm.weight": torch.ones(65)})
    assert f"{LAYER}input_layernorm.weight: found [65], expected [64]" in told
    assert "changed after the policy was saved" in told


def test_other_names(folder):
    tensors = {name.replace("self_attn", "attention"): value for name, value in weights(folder).items()}
    assert refusal(folder, tensors).endswith("written by other software, or by another version of it")


def test_config_and_weights_of_two_policies(openpi_folder):
    (openpi_folder / "config.json").write_text('{"action_dim": 32, "action_horizon": 6}')
    with pytest.raises(CheckpointError, match="action_in_proj.weight: found \\[32, 8\\], expected \\[32, 32\\]"):
        load(openpi_folder)


def test_a_vision_tower_that_must_say_its_heads(folder):
    (folder / "dims.json").unlink()
    with pytest.raises(CheckpointError, match="width 32 with 4 positions .*give its num_heads in a dims.json"):
        load(folder)


def test_the_released_size_is_expected_whole():
    """Names and shapes of pi05.md section 10.2; what is as wide as the released model must be as deep."""
    whole = {s.name: s.shape for stored in sources(PRESETS["pi05"], {HEAD}).values() for s in stored}
    assert len(whole) == 811  # 812 with the expert's unused head
    assert whole[VISION + "embeddings.patch_embedding.weight"] == (1152, 3, 14, 14)
    assert whole[LAYER + "self_attn.k_proj.weight"] == (256, 2048)
    assert whole[EXPERT + "layers.17.mlp.gate_proj.weight"] == (4096, 1024)
    assert whole[EXPERT + "norm.dense.weight"] == (3072, 1024)
    assert infer_config(whole, Stated(action_horizon=50)) == PRESETS["pi05"]
    cut = {name: shape for name, shape in whole.items() if "layers.17." not in name and "layers.26." not in name}
    config = infer_config(cut, Stated(action_horizon=50))
    assert config == PRESETS["pi05"]
    missing = take_inventory(cut, sources(config, cut)).missing
    assert len(missing) == 9 + 11 + 2 * 16  # the vision tower has both layers
