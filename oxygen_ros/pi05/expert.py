"""The action expert: a small Gemma whose norms are set by flow time, and which attends to the prefix."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cache import Strip
from .compiled import CompiledTransformer, can_compile
from .config import Pi05Config, TransformerConfig
from .flow import euler, time_embedding
from .layers import GatedMLP, RotaryTable, SelfAttention, attend, rms_normalize
from .packed import pack_all


class AdaptiveNorm(nn.Module):
    """Adaptive RMS normalisation: scale, shift and gate are linear in the condition.

    `dense` is used once per flow time (see `ActionExpert.modulations`), never per frame.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, 3 * width)

    def modulation(self, condition: Tensor) -> Tensor:
        """condition [..., width] -> [..., 3, width]: 1 + scale, shift, gate."""
        scale, shift, gate = self.dense(condition).chunk(3, dim=-1)
        return torch.stack((1.0 + scale, shift, gate), dim=-2)


def modulate(x: Tensor, modulation: Tensor, eps: float) -> Tensor:
    """x [H, width] -> rms_normalize(x) * (1 + scale) + shift; modulation [3, width] or [3, H, width]."""
    return torch.addcmul(modulation[1], rms_normalize(x, eps), modulation[0]).to(x.dtype)


class ExpertLayer(nn.Module):
    """x += gate1 * out(attention(adanorm1 x)); x += gate2 * mlp(adanorm2 x)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm1 = AdaptiveNorm(config.width)
        self.attention = SelfAttention(config.width, config.num_heads, config.num_kv_heads, config.head_dim)
        self.norm2 = AdaptiveNorm(config.width)
        self.mlp = GatedMLP(config.width, config.mlp_dim)


class ActionExpert(nn.Module):
    """From noisy actions and a flow time to a velocity, given a strip that holds the prefix."""

    def __init__(self, config: Pi05Config) -> None:
        super().__init__()
        expert, width = config.expert, config.expert.width
        self.config, self.eps = expert, config.rms_norm_eps
        self.periods = (config.time_min_period, config.time_max_period)
        self.action_in = nn.Linear(config.action_dim, width)
        self.time_in = nn.Linear(width, width)
        self.time_out = nn.Linear(width, width)
        self.layers = nn.ModuleList(ExpertLayer(expert) for _ in range(expert.depth))
        self.norm = AdaptiveNorm(width)
        self.action_out = nn.Linear(width, config.action_dim)
        self.rotary = RotaryTable(expert.head_dim, config.rope_theta)
        self._compiled: CompiledTransformer | None = None

    @property
    def compiled(self) -> bool:
        return self._compiled is not None

    def pack(self, compiled: bool = True) -> None:
        """Hand the layers' weights to the compiled code, where there is some; else pack them for MKL."""
        if self.compiled:
            return
        ends = self.action_in, self.action_out
        if compiled and can_compile(self.config, self.action_in.weight, self.action_in.in_features):
            self._compiled = CompiledTransformer(self.config, self.eps, self.layers, ends)
        else:
            pack_all(self.layers)

    def condition(self, times: Tensor) -> Tensor:
        """Flow times [...] (float64; 1 is noise, 0 is the action) -> conditions [..., width]."""
        embedded = time_embedding(times, self.time_in.in_features, *self.periods).to(self.time_in.weight)
        return F.silu(self.time_out(F.silu(self.time_in(embedded))))

    def modulations(self, times: Tensor) -> Tensor:
        """What every norm does at each flow time: times [...] -> [..., 2 * depth + 1, 3, width], in float32.

        Row 2 l is the first norm of layer l, 2 l + 1 its second, the last row the final norm.
        """
        condition = self.condition(times)
        norms = [norm for layer in self.layers for norm in (layer.norm1, layer.norm2)] + [self.norm]
        return torch.stack([norm.modulation(condition) for norm in norms], dim=-3)

    def denoise(self, noise: Tensor, plan: Tensor, strip: Strip) -> Tensor:
        """noise [H, A] float32 -> actions [H, A] float32, an Euler step for each of plan [steps, norms, 3, width]."""
        if self._compiled is not None:
            return self._compiled.denoise(noise, plan, strip.rotary(self.rotary), strip)
        return euler(noise, len(plan), lambda x, step: self.velocity(x, plan[step], strip))

    def velocity(self, actions: Tensor, modulation: Tensor, strip: Strip) -> Tensor:
        """actions [H, A] float32 at the flow time of `modulation` [norms, 3, width] -> velocity [H, A] float32.

        All actions see each other and the whole prefix. Their keys and values overwrite the strip's suffix.
        """
        dtype = strip.dtype
        rotary = strip.rotary(self.rotary)
        x = self.action_in(actions).to(dtype)
        if self._compiled is not None:
            x = self._compiled(x, rotary, [self._compiled.suffix(strip)], modulation=modulation)
            return self.action_out(x)
        mask = strip.joint_mask()
        gates = modulation[:, 2].to(dtype)
        for index, layer in enumerate(self.layers):
            first, second = 2 * index, 2 * index + 1
            query, key, value = layer.attention.project(modulate(x, modulation[first], self.eps), rotary)
            strip.write_suffix(index, key, value)
            x = torch.addcmul(x, gates[first], layer.attention.out(attend(query, *strip.joint(index), mask)))
            x = torch.addcmul(x, gates[second], layer.mlp(modulate(x, modulation[second], self.eps)))
        return self.action_out(modulate(x, modulation[-1], self.eps).float())
