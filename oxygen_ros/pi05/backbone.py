"""The language backbone (Gemma): prefix into keys and values, and text from them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cache import KeyValue, Strip, Tail
from .compiled import CompiledLinear, CompiledTransformer, can_compile
from .config import TransformerConfig
from .layers import GatedMLP, RotaryTable, SelfAttention, attend, rms_normalize
from .packed import Linear, PackedWeight, can_pack, pack_all

Memory = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Takes a layer's query, key and value, keeps the latter two, returns the attended [T, heads * D]."""


class RMSNorm(nn.Module):
    """x / rms(x) * (1 + weight): a weight of zero is the identity; one of None is part of the matrices that follow."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight: nn.Parameter | None = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        normed = rms_normalize(x, self.eps)
        return (normed if self.weight is None else normed * (1.0 + self.weight.float())).to(x.dtype)

    def fold(self, *following: Linear) -> None:
        """Give the weight to the matrices that read what is normalised here, before they are packed."""
        for linear in following:
            linear.weight.data = linear.weight * (1.0 + self.weight)
        self.weight = None


class BackboneLayer(nn.Module):
    """x += out(attention(norm1 x)); x += mlp(norm2 x)."""

    def __init__(self, config: TransformerConfig, eps: float) -> None:
        super().__init__()
        self.norm1 = RMSNorm(config.width, eps)
        self.attention = SelfAttention(config.width, config.num_heads, config.num_kv_heads, config.head_dim)
        self.norm2 = RMSNorm(config.width, eps)
        self.mlp = GatedMLP(config.width, config.mlp_dim)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor], memory: Memory) -> Tensor:
        return self.finish(x, memory(*self.attention.project(self.norm1(x), rotary)))

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.attention.out(attended)
        return x + self.mlp(self.norm2(x))

    def fold_norms(self) -> None:
        self.norm1.fold(self.attention.qkv)
        self.norm2.fold(self.mlp.gate_up)


@dataclass(frozen=True)
class Continuation:
    """`count` new rows of one request: they see what the strip shares, the tail so far, and each other causally."""

    strip: Strip
    tail: Tail
    count: int

    @property
    def position(self) -> int:
        return self.strip.shared_position + self.tail.length


class Backbone(nn.Module):
    """Gemma with its embedding, which is also the language head unless the checkpoint holds two."""

    def __init__(self, config: TransformerConfig, vocab_size: int, eps: float, rope_theta: float) -> None:
        super().__init__()
        self.config, self.eps = config, eps
        self.embedding = nn.Parameter(torch.zeros(vocab_size, config.width))
        self.head: nn.Parameter | None = None
        self._packed_head: CompiledLinear | PackedWeight | None = None
        self._compiled: CompiledTransformer | None = None
        self.layers = nn.ModuleList(BackboneLayer(config, eps) for _ in range(config.depth))
        self.norm = RMSNorm(config.width, eps)
        self.rotary = RotaryTable(config.head_dim, rope_theta)

    def embed(self, tokens: Tensor) -> Tensor:
        """tokens [T] -> [T, width], scaled by sqrt(width)."""
        return F.embedding(tokens, self.embedding) * math.sqrt(self.embedding.shape[1])

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [R, width] after the final norm -> [R, vocab_size]."""
        return F.linear(hidden, self._head()) if self._packed_head is None else self._packed_head(hidden)

    @property
    def packed(self) -> bool:
        return self._packed_head is not None

    @property
    def compiled(self) -> bool:
        return self._compiled is not None

    def pack(self, compiled: bool = True) -> None:
        """Hand all matrices, with the layers' norms folded, to the compiled code, where there is some; else pack them
        for MKL. The embedding stays to be read, so a tied head then costs its memory once more."""
        head = self._head().detach()
        compiles = compiled and can_compile(self.config, head, len(head))
        if self.packed or not (compiles or can_pack(head)):
            return
        for layer in self.layers:
            layer.fold_norms()
        if compiles:
            self._compiled = CompiledTransformer(self.config, self.eps, self.layers)
        else:
            self.layers[-1].attention.keep_kv()
            pack_all(self)
        self._packed_head = (CompiledLinear if compiles else PackedWeight)(head)
        self.head = None

    def _head(self) -> Tensor:
        return self.embedding if self.head is None else self.head

    def prefill(
        self,
        x: Tensor,
        strip: Strip,
        *,
        causal_from: int | None = None,
        shared: int | None = None,
        valid: Tensor | None = None,
        hidden: Literal["none", "last", "all"] = "none",
    ) -> Tensor | None:
        """Write the keys and values of the prefix x [P, width] into the strip.

        The prefix is one bidirectional block. With `causal_from` the positions from there on (the text)
        see everything before them and, of the text, only themselves and what precedes; the images then
        do not see the text: OxyGen's mask. There the prefix may end in text for the actions alone: language continues
        the first `shared` positions, which are as they would be without the rest. `valid` [P] is False for padding,
        which is computed and hidden: the other libraries' way, here for comparison only.

        Returns the hidden states after the final norm that were asked for: [1, width] or [P, width];
        "last" is the last valid one of those shared. The last layer's query, attention and MLP run for those rows only.
        """
        length = len(x)
        check_shared(length, shared, causal_from)
        strip.begin(length, valid, shared)
        rotary = self.rotary.span(0, length, x.device)
        if valid is not None:
            position = (valid.cumsum(0) - 1).clamp(min=0)
            rotary = (rotary[0][position], rotary[1][position])

        rows: slice | None = slice(0, length)
        if hidden == "none":
            rows = None
        elif hidden == "last":
            end = strip.shared_length
            if valid is not None:
                end = int(valid[:end].nonzero()[-1]) + 1
            rows = slice(end - 1, end)
        if self._compiled is not None:
            wanted = () if rows is None else range(length)[rows]
            x = self._compiled(x, rotary, [self._compiled.prefix(strip, causal_from)], wanted)
            return None if rows is None else self.norm(x)

        def keep(layer: int, key: Tensor, value: Tensor) -> KeyValue:
            strip.write_prefix(layer, key, value)
            return strip.prefix(layer)

        mask = None if causal_from is None else causal_text(length, causal_from, x.device)
        if valid is not None:
            mask = valid.expand(length, length) if mask is None else mask & valid
        return self.fill(x, keep, rotary, mask, rows)

    def fill(
        self,
        x: Tensor,
        keep: Callable[[int, Tensor, Tensor], KeyValue],
        rotary: tuple[Tensor, Tensor],
        mask: Tensor | None,
        rows: slice | Tensor | None,
    ) -> Tensor | None:
        """Run the layers over a prefix x [P, width] of which mask [P, P] says who sees whom; None: everyone.

        keep is given a layer's number, keys and values, and returns those to attend to. Returns the hidden states of
        `rows` after the final norm; for none of them the last layer computes keys and values only.
        """

        def memory(layer: int) -> Memory:
            return lambda query, key, value: attend(query, *keep(layer, key, value), mask)

        last = len(self.layers) - 1
        for index in range(last):
            x = self.layers[index](x, rotary, memory(index))

        layer = self.layers[last]
        normed = layer.norm1(x)
        kept = keep(last, *layer.attention.project_kv(normed, rotary))
        if rows is None:
            return None
        query = layer.attention.project_query(normed[rows], (rotary[0][rows], rotary[1][rows]))
        attended = attend(query, *kept, None if mask is None else mask[rows])
        return self.norm(layer.finish(x[rows], attended))

    def advance(self, x: Tensor, continuations: Sequence[Continuation]) -> Tensor:
        """Run new rows of many requests in one pass, whatever their lengths.

        x [sum of counts, width] holds the embedded tokens of each continuation in turn. A request that
        joins brings its whole prompt, a running one brings one token. Appends to each tail and returns
        the hidden state of every continuation's last row, [requests, width], after the final norm.
        """
        counts = [c.count for c in continuations]
        for c in continuations:
            c.tail.expect(c.count)
        spans = [self.rotary.span(c.position, c.count, x.device) for c in continuations]
        rotary = (torch.cat([cos for cos, _ in spans]), torch.cat([sin for _, sin in spans]))
        ends = list(itertools.accumulate(counts))
        if self._compiled is not None:
            runs = [self._compiled.tail(c.strip, c.tail, end - c.count, c.count) for c, end in zip(continuations, ends)]
            x = self._compiled(x, rotary, runs, [end - 1 for end in ends])
            for c in continuations:
                c.tail.advance(c.count)
            return self.norm(x)

        def memory(layer: int) -> Memory:
            def keep_and_attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
                rows = zip(query.split(counts), key.split(counts, dim=1), value.split(counts, dim=1), continuations)
                return torch.cat([
                    _attend_prefix_and_tail(
                        q, c.strip.shared(layer), c.tail.append(layer, k, v), c.strip.shared_valid()
                    )
                    for q, k, v, c in rows
                ])

            return keep_and_attend

        for index, layer in enumerate(self.layers):
            x = layer(x, rotary, memory(index))
        for c in continuations:
            c.tail.advance(c.count)
        return self.norm(x[torch.tensor(ends, device=x.device) - 1])


