"""The action expert's layers as one compiled call (src/action_expert.cpp): float32 on a CPU.

What a denoise step costs there is its weights' way through the memory and, between its products, the dispatch of small
operations. The compiled code reads each weight once a step, in order, and dispatches nothing.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import torch
from torch import Tensor, nn

from .cache import Strip
from .config import TransformerConfig
from .kernels import Chunk, ExpertSizes, VelocityCall, available, library

LANES = 16  # of src/lanes.hpp


def can_compile(config: TransformerConfig, action_dim: int, weight: Tensor) -> bool:
    """Whether there is compiled code for an expert of these sizes, whose weights are like this one."""
    widths = (config.width, config.head_dim, config.mlp_dim, action_dim)
    return available(weight) and not any(width % LANES for width in widths)


class CompiledExpert:
    """weights: per layer query-key-value, out, gate-up and down, [out, in] each, copied in the order they are read.

    action_in, action_out: the projections from and to actions.
    """

    def __init__(self, config: TransformerConfig, eps: float, weights: Sequence[Tensor], action_in: nn.Linear,
                 action_out: nn.Linear) -> None:
        weights = [*weights, action_in.weight, action_out.weight]
        self._memory = _in_large_pages(sum(weight.numel() for weight in weights))
        self._panels = [
            room.view(-1, weight.shape[1], LANES).copy_(weight.detach().view(-1, LANES, weight.shape[1]).transpose(1, 2))
            for room, weight in zip(self._memory.split([weight.numel() for weight in weights]), weights)
        ]
        self._ends = action_in, action_out
        self._weights = _addresses(self._panels)
        self._expert = ExpertSizes(
            config.depth, config.width, config.num_heads, config.num_kv_heads, config.head_dim, config.mlp_dim, eps,
            ctypes.addressof(self._weights),
        )

    def velocity(self, x: Tensor, modulation: Tensor, rotary: tuple[Tensor, Tensor], strip: Strip) -> Tensor:
        """Embedded actions x [H, width], contiguous -> the stream after the final norm, in the same memory.

        modulation [norms, 3, width] or [norms, 3, H, width]; rotary [H, 1, head_dim] each. Writes the strip's suffix.
        """
        with self._call(x, modulation, rotary, strip) as call:
            library().oxygen_velocity(self._expert, call)
        return x

    def denoise(self, noise: Tensor, plan: Tensor, rotary: tuple[Tensor, Tensor], strip: Strip) -> Tensor:
        """noise [H, A] -> actions [H, A], by one Euler step for each modulation of plan [steps, norms, 3, width]."""
        action_in, action_out = self._ends
        if noise.shape != (strip.horizon, action_in.in_features) or noise.dtype != torch.float32:
            raise ValueError(f"noise is {noise.dtype} {list(noise.shape)}, expected torch.float32 "
                             f"[{strip.horizon}, {action_in.in_features}]")
        actions = noise.clone(memory_format=torch.contiguous_format)
        x = noise.new_empty(len(noise), self._expert.width)
        chunk = Chunk(
            len(plan), noise.shape[1], actions.data_ptr(), plan.stride(0), self._panels[-2].data_ptr(),
            action_in.bias.data_ptr(), self._panels[-1].data_ptr(), action_out.bias.data_ptr(),
        )
        with self._call(x, plan[0], rotary, strip) as call:
            library().oxygen_denoise(self._expert, call, chunk)
        return actions

    @contextmanager
    def _call(self, x: Tensor, modulation: Tensor, rotary: tuple[Tensor, Tensor], strip: Strip
              ) -> Iterator[VelocityCall]:
        """What the compiled code is given; its addresses hold inside the block."""
        horizon, seen = len(x), strip.horizon + strip.prefix_length
        # Beyond them lies memory of somebody else.
        if horizon != strip.horizon or x.dtype != strip.dtype:
            raise ValueError(f"{horizon} actions in {x.dtype}, the strip is for {strip.horizon} in {strip.dtype}")
        cos, sin = (table.contiguous() for table in rotary)
        pairs = [strip.joint(layer) for layer in range(self._expert.depth)]
        keys, values = (_addresses([pair[i] for pair in pairs]) for i in (0, 1))
        mask = strip.joint_mask()
        valid = None if mask is None else mask.contiguous()
        threads = torch.get_num_threads()
        scratch = x.new_empty(library().oxygen_scratch_size(self._expert, horizon, seen, threads))
        yield VelocityCall(
            horizon, seen, x.data_ptr(), modulation.data_ptr(),
            modulation.stride(0), modulation.stride(1), modulation.stride(2) if modulation.ndim == 4 else 0,
            cos.data_ptr(), sin.data_ptr(), ctypes.addressof(keys), ctypes.addressof(values),
            pairs[0][0].stride(0), None if valid is None else valid.data_ptr(), scratch.data_ptr(), threads,
        )


def _in_large_pages(count: int) -> Tensor:
    """Room for so many float32, in large pages where the system has them.

    Of the time in which weights are read a quarter is else the search for their pages.
    """
    memory = mmap.mmap(-1, 4 * count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a system that was built without
            memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.float32)


def _addresses(tensors: Sequence[Tensor]) -> ctypes.Array:
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
