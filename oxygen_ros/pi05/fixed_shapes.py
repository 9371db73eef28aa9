"""The passes at fixed shapes and addresses, every length in a tensor: what a CUDA graph records once and replays.

The values are those of `Backbone.prefill`, `ActionExpert.velocity` and `Backbone.advance`: what lies past a length is
computed and hidden, and so are the slots that a request does not read.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .backbone import Backbone, Memory, causal_text
from .cache import KeyValue, Strip
from .layers import RotaryTable


class FixedStrip(Strip):
    """The memory of a strip with the shape and the addresses of every frame the same, and its length in a tensor.

    storage: as of a strip. prefix_length: int64 []. What lies past it is hidden. Language reads the strip itself.
    """

    def __init__(self, storage: Tensor, horizon: int, prefix_length: Tensor) -> None:
        super().__init__(storage, horizon)
        self.begin(self.capacity)
        self.length = prefix_length
        self._positions = torch.arange(storage.shape[3], device=storage.device)

    def prefix_window(self, layer: int, length: int) -> KeyValue:
        """The first `length` positions of the prefix: [kv_heads, length, head_dim] each."""
        key, value = self._prefix[layer]
        return key[:, :length], value[:, :length]

    def prefix_mask(self, length: int) -> Tensor:
        """Which of the first `length` positions are not padding, [1, length]."""
        return (self._positions[:length] < self.length)[None]

    def rotary(self, table: RotaryTable) -> tuple[Tensor, Tensor]:
        return table.at(self.length + self._positions[: self.horizon])

    def joint_mask(self) -> Tensor:
        return (self._positions < self.horizon + self.length)[None]


def prefill(backbone: Backbone, x: Tensor, strip: FixedStrip, last: Tensor, causal_from: int | None = None) -> Tensor:
    """Like `Backbone.prefill` of the first `strip.length` rows of x [P, width]; the others are padding.

    Returns the hidden state [1, width] after row `last`, int64 [1].
    """
    length = len(x)
    mask = strip.prefix_mask(length).expand(length, -1)
    if causal_from is not None:
        mask = mask & causal_text(length, causal_from, x.device)

    def keep(layer: int, key: Tensor, value: Tensor) -> KeyValue:
        window = strip.prefix_window(layer, length)
        window[0].copy_(key)
        window[1].copy_(value)
        return window

    hidden = backbone.fill(x, keep, backbone.rotary.span(0, length, x.device), mask, last)
    assert hidden is not None
    return hidden


def advance(backbone: Backbone, tokens: Tensor, slots: Tensor, tails: Tensor, horizon: int, slot: Tensor,
            shared: Tensor, said: Tensor) -> Tensor:
    """One token for each of R requests, which have fixed places: hidden states [R, width], after the final norm.

    tokens [R]; slots [N, layers, 2, kv_heads, horizon + max_prefix, head_dim], of which request r reads the first
    `shared[r]` prefix positions of number `slot[r]`; tails [R, layers, 2, kv_heads, max_tail, head_dim], of which
    `said[r]` positions are written, and one more by this. Attention runs over all slots where they are, and hides what
    is not a request's own: nothing is gathered.
    """
    device, requests, count = tokens.device, len(tokens), len(slots)
    rows = torch.arange(requests, device=device)
    own_slot = torch.arange(count, device=device) == slot[:, None]
    in_prefix = torch.arange(slots.shape[4] - horizon, device=device) < shared[:, None]
    hidden = ~torch.cat((
        (own_slot[:, :, None] & in_prefix[:, None]).flatten(1),
        torch.arange(tails.shape[4], device=device) <= said[:, None],
    ), dim=1)

    def memory(layer: int) -> Memory:
        def keep_and_attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            kv_heads, _, head_dim = key.shape
            tails[rows, layer, 0, :, said] = key.transpose(0, 1)
            tails[rows, layer, 1, :, said] = value.transpose(0, 1)
            query = query.view(requests, kv_heads, -1, head_dim) * head_dim**-0.5
            heads = [
                _attend(query[:, head], slots[:, layer, :, head, horizon:], tails[:, layer, :, head], hidden)
                for head in range(kv_heads)
            ]
            return torch.stack(heads, dim=1).flatten(1)

        return keep_and_attend

    x = backbone.embed(tokens)
    rotary = backbone.rotary.at(shared + said)
    for index, layer in enumerate(backbone.layers):
        x = layer(x, rotary, memory(index))
    return backbone.norm(x)


def _attend(query: Tensor, slots: Tensor, tails: Tensor, hidden: Tensor) -> Tensor:
    """Attention of query [R, G, D] over all slots [N, 2, P, D] and each request's tail [R, 2, T, D]: [R, G, D].

    hidden [R, N * P + T] hides positions from a request.
    """
    requests, group, head_dim = query.shape
    count, _, length, _ = slots.shape
    rows = query.reshape(1, requests * group, head_dim).expand(count, -1, -1)
    in_slots = torch.bmm(rows, slots[:, 0].transpose(1, 2)).view(count, requests, group, length)
    in_tails = torch.bmm(query, tails[:, 0].transpose(1, 2))
    scores = torch.cat((in_slots.permute(1, 2, 0, 3).flatten(2), in_tails), dim=-1)
    weights = scores.masked_fill(hidden[:, None], -math.inf).softmax(-1, dtype=torch.float32).to(query.dtype)
    of_slots, of_tails = weights.split((count * length, tails.shape[2]), dim=-1)
    of_slots = of_slots.view(requests, group, count, length).permute(2, 0, 1, 3).flatten(1, 2)
    mixed = torch.bmm(of_slots, slots[:, 1]).sum(0).view(requests, group, head_dim)
    return mixed + torch.bmm(of_tails, tails[:, 1])
