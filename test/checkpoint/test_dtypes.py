"""F28: what type the file has does not matter to what is computed, and no infinity gets into a network."""

import pytest
import torch
from spoil import LAYER, outcome, weights, write

from oxygen_ros.checkpoint.errors import CheckpointError
from oxygen_ros.checkpoint.load import load

NORMS = ("layernorm", "layer_norm", "norm.weight", "dense")


@pytest.fixture
def rounded(folder):
    """Weights rounded to bfloat16, and what their policy does when they are stored as float32."""
    tensors = {name: value.bfloat16() for name, value in weights(folder).items()}
    write(folder, {name: value.float() for name, value in tensors.items()})
    return tensors, outcome(load(folder))


@pytest.mark.parametrize("stored", ["all bfloat16", "norms float32", "norms float16", "all float64"])
def test_equal_values_give_equal_chunks(folder, rounded, stored):
    tensors, (actions, tokens) = rounded
    kinds = {"all bfloat16": (torch.bfloat16,) * 2, "norms float32": (torch.float32, torch.bfloat16),
             "norms float16": (torch.float16, torch.bfloat16), "all float64": (torch.float64,) * 2}
    norms, rest = kinds[stored]
    write(folder, {
        name: value.to(norms if any(part in name for part in NORMS) else rest) for name, value in tensors.items()
    })
    checkpoint = load(folder)
    again, same = outcome(checkpoint)
    # float16 has more digits than bfloat16, but the norms' small values may fall below its range.
    torch.testing.assert_close(again, actions, atol=1e-4 if stored == "norms float16" else 0, rtol=0)
    assert same == tokens
    expected = {"all bfloat16": "BF16)", "norms float32": "F32", "norms float16": "F16", "all float64": "F64)"}
    assert expected[stored] in checkpoint.notes[0]


def test_float16_file(folder):
    tensors = {name: value.half() for name, value in weights(folder).items()}
    write(folder, {name: value.float() for name, value in tensors.items()})
    actions, tokens = outcome(load(folder))
    write(folder, tensors)
    again, same = outcome(load(folder))
    assert torch.equal(again, actions) and same == tokens


def test_computing_in_bfloat16(folder):
    """pi05.md section 11: at most 0.021 on the tiny model's actions; what openpi keeps in float32 stays there."""
    exact, _ = outcome(load(folder))
    checkpoint = load(folder)
    rough, _ = outcome(checkpoint, dtype=torch.bfloat16)
    assert rough.dtype == torch.float32
    assert 1e-4 < (rough - exact).abs().max() < 0.05
    model = checkpoint.model(dtype=torch.bfloat16)
    kinds = {name: value.dtype for name, value in model.named_parameters()}
    assert kinds["backbone.layers.0.norm1.weight"] == kinds["expert.action_in.weight"] == torch.float32
    assert kinds["backbone.layers.0.mlp.down.weight"] == kinds["vision.blocks.0.norm1.weight"] == torch.bfloat16


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", [LAYER + "mlp.up_proj.weight", "action_out_proj.bias"])
def test_a_value_that_is_no_number_is_found_and_its_tensor_named(folder, value, name):
    tensors = weights(folder)
    tensors[name].view(-1)[-1] = value
    write(folder, tensors)
    with pytest.raises(CheckpointError, match=f"tensor {name} \\(F32\\) .*NaN or infinity"):
        load(folder).model()


def test_float16_overflow_is_explained(folder):
    tensors = weights(folder)
    tensors[LAYER + "mlp.up_proj.weight"][3, 4] = 70000.0
    write(folder, {name: value.half() for name, value in tensors.items()})
    with pytest.raises(CheckpointError, match="up_proj.weight \\(F16\\) .*float16 ends at 65504: export .* bfloat16"):
        load(folder).model()
