"""How fast this machine is: two probes that belong beside every table, and the clock that they are taken by."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

Work = Callable[[], object]


def seconds(work: Work, device: torch.device, repeats: int = 5) -> float:
    """The median time of `work`, in seconds, after one run that is not counted."""
    return in_turn([work], device, repeats)[0]


def in_turn(works: Sequence[Work], device: torch.device, repeats: int) -> list[float]:
    """The median seconds of each work, all run alternately so that a drift of the machine hits all."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(repeats + 1):
        for work, taken in zip(works, times):
            began = time.perf_counter()
            work()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            taken.append(time.perf_counter() - began)
    return [sorted(taken[1:])[repeats // 2] for taken in times]


@torch.inference_mode()
def matmul_flops(device: torch.device, dtype: torch.dtype, size: int | None = None) -> float:
    """Floating-point operations per second of a square matrix product, a multiply-add being two."""
    size = size or (1536 if device.type == "cpu" else 8192)
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return 2 * size**3 / seconds(lambda: a @ b, device)


@torch.inference_mode()
def bandwidth(device: torch.device, dtype: torch.dtype, size: int = 256 * 2**20) -> float:
    """Bytes per second at which `size` bytes of weights are read over and over for one row: what decoding lives on."""
    width = 4096
    matrix = torch.ones(max(1, size // dtype.itemsize // width), width, device=device, dtype=dtype)
    row = torch.ones(1, width, device=device, dtype=dtype)
    return matrix.numel() * dtype.itemsize / seconds(lambda: torch.nn.functional.linear(row, matrix), device)
