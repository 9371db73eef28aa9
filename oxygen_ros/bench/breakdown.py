"""What each item of the exactness list saves, by timing the plain way of it; and how near each pass is to its limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from ..engine.fixed_passes import make_passes
from ..engine.kv_pool import KVPool, Slot
from ..engine.observation import Observation
from ..engine.passes import Passes
from ..engine.request import LanguageRequest, RunningRequest
from ..pi05.config import TransformerConfig
from ..pi05.layers import attend, rms_normalize
from ..pi05.model import Pi05
from ..pi05.packed import Linear
from . import plain, roofline
from .probes import Work, bandwidth, in_turn, seconds
from .workload import CAMERAS

Item = tuple[str, Work, Work]
"""Name, with, without."""
MANY = 8
"""Requests in a batch, for the line that shows what batching them saves."""


class Laboratory:
    """One observation, prefilled, and requests that answer from it."""

    def __init__(self, model: Pi05, observation: Observation, steps: int, rows: int) -> None:
        self.model, self.observation, self.steps, self.rows = model, observation, steps, max(1, rows)
        config = model.config
        self.device = model.device
        self.pool = KVPool(
            config, slots=max(MANY, self.rows) + 2, requests=max(MANY, self.rows), cameras=CAMERAS, max_tail=8,
            device=model.device, dtype=model.dtype,
        )
        self.passes, self.padded = (
            make_passes(
                model, self.pool, fixed_shapes=None, denoise_steps=steps, accumulated_time=False,
                text_attention="bidirectional", cameras=CAMERAS, padded=padded, seed=0, fixed_noise=True,
            )
            for padded in (False, True)
        )
        self.slot = self.pool.take_slot()
        fill(self.passes, observation, self.slot)
        # A slot for each: requests of different frames do not read the same memory.
        self.running = [self._request() for _ in range(max(MANY, self.rows))]

    def _request(self) -> RunningRequest:
        slot = self.pool.take_slot()
        fill(self.passes, self.observation, slot)
        request = LanguageRequest(0, (5,), 1_000_000, end_tokens=())
        return RunningRequest(request, slot, self.pool.take_tail(), 0, None)

    def matrices(self, config: TransformerConfig, out_widths: Sequence[int]) -> list[Linear]:
        """A matrix of each width for every layer, all from the layer's own width, at random."""
        made = [Linear(config.width, out) for _ in range(config.depth) for out in out_widths]
        for matrix in made:
            matrix.to(self.device, self.model.dtype)
            matrix.pack()
        return made

    def prefill(self) -> None:
        fill(self.passes, self.observation, self.slot)

    def denoise(self) -> None:
        self.passes.denoise(self.observation, self.slot)

    def decode(self, rows: int) -> None:
        """One step, after which the requests are as before."""
        self.passes.step(self.running[:rows])
        for request in self.running[:rows]:
            request.tail.length = 0

    def decode_singly(self, rows: int) -> None:
        for request in self.running[:rows]:
            self.passes.step([request])
            request.tail.length = 0


def fill(passes: Passes, observation: Observation, slot: Slot) -> None:
    passes.prefill(observation, passes.see(observation), slot, wants_hidden=False)


@torch.inference_mode()
def items(lab: Laboratory) -> Iterator[Item]:
    """Those of one layer are run for all layers of a frame.

    Where layers are compiled, what is said to be torch's is timed on a network whose layers torch computes.
    """
    torch_lab, by_torch = lab, ""
    if lab.model.compiled:
        torch_lab = Laboratory(plain.by_torch(lab.model.config), lab.observation, lab.steps, lab.rows)
        by_torch = ", by torch"
    yield from _frame_items(lab)
    yield from _prefill_items(lab, by_torch)
    yield from _denoise_items(lab, torch_lab, by_torch)
    yield from _decode_items(lab)
    if lab.model.compiled:
        yield "layers in one compiled call: prefill", lab.prefill, torch_lab.prefill
        yield "layers in one compiled call: denoise", lab.denoise, torch_lab.denoise
        yield (
            f"layers in one compiled call: decode step of {MANY}",
            lambda: lab.decode(MANY), lambda: torch_lab.decode(MANY),
        )


def _frame_items(lab: Laboratory) -> Iterator[Item]:
    def of_padding(passes: Passes) -> Work:
        def work() -> None:
            fill(passes, lab.observation, lab.slot)
            passes.denoise(lab.observation, lab.slot)
        return work

    yield "no missing camera, no padding", of_padding(lab.passes), of_padding(lab.padded)
    lab.prefill()
    yield "one prefill for two tasks", lab.prefill, lambda: (lab.prefill(), lab.prefill())


