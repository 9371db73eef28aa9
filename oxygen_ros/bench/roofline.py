"""How long the arithmetic and the bytes of each pass must take on this machine, whatever the code.

Counted: matrix products and attention (a multiply-add is two operations), and as bytes each weight once, keys and
values written or read. Not counted: norms, activations, biases; they are what the rest of the time is made of, next to
products that are too small for the machine's best rate.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..pi05.config import Pi05Config, TransformerConfig


@dataclass(frozen=True)
class Work:
    flops: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.bytes + other.bytes)

    def __mul__(self, times: float) -> Work:
        return Work(self.flops * times, self.bytes * times)

    def bound(self, flops_per_s: float, bytes_per_s: float) -> float:
        """Seconds below which no schedule gets: arithmetic and transfers overlap perfectly."""
        return max(self.flops / flops_per_s, self.bytes / bytes_per_s)


def prefill(config: Pi05Config, images: int, text: int, itemsize: int) -> Work:
    """Encode `images` and run `images * tokens_per_image + text` positions; only keys and values of the last layer."""
    vision, backbone = config.vision, config.backbone
    patches = images * vision.tokens_per_image
    length = patches + text
    block = (
        _linear(patches, vision.width, 4 * vision.width, itemsize)  # query, key, value, out
        + _linear(patches, vision.width, 2 * vision.mlp_dim, itemsize)  # fc1, fc2
        + Work(4 * patches * vision.tokens_per_image * vision.width)
    )
    tower = (
        _linear(patches, 3 * vision.patch_size**2, vision.width, itemsize)
        + block * vision.depth
        + _linear(patches, vision.width, backbone.width, itemsize)
    )
    layer = _layer(backbone, length, itemsize) + _attention(backbone, length, length)
    last = _linear(length, backbone.width, 2 * backbone.num_kv_heads * backbone.head_dim, itemsize)
    written = Work(bytes=backbone.depth * _cache_bytes(backbone, length, itemsize))
    return (tower if images else Work()) + layer * (backbone.depth - 1) + last + written


def denoise(config: Pi05Config, prefix: int, steps: int, itemsize: int) -> Work:
    """`steps` velocities of one chunk over a prefix of that many positions."""
    expert, horizon = config.expert, config.action_horizon
    seen = horizon + prefix
    layer = (
        _layer(expert, horizon, itemsize)
        + _attention(expert, horizon, seen)
        + Work(bytes=_cache_bytes(expert, seen, itemsize))
    )
    ends = _linear(horizon, config.action_dim, 2 * expert.width, itemsize)
    return (layer * expert.depth + ends) * steps


def decode(config: Pi05Config, prefix: int, rows: int, itemsize: int) -> Work:
    """One token for each of `rows` requests, whose prefixes are distinct."""
    backbone = config.backbone
    layer = (
        _layer(backbone, rows, itemsize)
        + _attention(backbone, rows, prefix)
        + Work(bytes=rows * _cache_bytes(backbone, prefix, itemsize))
    )
    return layer * backbone.depth + _linear(rows, backbone.width, config.vocab_size, itemsize)


def _linear(rows: int, inputs: int, outputs: int, itemsize: int) -> Work:
    return Work(2 * rows * inputs * outputs, inputs * outputs * itemsize)


def _layer(config: TransformerConfig, rows: int, itemsize: int) -> Work:
    """The four matrices of a layer."""
    heads, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    attention = _linear(rows, config.width, 2 * heads + 2 * kv, itemsize)
    return attention + _linear(rows, config.width, 3 * config.mlp_dim, itemsize)


def _attention(config: TransformerConfig, queries: int, keys: int) -> Work:
    return Work(4 * queries * keys * config.num_heads * config.head_dim)


def _cache_bytes(config: TransformerConfig, positions: int, itemsize: int) -> int:
    return 2 * config.num_kv_heads * config.head_dim * positions * itemsize
