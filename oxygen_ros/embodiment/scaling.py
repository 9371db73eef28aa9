"""Antialiased bilinear scaling, equal to Pillow's to the bit: compiled (src/resize.cpp), by Pillow where nothing is.

Along its rows first, whatever the shape: from 13 on Pillow begins with the columns of tall pictures, which rounds
otherwise than openpi, whose Pillow is older.
"""

from __future__ import annotations

import ctypes
import functools

import numpy as np
from PIL import Image

from .. import kernels

_Pointer, _Long = ctypes.c_void_p, ctypes.c_long
_ONE = 1 << 22  # what the weights of a place add up to


class _Picture(ctypes.Structure):
    """OxygenPicture of src/resize.hpp."""

    _fields_ = [
        ("red", _Pointer), ("height", _Long), ("width", _Long), ("row_stride", _Long), ("pixel_stride", _Long),
        ("channel_stride", _Long),
    ]


class _Weights(ctypes.Structure):
    """OxygenWeights of src/resize.hpp."""

    _fields_ = [("length", _Long), ("taps", _Long), ("first", _Pointer), ("values", _Pointer)]


def scale_into(out: np.ndarray, image: np.ndarray) -> None:
    """image: uint8 [H, W, 3], a view of any strides. out: uint8 [h, w, 3], rows of a contiguous picture."""
    library, (height, width, _) = kernels.library(), out.shape
    if library is None:
        rows = Image.fromarray(np.ascontiguousarray(image)).resize((width, image.shape[0]), Image.Resampling.BILINEAR)
        out[:] = rows.resize((width, height), Image.Resampling.BILINEAR)
        return
    if abs(image.strides[2]) != 1 or abs(image.strides[1]) < 3:
        image = np.ascontiguousarray(image)
    picture = _Picture(image.ctypes.data, *image.shape[:2], *image.strides)
    rows, columns = _weights(image.shape[1], width), _weights(image.shape[0], height)
    if not library.oxygen_resize(kernels.chosen(), *map(ctypes.byref, (picture, rows, columns)), out.ctypes.data,
                                 out.strides[0]):
        raise MemoryError(f"no memory to scale a picture of {image.shape[1]}x{image.shape[0]}")


@functools.lru_cache(64)
def _weights(size: int, length: int) -> _Weights:
    """How each of `length` places comes from `size` ones: a triangle over them, as wide as two places."""
    reach = max(1.0, size / length)
    centres = (np.arange(length) + 0.5) * (size / length)
    begin = np.maximum((centres - reach + 0.5).astype(np.int32), 0)
    end = np.minimum((centres + reach + 0.5).astype(np.int32), size)
    taps = (end - begin).max()
    first = np.minimum(begin, size - taps)
    at = first[:, None] + np.arange(taps)
    heights = np.maximum(1 - np.abs((at - centres[:, None] + 0.5) * (1 / reach)), 0)
    heights[(at < begin[:, None]) | (at >= end[:, None])] = 0
    total = np.add.accumulate(heights, axis=1)[:, -1:]  # one after the other, unlike `sum`
    values = np.ascontiguousarray(heights / total * _ONE + 0.5, np.int32)
    weights = _Weights(length, taps, first.ctypes.data, values.ctypes.data)
    weights.kept = first, values  # as long as the addresses of them
    return weights
