"""The plain way of what pi05/ and engine/ do better: the same values, written as the other libraries compute them."""

from __future__ import annotations

import torch
from torch import Tensor

from ..pi05.backbone import Backbone
from ..pi05.cache import KeyValue, Strip
from ..pi05.config import Pi05Config
from ..pi05.flow import euler, flow_times
from ..pi05.layers import rms_normalize
from ..pi05.model import Pi05
from ..pi05.random_weights import random_model


def by_torch(config: Pi05Config) -> Pi05:
    """A network at random whose layers torch computes, with MKL's matrices where there are those."""
    model = random_model(config, 0)
    model.pack(compiled=False)
    return model


def denoise(model: Pi05, noise: Tensor, strip: Strip, steps: int) -> Tensor:
    """Time embedding, time MLP and every modulation anew in every step; noise [H, A] -> actions [H, A]."""
    times = torch.tensor(flow_times(steps), dtype=torch.float64, device=noise.device)
    return euler(noise, steps, lambda x, step: model.expert.velocity(x, model.expert.modulations(times[step]), strip))


def encode(model: Pi05, images: Tensor) -> Tensor:
    """One camera after the other; [N, 3, S, S] -> [N, tokens_per_image, width]."""
    return torch.cat([model.vision(image[None]) for image in images])


def prefill(backbone: Backbone, x: Tensor, strip: Strip) -> None:
    """The whole last layer for every position."""
    backbone.prefill(x, strip, hidden="all")


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The norm's weight applied every time; x [T, width], weight [width]."""
    return (rms_normalize(x, eps) * (1.0 + weight)).to(x.dtype)


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Keys and values repeated for every head, scores, float32 softmax and mixture one after the other.

    query [T, heads, D], key and value [kv_heads, S, D] -> [T, heads * D].
    """
    length, heads, head_dim = query.shape
    key, value = (t.repeat_interleave(heads // len(t), dim=0) for t in (key, value))
    scores = query.transpose(0, 1) @ key.transpose(1, 2) * head_dim**-0.5
    mixed = scores.softmax(-1, dtype=torch.float32).to(query.dtype) @ value
    return mixed.transpose(0, 1).reshape(length, heads * head_dim)


def joint(prefix: KeyValue, suffix: KeyValue) -> list[Tensor]:
    """The cache and the chunk's own keys and values, copied together."""
    return [torch.cat((ours, theirs), dim=1) for ours, theirs in zip(prefix, suffix)]


def choose(logits: Tensor) -> Tensor:
    """Greedy through float32 log-probabilities of the whole vocabulary; logits [R, V] -> [R]."""
    return logits.float().log_softmax(-1).argmax(-1)
