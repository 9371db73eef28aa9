"""The compiled code of src/: float32 on a CPU, for the processor generation that it finds."""

from __future__ import annotations

import ctypes
import functools
import itertools
import warnings
from pathlib import Path

import torch
from torch import Tensor

import oxygen_ros

LIBRARY = "liboxygen_kernels.so"

_Pointer, _Long = ctypes.c_void_p, ctypes.c_long


class ExpertSizes(ctypes.Structure):
    """OxygenExpert of src/action_expert.hpp."""

    _fields_ = [
        ("depth", _Long), ("width", _Long), ("heads", _Long), ("kv_heads", _Long), ("head_dim", _Long),
        ("mlp_dim", _Long), ("eps", ctypes.c_float), ("weights", _Pointer),
    ]


class VelocityCall(ctypes.Structure):
    """OxygenVelocity of src/action_expert.hpp."""

    _fields_ = [
        ("horizon", _Long), ("seen", _Long), ("x", _Pointer), ("modulation", _Pointer), ("norm_stride", _Long),
        ("part_stride", _Long), ("row_stride", _Long), ("cos", _Pointer), ("sin", _Pointer), ("keys", _Pointer),
        ("values", _Pointer), ("head_stride", _Long), ("valid", _Pointer), ("scratch", _Pointer), ("threads", _Long),
    ]


class Chunk(ctypes.Structure):
    """OxygenChunk of src/action_expert.hpp."""

    _fields_ = [
        ("steps", _Long), ("action_dim", _Long), ("actions", _Pointer), ("step_stride", _Long), ("in_panels", _Pointer),
        ("in_bias", _Pointer), ("out_panels", _Pointer), ("out_bias", _Pointer),
    ]


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled code, which colcon puts beside the modules; None where the package was installed without it, and
    with a warning where it was built for another machine."""
    for folder in oxygen_ros.__path__:
        file = Path(folder) / LIBRARY
        if file.is_file():
            try:
                loaded = ctypes.CDLL(str(file))
            except OSError as error:
                warnings.warn(f"the compiled code is not used, torch takes longer: {error}; build the package anew")
                return None
            loaded.oxygen_generation.restype = ctypes.c_char_p
            loaded.oxygen_scratch_size.argtypes = [ctypes.POINTER(ExpertSizes), _Long, _Long, _Long]
            loaded.oxygen_scratch_size.restype = _Long
            loaded.oxygen_velocity.argtypes = [ctypes.POINTER(ExpertSizes), ctypes.POINTER(VelocityCall)]
            loaded.oxygen_velocity.restype = None
            loaded.oxygen_denoise.argtypes = [*map(ctypes.POINTER, (ExpertSizes, VelocityCall, Chunk))]
            loaded.oxygen_denoise.restype = None
            loaded.oxygen_gelu.argtypes = [_Pointer, _Long, _Long, _Long]
            loaded.oxygen_gelu.restype = None
            loaded.oxygen_gated_gelu.argtypes = [_Pointer, _Pointer, _Long, _Long, _Long]
            loaded.oxygen_gated_gelu.restype = None
            return loaded
    return None


def generations() -> list[str]:
    """The instruction sets, the best first, that the compiled code can use on this machine; [] where there is none."""
    loaded = library()
    return [] if loaded is None else [
        name.decode() for name in iter(map(loaded.oxygen_generation, itertools.count()).__next__, None)
    ]


def use(generation: str) -> None:
    """Use this instruction set, one of `generations()`, from now on; without a call it is the first of them."""
    library().oxygen_use(generations().index(generation))


def available(x: Tensor) -> bool:
    """Whether there is compiled code for tensors of this one's device and type."""
    return x.device.type == "cpu" and x.dtype == torch.float32 and library() is not None


def can_run(x: Tensor) -> bool:
    """Whether the functions below take this tensor."""
    return available(x) and x.is_contiguous() and not x.requires_grad


def gelu_(x: Tensor) -> Tensor:
    """GELU by the tanh approximation of x [..., width], in place."""
    width = x.shape[-1]
    library().oxygen_gelu(x.data_ptr(), x.numel() // width, width, torch.get_num_threads())
    return x


def gated_gelu(gate_up: Tensor) -> Tensor:
    """gate_up [T, 2 * width] -> GELU of the first half times the second, [T, width]."""
    rows, width = len(gate_up), gate_up.shape[1] // 2
    out = gate_up.new_empty(rows, width)
    library().oxygen_gated_gelu(gate_up.data_ptr(), out.data_ptr(), rows, width, torch.get_num_threads())
    return out