def _prefill_items(lab: Laboratory, by_torch: str) -> Iterator[Item]:
    model, config, backbone, device = lab.model, lab.model.config, lab.model.backbone, lab.device
    length, heads, head_dim = lab.slot.prefix_length, config.backbone.num_heads, config.backbone.head_dim

    pictures = torch.zeros(len(lab.observation.images), 3, *[config.vision.image_size] * 2, device=device)
    yield "cameras in one batch", lambda: model.vision(pictures), lambda: plain.encode(model, pictures)

    x = torch.randn(length, config.backbone.width, device=device).to(model.dtype)
    scale = torch.randn(config.backbone.width, device=device)
    yield (
        "last layer: keys and values only",
        lambda: backbone.prefill(x, lab.slot), lambda: plain.prefill(backbone, x, lab.slot),
    )

    yield (
        f"norm weights part of the next matrix (prefill{by_torch})",
        lambda: [rms_normalize(x, config.rms_norm_eps) for _ in range(2 * config.backbone.depth)],
        lambda: [plain.norm(x, scale, config.rms_norm_eps) for _ in range(2 * config.backbone.depth)],
    )

    query = torch.randn(length, heads, head_dim, device=device).to(model.dtype)
    layers = range(config.backbone.depth - 1)
    yield (
        f"heads as rows, fused attention (prefill{by_torch})",
        lambda: [attend(query, *lab.slot.prefix(layer)) for layer in layers],
        lambda: [plain.attend(query, *lab.slot.prefix(layer)) for layer in layers],
    )


def _denoise_items(lab: Laboratory, torch_lab: Laboratory, by_torch: str) -> Iterator[Item]:
    config, device, dtype = lab.model.config, lab.device, lab.model.dtype
    horizon, heads, kv_heads = config.action_horizon, config.backbone.num_heads, config.backbone.num_kv_heads
    head_dim = config.backbone.head_dim

    noise = torch.randn(horizon, config.action_dim, device=device)
    yield (
        f"modulations computed once (denoise{by_torch})",
        torch_lab.denoise, lambda: plain.denoise(torch_lab.model, noise, torch_lab.slot, lab.steps),
    )

    query_width, kv_width = heads * head_dim, kv_heads * head_dim
    rows = torch.randn(horizon, config.expert.width, device=device).to(dtype)
    mlp = config.expert.mlp_dim
    ours = lab.matrices(config.expert, (query_width + 2 * kv_width, 2 * mlp))
    theirs = lab.matrices(config.expert, (query_width, kv_width, kv_width, mlp, mlp))
    yield (
        f"one matrix for q, k, v, one for gate, up (denoise{by_torch})",
        lambda: [matrix(rows) for _ in range(lab.steps) for matrix in ours],
        lambda: [matrix(rows) for _ in range(lab.steps) for matrix in theirs],
    )
    expert_depth = config.expert.depth
    suffix = torch.randn(2, kv_heads, horizon, head_dim, device=device).to(dtype)
    yield (
        f"no concatenation of caches (denoise{by_torch})",
        lambda: [lab.slot.write_suffix(layer, *suffix) for layer in range(expert_depth) for _ in range(lab.steps)],
        lambda: [plain.joint(lab.slot.prefix(layer), (suffix[0], suffix[1]))
                 for layer in range(expert_depth) for _ in range(lab.steps)],
    )


def _decode_items(lab: Laboratory) -> Iterator[Item]:
    logits = torch.randn(lab.rows, lab.model.config.vocab_size, device=lab.device).to(lab.model.dtype)
    yield "arg-max of the logits", lambda: logits.argmax(-1), lambda: plain.choose(logits)
    yield f"{MANY} requests in one step", lambda: lab.decode(MANY), lambda: lab.decode_singly(MANY)


@torch.inference_mode()
def breakdown(lab: Laboratory, repeats: int = 7) -> Iterator[tuple[str, dict[str, float]]]:
    """Name and seconds {with_s, without_s, saves_s} of each item, medians of runs in turn."""
    for name, ours, theirs in items(lab):
        with_s, without_s = in_turn((ours, theirs), lab.device, repeats)
        yield name, {"with_s": with_s, "without_s": without_s, "saves_s": without_s - with_s}


@torch.inference_mode()
def limits(lab: Laboratory, flops_per_s: float, bytes_per_s: float) -> Iterator[tuple[str, dict[str, float]]]:
    """Prefill, denoise and a decode step of `rows` requests: {bound_s, measured_s, fraction, cached_bound_s}.

    cached_bound_s: the bound if a round's bytes come as fast as so many do that are read over and over. What a denoise
    step reads may stay in a cache until the next one, which then is faster than main memory allows.
    """
    config, itemsize, prefix = lab.model.config, lab.model.dtype.itemsize, lab.slot.prefix_length
    images, text = len(lab.observation.images), len(lab.observation.tokens)
    for name, work, rounds, measured in (
        ("prefill", roofline.prefill(config, images, text, itemsize), 1, lab.prefill),
        ("denoise", roofline.denoise(config, prefix, lab.steps, itemsize), lab.steps, lab.denoise),
        ("decode", roofline.decode(config, prefix, lab.rows, itemsize), 1, lambda: lab.decode(lab.rows)),
    ):
        cached = bandwidth(lab.device, lab.model.dtype, int(work.bytes / rounds))
        bound, took = work.bound(flops_per_s, bytes_per_s), seconds(measured, lab.device, repeats=9)
        yield name, {
            "bound_s": bound, "measured_s": took, "fraction": bound / took,
            "cached_bound_s": work.bound(flops_per_s, max(bytes_per_s, cached)),
        }
