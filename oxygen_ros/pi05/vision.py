"""The vision tower: SigLIP without its pooling head, and the projector into the backbone's width."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .config import VisionConfig
from .layers import gelu
from .packed import Linear


class VisionBlock(nn.Module):
    """x += out(attention(norm1 x)); x += fc2(gelu_tanh(fc1(norm2 x)))."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        width = config.width
        self.num_heads = config.num_heads
        self.norm1 = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.qkv = Linear(width, 3 * width, bias=True)
        self.out = Linear(width, width, bias=True)
        self.norm2 = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.fc1 = Linear(width, config.mlp_dim, bias=True)
        self.fc2 = Linear(config.mlp_dim, width, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        images, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(images, tokens, 3, self.num_heads, width // self.num_heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value)
        x = x + self.out(mixed.transpose(1, 2).reshape(images, tokens, width))
        return x + self.fc2(gelu(self.fc1(self.norm2(x))))


class VisionTower(nn.Module):
    """Images [N, 3, S, S] in [-1, 1] -> backbone tokens [N, tokens_per_image, out_width].

    All cameras of a frame are one batch. Tokens leave as the projector gives them: neither divided
    nor multiplied by sqrt(width).
    """

    def __init__(self, config: VisionConfig, out_width: int) -> None:
        super().__init__()
        self.patch_size, self.image_size = config.patch_size, config.image_size
        # A convolution whose stride is its kernel is a matrix product over patches.
        self.patch_embedding = Linear(3 * config.patch_size**2, config.width, bias=True)
        self.position_embedding = nn.Parameter(torch.zeros(config.tokens_per_image, config.width))
        self.blocks = nn.ModuleList(VisionBlock(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width, eps=config.layer_norm_eps)
        self.projector = Linear(config.width, out_width, bias=True)

    def forward(self, images: Tensor) -> Tensor:
        size = self.image_size
        if images.ndim != 4 or images.shape[1:] != (3, size, size):
            raise ValueError(f"images have shape {list(images.shape)}, the vision tower needs [N, 3, {size}, {size}]")
        x = self.patch_embedding(self._patches(images)) + self.position_embedding
        x = x.to(self.projector.bias.dtype)
        for block in self.blocks:
            x = block(x)
        return self.projector(self.norm(x))

    def _patches(self, images: Tensor) -> Tensor:
        """[N, 3, S, S] -> [N, grid * grid, 3 * patch * patch], row by row."""
        patch, grid = self.patch_size, self.image_size // self.patch_size
        cut = images.to(self.patch_embedding.bias.dtype).view(len(images), 3, grid, patch, grid, patch)
        return cut.permute(0, 2, 4, 1, 3, 5).reshape(len(images), grid * grid, 3 * patch * patch)
