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


class Transformer(ctypes.Structure):
    """OxygenTransformer of src/transformer.hpp."""

    _fields_ = [
        ("depth", _Long), ("width", _Long), ("heads", _Long), ("kv_heads", _Long), ("head_dim", _Long),
        ("mlp_dim", _Long), ("eps", ctypes.c_float), ("weights", ctypes.POINTER(_Pointer)),
    ]


class Run(ctypes.Structure):
    """OxygenRun of src/transformer.hpp."""

    _fields_ = [
        ("first", _Long), ("rows", _Long), ("keys", _Pointer), ("values", _Pointer), ("valid", _Pointer),
        ("seen", _Long), ("layer_stride", _Long), ("head_stride", _Long), ("own_keys", _Pointer),
        ("own_values", _Pointer), ("own_valid", _Pointer), ("at", _Long), ("open", _Long), ("own_layer_stride", _Long),
        ("own_head_stride", _Long),
    ]


class Call(ctypes.Structure):
    """OxygenCall of src/transformer.hpp."""

    _fields_ = [
        ("rows", _Long), ("x", _Pointer), ("cos", _Pointer), ("sin", _Pointer), ("count", _Long),
        ("runs", ctypes.POINTER(Run)), ("wants", _Long), ("wanted", ctypes.POINTER(_Long)), ("modulation", _Pointer),
        ("norm_stride", _Long), ("part_stride", _Long), ("row_stride", _Long), ("scratch", _Pointer),
        ("threads", _Long),
    ]


class Chunk(ctypes.Structure):
    """OxygenChunk of src/transformer.hpp."""

    _fields_ = [
        ("steps", _Long), ("action_dim", _Long), ("actions", _Pointer), ("step_stride", _Long), ("in_panels", _Pointer),
        ("in_bias", _Pointer), ("out_panels", _Pointer), ("out_bias", _Pointer),
    ]


_NET, _CALL, _CHUNK = map(ctypes.POINTER, (Transformer, Call, Chunk))
_FUNCTIONS = {  # of src/dispatch.cpp: result, arguments
    "oxygen_generation": (ctypes.c_char_p, _Long),
    "oxygen_panel_width": (_Long, _Long),
    "oxygen_scratch_size": (_Long, _NET, _CALL),
    "oxygen_transformer": (None, _Long, _NET, _CALL),
    "oxygen_denoise": (None, _Long, _NET, _CALL, _CHUNK),
    "oxygen_linear": (None, _Long, _Pointer, _Long, _Long, _Pointer, _Long, _Pointer, _Long),
    "oxygen_gelu": (None, _Long, _Pointer, _Long, _Long, _Long),
}
_chosen = 0


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
            for name, (result, *arguments) in _FUNCTIONS.items():
                getattr(loaded, name).restype, getattr(loaded, name).argtypes = result, arguments
            return loaded
    return None


def generations() -> list[str]:
    """The instruction sets, the best first, that the compiled code can use on this machine; [] where there is none."""
    loaded = library()
    return [] if loaded is None else [
        name.decode() for name in iter(map(loaded.oxygen_generation, itertools.count()).__next__, None)
    ]


def use(generation: str) -> None:
    """Use this instruction set for GELU, and for what is packed from now on; at first it is the best.

    Raises ValueError if it is not among `generations()`.
    """
    global _chosen
    if generation not in generations():
        raise ValueError(f"no compiled code for {generation} runs here, only for {', '.join(generations())}")
    _chosen = generations().index(generation)


def chosen() -> int:
    """The index in `generations()` of the one to use."""
    return _chosen


def available(x: Tensor) -> bool:
    """Whether there is compiled code for tensors of this one's device and type."""
    return x.device.type == "cpu" and x.dtype == torch.float32 and library() is not None


def can_run(x: Tensor) -> bool:
    """Whether `gelu_` takes this tensor."""
    return available(x) and x.is_contiguous() and not x.requires_grad


def gelu_(x: Tensor) -> Tensor:
    """GELU by the tanh approximation of x [..., width], in place."""
    width = x.shape[-1]
    library().oxygen_gelu(_chosen, x.data_ptr(), x.numel() // width, width, torch.get_num_threads())
    return x