def check_shared(length: int, shared: int | None, causal_from: int | None) -> None:
    """Raises ValueError if the first `shared` positions of a prefix are not as they would be without the rest."""
    if shared is not None and not 0 < shared <= length:
        raise ValueError(f"{shared} positions of a prefix of {length} cannot be shared")
    if shared is not None and shared < length and (causal_from is None or shared < causal_from):
        raise ValueError(f"the first {shared} of {length} positions cannot be shared: they see those after them")


def causal_text(length: int, causal_from: int, device: torch.device) -> Tensor:
    """[P, P], True where visible: each text position starts a block of its own, the images are one block."""
    block = torch.arange(length, device=device).clamp(min=causal_from - 1)
    return block[None, :] <= block[:, None]


def _attend_prefix_and_tail(query: Tensor, prefix: KeyValue, tail: KeyValue, valid: Tensor | None) -> Tensor:
    """Attention of query [n, heads, D] over two pieces of memory, with one softmax over both.

    The n queries are the last n positions of the tail; among those, later ones are hidden from earlier.
    valid [P] says which of the prefix is visible; None: all.
    """
    length, heads, head_dim = query.shape
    kv_heads, seen, _ = tail[0].shape
    rows = query.view(length, kv_heads, heads // kv_heads, head_dim).transpose(0, 1).reshape(kv_heads, -1, head_dim)
    rows = rows * head_dim**-0.5
    tail_scores = rows @ tail[0].transpose(1, 2)
    if length > 1:
        hidden = torch.ones(length, seen, dtype=torch.bool, device=query.device).triu(seen - length + 1)
        tail_scores.masked_fill_(hidden.repeat_interleave(heads // kv_heads, dim=0), -math.inf)
    prefix_scores = rows @ prefix[0].transpose(1, 2)
    if valid is not None:
        prefix_scores.masked_fill_(~valid, -math.inf)
    scores = torch.cat((prefix_scores, tail_scores), dim=-1)
    weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    split = prefix[0].shape[1]
    out = weights[..., :split] @ prefix[1] + weights[..., split:] @ tail[1]
    return out.view(kv_heads, length, -1).transpose(0, 1).reshape(length, heads * head_dim)
