"""Packed weights give the products of plain ones, for every number of rows."""

import pytest
import torch
import torch.nn.functional as F

from oxygen_ros.pi05.config import PRESETS
from oxygen_ros.pi05.packed import Linear, can_pack
from oxygen_ros.pi05.random_weights import random_model

needs_mkl = pytest.mark.skipif(
    not can_pack(torch.empty(1)), reason="this torch has no MKL, so weights stay plain: nothing to compare"
)


@needs_mkl
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("width, out_width", [(256, 1024), (1024, 256), (24, 97), (1, 1)])
def test_any_number_of_rows(width, out_width, bias):
    generator = torch.Generator().manual_seed(0)
    layer = Linear(width, out_width, bias)
    weight = layer.weight.detach().clone()
    with torch.inference_mode():
        layer.pack()
        for rows in (*range(1, 50), 127, 128, 129, 600):
            x = torch.randn(rows, width, generator=generator)
            exact = F.linear(x.double(), weight.double(), layer.bias.double() if bias else None)
            torch.testing.assert_close(layer(x).double(), exact, atol=1e-5, rtol=0)
        x = torch.randn(3, 7, 2 * width, generator=generator)[..., ::2]  # more axes, and not contiguous
        exact = F.linear(x, weight, layer.bias)
        torch.testing.assert_close(layer(x), exact, atol=1e-5, rtol=0)


@needs_mkl
def test_packing_gives_the_plain_weights_back():
    """Nothing of a packed network is left twice, but for a head that is the embedding."""
    model = random_model(PRESETS["tiny"], seed=0)
    model.pack()
    left = {name for name, _ in model.named_parameters()}
    assert "backbone.embedding" in left and "expert.layers.0.norm1.dense.weight" in left
    assert {n for n in left if n.startswith("backbone.")} <= {"backbone.embedding", "backbone.norm.weight"}
    assert not [n for n in left if n.startswith(("vision.", "expert.layers.")) and n.endswith(".weight")
                and "norm" not in n]
    model.pack()  # once more changes nothing
    assert {name for name, _ in model.named_parameters()} == left


def test_what_cannot_be_packed_stays_as_it_is():
    layer = Linear(8, 4).to(torch.bfloat16)
    layer.pack()
    x = torch.ones(2, 8, dtype=torch.bfloat16)
    assert torch.equal(layer(x), F.linear(x, layer.weight))
