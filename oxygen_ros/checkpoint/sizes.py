"""The sizes of a network, from the shapes of its stored tensors and from what the folder says besides."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..pi05.config import PRESETS, Pi05Config, TransformerConfig, VisionConfig
from .errors import CheckpointError
from .layouts import EMBEDDING, EXPERT, HEAD, LANGUAGE, VISION

Shapes = Mapping[str, tuple[int, ...]]
RELEASED = PRESETS["pi05"]


@dataclass(frozen=True)
class Stated:
    """What shapes do not tell. None: as in the released model.

    action_horizon and max_token_len come from config.json; head counts and constants of other sizes only from the
    `dims.json` of a reference folder.
    """

    action_horizon: int
    max_token_len: int | None = None
    action_dim: int | None = None
    vision_heads: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    rms_norm_eps: float | None = None
    layer_norm_eps: float | None = None
    rope_theta: float | None = None
    time_min_period: float | None = None
    time_max_period: float | None = None


def stated(config: Mapping[str, Any], dims: Mapping[str, Any], horizon: str, action_dim: str) -> Stated:
    """From config.json, whose names for two fields are given, and from dims.json where there is one."""
    vision, backbone = dims.get("vision", {}), dims.get("backbone", {})
    action_horizon = config.get(horizon) or dims.get("action_horizon")
    if not action_horizon:
        raise CheckpointError(
            f"nothing says how many actions a chunk has (openpi's trainer does not write it down): "
            f'make a config.json with {{"{horizon}": N}}, the {horizon} of the training configuration'
        )
    return Stated(
        action_horizon=action_horizon,
        max_token_len=config.get("tokenizer_max_length") or dims.get("max_token_len"),
        action_dim=config.get(action_dim),
        vision_heads=vision.get("num_heads"),
        heads=backbone.get("num_heads"),
        kv_heads=backbone.get("num_kv_heads"),
        rms_norm_eps=dims.get("rms_norm_eps"),
        layer_norm_eps=dims.get("layer_norm_eps"),
        rope_theta=dims.get("rope_theta"),
        time_min_period=config.get("min_period") or dims.get("time_min_period"),
        time_max_period=config.get("max_period") or dims.get("time_max_period"),
    )


def infer_config(shapes: Shapes, told: Stated) -> Pi05Config:
    """Each size is what most of the tensors say that show it, so that one wrong tensor stands out by its shape.

    Where no tensor shows a size the released model's holds. Raises CheckpointError for sizes that cannot be.
    """
    vision_width = _most(shapes, VISION, r"layer_norm[12]\.(weight|bias)|out_proj\.bias|fc2\.bias", 0) or 1152
    tokens = _most(shapes, VISION, r"position_embedding\.weight", 0) or RELEASED.vision.tokens_per_image
    patch = _most(shapes, VISION, r"patch_embedding\.weight", 2) or RELEASED.vision.patch_size
    width = _most(shapes, LANGUAGE, r"layernorm\.weight|^norm\.weight", 0) or RELEASED.backbone.width
    expert_width = _most(shapes, EXPERT, r"[vqk]_proj\.weight|gate_proj\.weight", 1) or RELEASED.expert.width
    queries = _most(shapes, "", r"(language_model|gemma_expert).*q_proj\.weight", 0) or 2048
    keys = _most(shapes, "", r"(language_model|gemma_expert).*[kv]_proj\.weight", 0) or 256
    kv_heads = told.kv_heads or 1
    heads = told.heads or max(1, queries * kv_heads // keys)
    # An interrupted copy may have lost whole layers: what is as wide as the released model is as deep.
    depth = max(_depth(shapes, LANGUAGE), _depth(shapes, EXPERT), RELEASED.backbone.depth if width == 2048 else 0)
    vision_depth = max(_depth(shapes, VISION + "encoder."), RELEASED.vision.depth if vision_width == 1152 else 0)
    side = round(tokens**0.5)
    # SigLIP So400m's heads are 72 wide; other towers must say how many they have.
    vision_heads = told.vision_heads or (vision_width // 72 if vision_width % 72 == 0 else 0)
    if side**2 != tokens or not vision_heads:
        raise CheckpointError(
            f"a vision tower of width {vision_width} with {tokens} positions is not pi0.5's SigLIP So400m; "
            "give its num_heads in a dims.json beside the weights"
        )
    attention = {"num_heads": heads, "num_kv_heads": kv_heads, "head_dim": keys // kv_heads}
    vision_mlp = _most(shapes, VISION, r"fc1\.(weight|bias)", 0) or RELEASED.vision.mlp_dim
    mlp = _most(shapes, LANGUAGE, r"(gate|up)_proj\.weight", 0) or RELEASED.backbone.mlp_dim
    expert_mlp = _most(shapes, EXPERT, r"(gate|up)_proj\.weight", 0) or RELEASED.expert.mlp_dim
    try:
        config = Pi05Config(
            vision=VisionConfig(
                image_size=side * patch, patch_size=patch, width=vision_width, depth=vision_depth,
                num_heads=vision_heads, mlp_dim=vision_mlp,
            ),
            backbone=TransformerConfig(width, depth, mlp, **attention),
            expert=TransformerConfig(expert_width, depth, expert_mlp, **attention),
            vocab_size=_most(shapes, "", f"^({re.escape(EMBEDDING)}|{re.escape(HEAD)})$", 0) or RELEASED.vocab_size,
            action_dim=told.action_dim or _most(shapes, "", r"^action_out_proj\.", 0) or RELEASED.action_dim,
            action_horizon=told.action_horizon,
            max_token_len=told.max_token_len or RELEASED.max_token_len,
        )
    except ValueError as error:
        raise CheckpointError(f"tensors and config.json are not of a pi0.5 network: {error}") from error
    constants = {
        name: value for name in ("rms_norm_eps", "rope_theta", "time_min_period", "time_max_period")
        if (value := getattr(told, name)) is not None
    }
    if told.layer_norm_eps is not None:
        constants["vision"] = replace(config.vision, layer_norm_eps=told.layer_norm_eps)
    return replace(config, **constants)


def _most(shapes: Shapes, prefix: str, pattern: str, axis: int) -> int | None:
    """The commonest length of this axis among the tensors under `prefix` whose further name matches."""
    lengths = Counter(
        shape[axis] for name, shape in shapes.items()
        if name.startswith(prefix) and len(shape) > axis and re.search(pattern, name[len(prefix):])
    )
    return lengths.most_common(1)[0][0] if lengths else None


def _depth(shapes: Shapes, prefix: str) -> int:
    layer = re.compile(re.escape(prefix) + r"layers\.(\d+)\.")
    return 1 + max((int(m[1]) for name in shapes if (m := layer.match(name))), default=-1)
