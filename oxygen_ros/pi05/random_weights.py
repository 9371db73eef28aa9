"""Untrained weights for benchmarks and tests: the same values for the same seed, on every machine."""

from __future__ import annotations

import torch

from .config import Pi05Config
from .model import Pi05


def random_model(config: Pi05Config, seed: int = 0) -> Pi05:
    """A network whose matrices are normal with variance 1 / fan-in, in float32 on the CPU.

    Norm weights, biases and adaptive maps are small but not zero: a zero `dense` would switch the expert off.
    """
    model = Pi05(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # The embedding is both a table and a matrix; its scale gives hidden states and logits of order one.
            matrix = parameter.ndim == 2 and "position_embedding" not in name
            scale = parameter.shape[-1] ** -0.5 if matrix else 0.1
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
        for block in model.vision.blocks:
            block.norm1.weight += 1.0
            block.norm2.weight += 1.0
        model.vision.norm.weight += 1.0
    return model.requires_grad_(False).eval()
