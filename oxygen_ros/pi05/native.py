"""What pi0.5 hands to the compiled code: float32 on a CPU."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from ..kernels import chosen, library

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


def available(x: Tensor) -> bool:
    """Whether there is compiled code for tensors of this one's device and type."""
    return x.device.type == "cpu" and x.dtype == torch.float32 and library() is not None


def can_run(x: Tensor) -> bool:
    """Whether `gelu_` takes this tensor."""
    return available(x) and x.is_contiguous() and not x.requires_grad


def gelu_(x: Tensor) -> Tensor:
    """GELU by the tanh approximation of x [..., width], in place."""
    width = x.shape[-1]
    library().oxygen_gelu(chosen(), x.data_ptr(), x.numel() // width, width, torch.get_num_threads())
    return x
