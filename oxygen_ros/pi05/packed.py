"""Weights in the layout that the CPU's matrix library multiplies from.

A plain product lays the weights out anew every time: done once, 500 rows take about a tenth less. That is the pictures'
way; the layers after them take it where there is no compiled code (see compiled.py).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROWS = 128
"""How many rows MKL is told to expect. A hint only, by which it shares out threads: good from 1 to 524 rows as measured
with MKL 2024.2 on AVX-512, where hints below 64 cost a prefill up to half its speed and above 256 keep narrow matrices
on one thread."""


class PackedWeight:
    """What is left of weight [out, in]: its products. float32 on a CPU with MKL."""

    def __init__(self, weight: Tensor) -> None:
        self._packed = torch.ops.mkl._mkl_reorder_linear_weight(weight.contiguous(), ROWS)
        # The operator reads nothing but the shape of the plain weight.
        self._shape = torch.empty(()).expand(weight.shape)

    def __call__(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x [..., in] -> x times the transpose of the weight, plus bias: [..., out]."""
        return torch.ops.mkl._mkl_linear(x, self._packed, self._shape, bias, x.numel() // x.shape[-1])


def can_pack(weight: Tensor) -> bool:
    return weight.device.type == "cpu" and weight.dtype == torch.float32 and hasattr(torch.ops.mkl, "_mkl_linear")


def pack_all(module: nn.Module) -> None:
    """Pack every `Linear` in there."""
    for part in module.modules():
        if isinstance(part, Linear):
            part.pack()


class Linear(nn.Linear):
    """A linear layer that may be packed: from then on it computes, and has no weight to be read."""

    def __init__(self, width: int, out_width: int, bias: bool = False) -> None:
        super().__init__(width, out_width, bias)
        self.weight: nn.Parameter | None
        self._packed: PackedWeight | None = None

    def pack(self) -> None:
        if self.weight is not None and can_pack(self.weight):
            self._packed = PackedWeight(self.weight.detach())
            self.weight = None

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias) if self._packed is None else self._packed(x, self.bias)
