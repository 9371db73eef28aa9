"""Which tensors of openpi's and LeRobot's files make up each parameter of `Pi05` (pi05.md section 10.2)."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from ..pi05.config import Pi05Config, TransformerConfig
from .errors import CheckpointError

PALIGEMMA = "paligemma_with_expert.paligemma."
VISION = PALIGEMMA + "model.vision_tower.vision_model."
LANGUAGE = PALIGEMMA + "model.language_model."
EXPERT = "paligemma_with_expert.gemma_expert.model."

EMBEDDING = LANGUAGE + "embed_tokens.weight"
HEAD = PALIGEMMA + "lm_head.weight"

# Written by converters, trainers and older transformers, read by nobody: an unused head and embedding of the expert,
# pi0's state projection and plain norms (LeRobot skips these too), buffers that are computed, SigLIP's pooling head.
HARMLESS = re.compile(
    r"^paligemma_with_expert\.gemma_expert\.(lm_head|model\.embed_tokens)\.weight$|^state_proj\."
    r"|^paligemma_with_expert\.gemma_expert\.model\.(layers\.\d+\.(input|post_attention)_layernorm|norm)\.weight$"
    r"|\.rotary_emb\.inv_freq$|\.embeddings\.position_ids$|\.vision_model\.head\."
)
# Old LeRobot folders keep their statistics among the weights.
STATISTICS = re.compile(r"^(un)?normalize_(inputs|outputs|targets)\.")

_GROUPS = (
    ("language head", re.compile(r"lm_head|^backbone\.head")),
    ("action and time projections", re.compile(r"^(expert\.)?(action|time)_")),
    ("expert", re.compile(r"gemma_expert|^expert\.")),
    ("vision tower", re.compile(r"vision_tower|multi_modal_projector|^vision\.")),
    ("backbone", re.compile(r"language_model|^backbone\.")),
)


class Source(NamedTuple):
    """A stored tensor and the shape that it must have."""

    name: str
    shape: tuple[int, ...]


Sources = dict[str, tuple[Source, ...]]
"""Our parameter -> the stored tensors that, joined along their first axis, are it."""


def group_of(name: str) -> str:
    """The part of the network that a tensor, under its stored name, belongs to."""
    return next((group for group, pattern in _GROUPS if pattern.search(name)), "unknown")


def recognise(names: Collection[str]) -> None:
    """Raises CheckpointError unless these are the tensor names of pi0.5 as openpi and LeRobot write it."""
    if any(name.startswith(EXPERT) and ".dense." in name for name in names):
        return
    if any(name.startswith("state_proj.") for name in names):
        raise CheckpointError(
            "this is a pi0 checkpoint, not pi0.5: it has a state projection (state_proj) and no adaptive norms in its "
            "expert; only pi0.5 is read"
        )
    examples = ", ".join(sorted(names)[:4]) or "nothing"
    raise CheckpointError(
        f"the tensors are not pi0.5's: the expert's adaptive norms ({EXPERT}norm.dense) and time_mlp_in are not among "
        f"the {len(names)} found, such as {examples}"
    )


def sources(config: Pi05Config, names: Collection[str]) -> Sources:
    """Every parameter of the network, the language head included where the file stores one.

    names: those in the file, which decide where embedding and head come from (pi05.md section 10.4).
    Raises CheckpointError where neither is stored.
    """
    if EMBEDDING not in names and HEAD not in names:
        raise CheckpointError(f"neither {EMBEDDING} nor {HEAD} is there: the file holds no token embedding")
    vision, backbone, expert = config.vision, config.backbone, config.expert
    table: Sources = {}

    def affine(ours: str, theirs: str | tuple[str, ...], rows: int, columns: int) -> None:
        parts = (theirs,) if isinstance(theirs, str) else theirs
        table[f"{ours}.weight"] = tuple(Source(f"{part}.weight", (rows, columns)) for part in parts)
        table[f"{ours}.bias"] = tuple(Source(f"{part}.bias", (rows,)) for part in parts)

    def norm(ours: str, theirs: str, width: int, ends: tuple[str, ...]) -> None:
        for end in ends:
            table[f"{ours}.{end}"] = (Source(f"{theirs}.{end}", (width,)),)

    patch = (vision.width, 3, vision.patch_size, vision.patch_size)
    table["vision.patch_embedding.weight"] = (Source(VISION + "embeddings.patch_embedding.weight", patch),)
    table["vision.patch_embedding.bias"] = (Source(VISION + "embeddings.patch_embedding.bias", patch[:1]),)
    table["vision.position_embedding"] = (
        Source(VISION + "embeddings.position_embedding.weight", (vision.tokens_per_image, vision.width)),
    )
    for i in range(vision.depth):
        ours, theirs = f"vision.blocks.{i}.", f"{VISION}encoder.layers.{i}."
        norm(ours + "norm1", theirs + "layer_norm1", vision.width, ("weight", "bias"))
        affine(ours + "qkv", tuple(f"{theirs}self_attn.{part}_proj" for part in "qkv"), vision.width, vision.width)
        affine(ours + "out", theirs + "self_attn.out_proj", vision.width, vision.width)
        norm(ours + "norm2", theirs + "layer_norm2", vision.width, ("weight", "bias"))
        affine(ours + "fc1", theirs + "mlp.fc1", vision.mlp_dim, vision.width)
        affine(ours + "fc2", theirs + "mlp.fc2", vision.width, vision.mlp_dim)
    norm("vision.norm", VISION + "post_layernorm", vision.width, ("weight", "bias"))
    affine("vision.projector", PALIGEMMA + "model.multi_modal_projector.linear", backbone.width, vision.width)

    matrix = (config.vocab_size, backbone.width)
    table["backbone.embedding"] = (Source(EMBEDDING if EMBEDDING in names else HEAD, matrix),)
    if EMBEDDING in names and HEAD in names:
        table["backbone.head"] = (Source(HEAD, matrix),)
    for i in range(backbone.depth):
        ours, theirs = f"backbone.layers.{i}.", f"{LANGUAGE}layers.{i}."
        norm(ours + "norm1", theirs + "input_layernorm", backbone.width, ("weight",))
        norm(ours + "norm2", theirs + "post_attention_layernorm", backbone.width, ("weight",))
        table |= _attention_and_mlp(ours, theirs, backbone)
    norm("backbone.norm", LANGUAGE + "norm", backbone.width, ("weight",))

    affine("expert.action_in", "action_in_proj", expert.width, config.action_dim)
    affine("expert.time_in", "time_mlp_in", expert.width, expert.width)
    affine("expert.time_out", "time_mlp_out", expert.width, expert.width)
    for i in range(expert.depth):
        ours, theirs = f"expert.layers.{i}.", f"{EXPERT}layers.{i}."
        affine(ours + "norm1.dense", theirs + "input_layernorm.dense", 3 * expert.width, expert.width)
        affine(ours + "norm2.dense", theirs + "post_attention_layernorm.dense", 3 * expert.width, expert.width)
        table |= _attention_and_mlp(ours, theirs, expert)
    affine("expert.norm.dense", EXPERT + "norm.dense", 3 * expert.width, expert.width)
    affine("expert.action_out", "action_out_proj", config.action_dim, expert.width)
    return table


def _attention_and_mlp(ours: str, theirs: str, config: TransformerConfig) -> Sources:
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    return {
        f"{ours}attention.qkv.weight": tuple(
            Source(f"{theirs}self_attn.{part}_proj.weight", (rows, config.width))
            for part, rows in (("q", queries), ("k", keys), ("v", keys))
        ),
        f"{ours}attention.out.weight": (Source(f"{theirs}self_attn.o_proj.weight", (config.width, queries)),),
        f"{ours}mlp.gate_up.weight": tuple(
            Source(f"{theirs}mlp.{part}_proj.weight", (config.mlp_dim, config.width)) for part in ("gate", "up")
        ),
        f"{ours}mlp.down.weight": (Source(f"{theirs}mlp.down_proj.weight", (config.width, config.mlp_dim)),),
    }
