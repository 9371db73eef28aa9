"""The pieces that backbone and action expert share: RMS normalisation, rotary position, gated MLP."""

from __future__ import annotations


import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import native
from .packed import Linear


def rms_normalize(x: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) over the last axis, in float32 whatever the stream's type."""
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


class RotaryTable:
    """Cosines and sines of rotary position embedding (split-halves form, Su et al. 2021).

    The table is built in float64 and rounded once; it grows, and follows the device, as asked.
    """

    def __init__(self, head_dim: int, theta: float) -> None:
        self.head_dim, self.theta = head_dim, theta
        self.cos = self.sin = torch.empty(0, head_dim)

    def reserve(self, positions: int, device: torch.device) -> None:
        """Make positions 0 .. positions - 1 available on `device`."""
        half = self.head_dim // 2
        frequency = self.theta ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = torch.arange(positions, dtype=torch.float64)[:, None] * frequency
        # `rotate` takes the second half away from the first, and adds the first to the second: hence the signs.
        self.cos = angle.cos().repeat(1, 2).float().to(device)
        self.sin = torch.cat((-angle.sin(), angle.sin()), dim=-1).float().to(device)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Like `span`, of positions [T] that only the device knows; `reserve` has made them available there."""
        return self.cos[positions, None], self.sin[positions, None]

    def span(self, start: int, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines [length, 1, head_dim] of the positions start .. start + length - 1."""
        if start + length > len(self.cos) or self.cos.device != device:
            self.reserve(max(start + length, 2 * len(self.cos)), device)
        return self.cos[start : start + length, None], self.sin[start : start + length, None]


def rotate(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Apply rotary position to x [T, heads, head_dim]: element j pairs with element j + head_dim / 2."""
    cos, sin = rotary
    other_half = x.roll(x.shape[-1] // 2, dims=-1)
    return torch.addcmul(x * cos, other_half, sin).to(x.dtype)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """Grouped-query attention without repeating keys or values.

    query [T, heads, D], key and value [kv_heads, S, D] -> [T, heads * D]. The query heads that share
    a key/value head are so many more rows against the same keys. mask [T, S] is True where visible.
    """
    length, heads, head_dim = query.shape
    kv_heads = key.shape[0]
    group = heads // kv_heads
    rows = query.view(length, kv_heads, group, head_dim).transpose(0, 1).reshape(1, kv_heads, length * group, head_dim)
    if mask is not None:
        mask = mask.expand(length, -1)[:, None].expand(-1, group, -1).reshape(length * group, -1)
    out = F.scaled_dot_product_attention(rows, key[None], value[None], attn_mask=mask)
    return out[0].view(kv_heads, length, group * head_dim).transpose(0, 1).reshape(length, heads * head_dim)


def gelu(x: Tensor) -> Tensor:
    """GELU by the tanh approximation (pi05.md section 2). x may be overwritten."""
    return native.gelu_(x) if native.can_run(x) else F.gelu(x, approximate="tanh")


class GatedMLP(nn.Module):
    """down(gelu_tanh(gate x) * (up x)), gate and up being the two halves of one matrix."""

    def __init__(self, width: int, mlp_dim: int) -> None:
        super().__init__()
        self.gate_up = Linear(width, 2 * mlp_dim)
        self.down = Linear(mlp_dim, width)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.gelu(gate, approximate="tanh") * up)


class SelfAttention(nn.Module):
    """Query, key and value as one matrix; which keys are visible is the caller's to say."""

    def __init__(self, width: int, num_heads: int, num_kv_heads: int, head_dim: int) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, head_dim
        self.qkv = Linear(width, (num_heads + 2 * num_kv_heads) * head_dim)
        self.out = Linear(num_heads * head_dim, width)
        self._kv: Linear | None = None

    def project(self, x: Tensor, rotary: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """x [T, width] -> rotated query [T, heads, D], rotated key and value [kv_heads, T, D]."""
        heads, kv = self.num_heads, self.num_kv_heads
        qkv = self.qkv(x).view(len(x), heads + 2 * kv, self.head_dim)
        rotated = rotate(qkv[:, : heads + kv], rotary)
        return rotated[:, :heads], rotated[:, heads:].transpose(0, 1), qkv[:, heads + kv :].transpose(0, 1)

    def project_kv(self, x: Tensor, rotary: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Only the key and value of `project`, [kv_heads, T, D] each."""
        kv = self.num_kv_heads
        pair = F.linear(x, self._kv_weight()) if self._kv is None else self._kv(x)
        pair = pair.view(len(x), 2 * kv, self.head_dim)
        return rotate(pair[:, :kv], rotary).transpose(0, 1), pair[:, kv:].transpose(0, 1)

    def project_query(self, x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        """Only the query of `project`, [T, heads, D]."""
        query = self.qkv(x)[:, : self.num_heads * self.head_dim]
        return rotate(query.view(len(x), self.num_heads, self.head_dim), rotary)

    def keep_kv(self) -> None:
        """Have the matrix of `project_kv` by itself, before that of all three is packed."""
        weight = self._kv_weight()
        self._kv = Linear(*weight.t().shape)
        self._kv.weight = nn.Parameter(weight.detach().clone())

    def _kv_weight(self) -> Tensor:
        return self.qkv.weight[self.num_heads * self.head_dim :]
