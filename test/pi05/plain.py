"""pi0.5 written the long way: every position computed, nothing cached, masks spelled out. For comparison only.

One sample, in float64, from the same parameters as the network under test.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from oxygen_ros.pi05.model import Pi05


def gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class PlainPi05:
    def __init__(self, model: Pi05) -> None:
        self.config = model.config
        self.p = {name: value.double() for name, value in model.state_dict().items()}

    def linear(self, x: Tensor, name: str) -> Tensor:
        y = x @ self.p[f"{name}.weight"].T
        return y + self.p[f"{name}.bias"] if f"{name}.bias" in self.p else y

    def image_tokens(self, image: Tensor) -> Tensor:
        """[3, S, S] -> [tokens, width]."""
        v, grid = self.config.vision, self.config.vision.image_size // self.config.vision.patch_size
        patches = [
            image[:, r * v.patch_size : (r + 1) * v.patch_size, c * v.patch_size : (c + 1) * v.patch_size].reshape(-1)
            for r in range(grid) for c in range(grid)
        ]
        x = self.linear(torch.stack(patches).double(), "vision.patch_embedding") + self.p["vision.position_embedding"]
        for i in range(v.depth):
            name = f"vision.blocks.{i}"
            heads = [
                part.reshape(len(x), v.num_heads, -1).transpose(0, 1)
                for part in self.linear(self.layer_norm(x, f"{name}.norm1"), f"{name}.qkv").chunk(3, -1)
            ]
            scores = (heads[0] @ heads[1].transpose(1, 2)) / math.sqrt(heads[0].shape[-1])
            x = x + self.linear((scores.softmax(-1) @ heads[2]).transpose(0, 1).reshape(len(x), -1), f"{name}.out")
            x = x + self.linear(gelu(self.linear(self.layer_norm(x, f"{name}.norm2"), f"{name}.fc1")), f"{name}.fc2")
        return self.linear(self.layer_norm(x, "vision.norm"), "vision.projector")

    def layer_norm(self, x: Tensor, name: str) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        spread = (centred.square().mean(-1, keepdim=True) + self.config.vision.layer_norm_eps).sqrt()
        return centred / spread * self.p[f"{name}.weight"] + self.p[f"{name}.bias"]

    def embed(self, tokens: Tensor) -> Tensor:
        return self.p["backbone.embedding"][tokens] * math.sqrt(self.config.backbone.width)

    def rms(self, x: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + self.config.rms_norm_eps).sqrt()

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """x [T, heads, D]."""
        half = x.shape[-1] // 2
        out = x.clone()
        for j in range(half):
            angle = positions * self.config.rope_theta ** (-2 * j / x.shape[-1])
            cos, sin = angle.cos()[:, None], angle.sin()[:, None]
            out[..., j] = x[..., j] * cos - x[..., j + half] * sin
            out[..., j + half] = x[..., j + half] * cos + x[..., j] * sin
        return out

    def qkv(self, x: Tensor, name: str, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        c = self.config.backbone
        q, k, v = self.linear(x, f"{name}.attention.qkv").split(
            [c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim, c.num_kv_heads * c.head_dim], -1
        )
        repeat = c.num_heads // c.num_kv_heads
        q = self.rotate(q.view(len(x), c.num_heads, c.head_dim), positions)
        k = self.rotate(k.view(len(x), c.num_kv_heads, c.head_dim), positions).repeat_interleave(repeat, 1)
        return q, k, v.view(len(x), c.num_kv_heads, c.head_dim).repeat_interleave(repeat, 1)

    def mlp(self, x: Tensor, name: str) -> Tensor:
        gate, up = self.linear(x, f"{name}.mlp.gate_up").chunk(2, -1)
        return self.linear(gelu(gate) * up, f"{name}.mlp.down")

    def adaptive(self, x: Tensor, name: str, condition: Tensor) -> tuple[Tensor, Tensor]:
        scale, shift, gate = self.linear(condition, f"{name}.dense").chunk(3)
        return self.rms(x) * (1 + scale) + shift, gate

    def run(self, prefix: Tensor, valid: Tensor, causal_from: int, actions: Tensor | None, time: float
            ) -> tuple[Tensor, Tensor | None]:
        """Backbone and expert together, one attention per layer over [prefix | actions].

        prefix [P, width] with invalid rows in it; valid [P]. causal_from: index from which each prefix position starts
        a block of its own (P: nowhere). Returns the final hidden states [P, width] and the velocity [H, A].
        """
        horizon = 0 if actions is None else len(actions)
        everything = torch.cat((valid, torch.ones(horizon, dtype=torch.bool)))
        positions = everything.long().cumsum(0) - 1
        starts = torch.zeros(len(everything), dtype=torch.long)
        starts[causal_from : len(valid)] = 1
        if horizon:
            starts[len(valid)] = 1
        block = starts.cumsum(0)
        visible = (block[None] <= block[:, None]) & everything[None] & everything[:, None]
        h, a, condition = prefix, None, None
        if actions is not None:
            a, condition = self.linear(actions, "expert.action_in"), self.condition(time)
        for i in range(self.config.backbone.depth):
            mine, theirs = f"backbone.layers.{i}", f"expert.layers.{i}"
            normed = self.rms(h) * (1 + self.p[f"{mine}.norm1.weight"])
            parts = [self.qkv(normed, mine, positions[: len(h)])]
            if a is not None:
                normed, gate = self.adaptive(a, f"{theirs}.norm1", condition)
                parts.append(self.qkv(normed, theirs, positions[len(h) :]))
            q, k, v = (torch.cat(part).transpose(0, 1) for part in zip(*parts))
            scores = (q @ k.transpose(1, 2)) / math.sqrt(q.shape[-1])
            scores = scores.masked_fill(~visible, -2.3819763e38)
            mixed = (scores.softmax(-1) @ v).transpose(0, 1).reshape(len(everything), -1)
            h = h + self.linear(mixed[: len(h)], f"{mine}.attention.out")
            h = h + self.mlp(self.rms(h) * (1 + self.p[f"{mine}.norm2.weight"]), mine)
            if a is not None:
                a = a + gate * self.linear(mixed[len(h) :], f"{theirs}.attention.out")
                normed, gate = self.adaptive(a, f"{theirs}.norm2", condition)
                a = a + gate * self.mlp(normed, theirs)
        velocity = None
        if a is not None:
            velocity = self.linear(self.adaptive(a, "expert.norm", condition)[0], "expert.action_out")
        return self.rms(h) * (1 + self.p["backbone.norm.weight"]), velocity

    def condition(self, time: float) -> Tensor:
        width = self.config.expert.width
        shortest, longest = self.config.time_min_period, self.config.time_max_period
        angles = [
            2 * math.pi * time / (shortest * (longest / shortest) ** (j / (width // 2 - 1))) for j in range(width // 2)
        ]
        e = torch.tensor([math.sin(x) for x in angles] + [math.cos(x) for x in angles], dtype=torch.float64)
        return F.silu(self.linear(F.silu(self.linear(e, "expert.time_in")), "expert.time_out"))

    def actions(self, prefix: Tensor, valid: Tensor, causal_from: int, noise: Tensor, steps: int) -> Tensor:
        x = noise.double()
        for i in range(steps):
            x = x - self.run(prefix, valid, causal_from, x, 1 - i / steps)[1] / steps
        return x

    def say(self, prefix: Tensor, valid: Tensor, prompt: list[int], count: int, causal_from: int | None = None
            ) -> list[int]:
        """Greedy tokens after the prefix and an appended causal prompt; the whole sequence is computed for each."""
        said: list[int] = []
        start = len(prefix) if causal_from is None else causal_from
        for _ in range(count):
            extra = self.embed(torch.tensor(prompt + said, dtype=torch.long))
            rows = torch.cat((prefix, extra))
            seen = torch.cat((valid, torch.ones(len(extra), dtype=torch.bool)))
            hidden, _ = self.run(rows, seen, start, None, 0.0)
            last = int(seen.nonzero()[-1])
            head = self.p.get("backbone.head", self.p["backbone.embedding"])
            said.append(int((head @ hidden[last]).argmax()))
        return said
