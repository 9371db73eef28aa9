"""Which tensors of openpi's and LeRobot's files make up each parameter of `Pi05` (pi05.md section 10.2)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..pi05.config import Pi05Config, TransformerConfig, VisionConfig
from .errors import CheckpointError

_PALIGEMMA = "paligemma_with_expert.paligemma."
_VISION = _PALIGEMMA + "model.vision_tower.vision_model."
_LANGUAGE = _PALIGEMMA + "model.language_model."
_EXPERT = "paligemma_with_expert.gemma_expert.model."
_PATCH = _VISION + "embeddings.patch_embedding.weight"
_POSITION = _VISION + "embeddings.position_embedding.weight"

EMBEDDING = _LANGUAGE + "embed_tokens.weight"
HEAD = _PALIGEMMA + "lm_head.weight"
# Written by converters and trainers, read by nobody.
HARMLESS = re.compile(r"^paligemma_with_expert\.gemma_expert\.(lm_head|model\.embed_tokens)\.weight$")


def is_openpi(names: Mapping[str, object]) -> bool:
    """Whether these tensor names are those of pi0.5 as openpi and LeRobot write it."""
    return "time_mlp_in.weight" in names and f"{_EXPERT}norm.dense.weight" in names


def sources(config: Pi05Config) -> dict[str, tuple[str, ...]]:
    """Our parameter -> the stored tensors that, joined along their first axis, are it.

    The embedding and the language head are not listed: see `embedding_and_head`.
    """
    table = {
        "vision.patch_embedding.weight": (_PATCH,),
        "vision.patch_embedding.bias": (_VISION + "embeddings.patch_embedding.bias",),
        "vision.position_embedding": (_POSITION,),
        "backbone.norm.weight": (_LANGUAGE + "norm.weight",),
    }
    for end in ("weight", "bias"):
        table[f"vision.norm.{end}"] = (f"{_VISION}post_layernorm.{end}",)
        table[f"vision.projector.{end}"] = (f"{_PALIGEMMA}model.multi_modal_projector.linear.{end}",)
        table[f"expert.norm.dense.{end}"] = (f"{_EXPERT}norm.dense.{end}",)
        for ours, theirs in (("action_in", "action_in_proj"), ("action_out", "action_out_proj"),
                             ("time_in", "time_mlp_in"), ("time_out", "time_mlp_out")):
            table[f"expert.{ours}.{end}"] = (f"{theirs}.{end}",)
        for i in range(config.vision.depth):
            ours, theirs = f"vision.blocks.{i}.", f"{_VISION}encoder.layers.{i}."
            table[f"{ours}norm1.{end}"] = (f"{theirs}layer_norm1.{end}",)
            table[f"{ours}norm2.{end}"] = (f"{theirs}layer_norm2.{end}",)
            table[f"{ours}qkv.{end}"] = tuple(f"{theirs}self_attn.{part}_proj.{end}" for part in "qkv")
            table[f"{ours}out.{end}"] = (f"{theirs}self_attn.out_proj.{end}",)
            table[f"{ours}fc1.{end}"] = (f"{theirs}mlp.fc1.{end}",)
            table[f"{ours}fc2.{end}"] = (f"{theirs}mlp.fc2.{end}",)
    for ours, theirs, norms in (
        ("backbone", _LANGUAGE, {"weight": "weight"}),
        ("expert", _EXPERT, {"dense.weight": "dense.weight", "dense.bias": "dense.bias"}),
    ):
        for i in range(config.backbone.depth):
            mine, yours = f"{ours}.layers.{i}.", f"{theirs}layers.{i}."
            for end in norms:
                table[f"{mine}norm1.{end}"] = (f"{yours}input_layernorm.{end}",)
                table[f"{mine}norm2.{end}"] = (f"{yours}post_attention_layernorm.{end}",)
            table[f"{mine}attention.qkv.weight"] = tuple(f"{yours}self_attn.{part}_proj.weight" for part in "qkv")
            table[f"{mine}attention.out.weight"] = (f"{yours}self_attn.o_proj.weight",)
            table[f"{mine}mlp.gate_up.weight"] = (f"{yours}mlp.gate_proj.weight", f"{yours}mlp.up_proj.weight")
            table[f"{mine}mlp.down.weight"] = (f"{yours}mlp.down_proj.weight",)
    return table


def embedding_and_head(names: Mapping[str, object]) -> tuple[str, str]:
    """The stored names of the input embedding and of the language head; files hold one of them or both."""
    if EMBEDDING not in names and HEAD not in names:
        raise CheckpointError(f"neither {EMBEDDING} nor {HEAD} is there: the file holds no token embedding")
    return (EMBEDDING if EMBEDDING in names else HEAD), (HEAD if HEAD in names else EMBEDDING)


def infer_config(shapes: Mapping[str, tuple[int, ...]], *, horizon: int, max_token_len: int, heads: dict | None = None
                 ) -> Pi05Config:
    """Sizes from the shapes of the stored tensors.

    Shapes do not tell how many heads share a width: `heads` may give `vision`, `attention` and `kv`. Without it
    the released model's rules hold: SigLIP So400m's head dim of 72 and one key/value head.
    """
    heads = heads or {}

    def shape(name: str) -> tuple[int, ...]:
        if name not in shapes:
            raise CheckpointError(f"tensor {name} is missing, so the model's sizes cannot be told")
        return shapes[name]

    def depth(prefix: str) -> int:
        found = re.compile(re.escape(prefix) + r"layers\.(\d+)\.")
        return 1 + max((int(m[1]) for name in shapes if (m := found.match(name))), default=-1)

    vision_width, _, patch, _ = shape(_PATCH)
    tokens, _ = shape(_POSITION)
    grid = round(tokens**0.5)
    vision_heads = heads.get("vision") or vision_width // 72
    if grid**2 != tokens or not vision_heads or vision_width % vision_heads:
        raise CheckpointError(
            f"a vision tower of width {vision_width} and {tokens} positions is not SigLIP So400m; give its head count"
        )
    q_rows, width = shape(f"{_LANGUAGE}layers.0.self_attn.q_proj.weight")
    k_rows, _ = shape(f"{_LANGUAGE}layers.0.self_attn.k_proj.weight")
    kv_heads = heads.get("kv") or 1
    num_heads = heads.get("attention") or q_rows * kv_heads // k_rows
    expert_width, action_dim = shape("action_in_proj.weight")
    embedding, _ = embedding_and_head(shapes)
    attention = {"num_heads": num_heads, "num_kv_heads": kv_heads, "head_dim": k_rows // kv_heads}
    return Pi05Config(
        vision=VisionConfig(
            image_size=grid * patch, patch_size=patch, width=vision_width, num_heads=vision_heads,
            depth=depth(_VISION + "encoder."), mlp_dim=shape(f"{_VISION}encoder.layers.0.mlp.fc1.weight")[0],
        ),
        backbone=TransformerConfig(
            width, depth(_LANGUAGE), shape(f"{_LANGUAGE}layers.0.mlp.gate_proj.weight")[0], **attention
        ),
        expert=TransformerConfig(
            expert_width, depth(_EXPERT), shape(f"{_EXPERT}layers.0.mlp.gate_proj.weight")[0], **attention
        ),
        vocab_size=shape(embedding)[0],
        action_dim=action_dim,
        action_horizon=horizon,
        max_token_len=max_token_len,
    )
