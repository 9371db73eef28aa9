"""Compiled GELU against float64."""

import pytest
import torch
import torch.nn.functional as F

from oxygen_ros.pi05.layers import gelu

WIDTHS = [1, 15, 16, 17, 33, 1076]


@pytest.mark.parametrize("width", WIDTHS)
def test_gelu(generation, threads, width):
    x = torch.randn(2, 7, width, generator=torch.Generator().manual_seed(0)) * 4
    expected = F.gelu(x.double(), approximate="tanh")
    torch.testing.assert_close(gelu(x.clone()).double(), expected, atol=1e-6, rtol=1e-6)


def test_what_is_not_finite(generation):
    x = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e30, -1e30, 90.0, -90.0, 0.0, -0.0] * 2)
    expected = F.gelu(x.double(), approximate="tanh").float()
    torch.testing.assert_close(gelu(x.clone()), expected, atol=1e-30, rtol=1e-6, equal_nan=True)


@pytest.mark.parametrize(
    "x", [torch.randn(6, 8)[:, ::2], torch.randn(6, 4).bfloat16(), torch.randn(6, 4).requires_grad_()],
    ids=["strided", "bfloat16", "with a gradient"],
)
def test_what_the_compiled_code_does_not_take(x):
    exact = F.gelu(x.detach().double(), approximate="tanh")
    torch.testing.assert_close(gelu(x).detach().double(), exact, atol=1e-2, rtol=1e-2)
