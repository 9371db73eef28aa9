"""A picture of any shape into the model's square: the two public resize rules of pi0.5 (pi05.md section 9.2)."""

from __future__ import annotations

import numpy as np

from .scaling import scale_into


def resize_with_pad(image: np.ndarray, size: int) -> np.ndarray:
    """openpi's rule: uint8 [H, W, 3] -> uint8 [size, size, 3], antialiased bilinear, centred on black."""
    height, width = image.shape[:2]
    fitted_height, fitted_width = _fit(height, width, size)
    top, left = (size - fitted_height) // 2, (size - fitted_width) // 2
    square = np.zeros((size, size, 3), np.uint8)
    scale_into(square[top : top + fitted_height, left : left + fitted_width], image)
    return square


def resize_with_pad_lerobot(image: np.ndarray, size: int, padding: float = -1.0) -> np.ndarray:
    """LeRobot's rule: uint8 [H, W, 3] -> float32 [3, size, size] in [-1, 1].

    Bilinear between half-pixel centres without antialiasing, centred on `padding`, the odd row or column at the end.
    padding: black; LeRobot 0.4 pads with -3 by mistake, which its policies have learned to see.
    """
    height, width = image.shape[:2]
    fitted_height, fitted_width = _fit(height, width, size)
    pixels = _interpolate(_interpolate(image, fitted_height, axis=0), fitted_width, axis=1)
    top, left = (size - fitted_height) // 2, (size - fitted_width) // 2
    square = np.full((3, size, size), padding, np.float32)
    square[:, top : top + fitted_height, left : left + fitted_width] = pixels.transpose(2, 0, 1) / np.float32(127.5) - 1
    return square


def _fit(height: int, width: int, size: int) -> tuple[int, int]:
    ratio = max(height / size, width / size)
    return max(1, int(height / ratio)), max(1, int(width / ratio))  # truncation is part of both rules


def _interpolate(pixels: np.ndarray, length: int, axis: int) -> np.ndarray:
    source = pixels.shape[axis]
    centres = np.clip((np.arange(length) + 0.5) * (source / length) - 0.5, 0, source - 1)
    lower = centres.astype(np.intp)
    upper = np.minimum(lower + 1, source - 1)
    weight = (centres - lower).astype(np.float32).reshape([-1 if a == axis else 1 for a in range(pixels.ndim)])
    low, high = (pixels.take(places, axis).astype(np.float32) for places in (lower, upper))
    return low + weight * (high - low)
