"""Our own policy folder: config.json, model.safetensors under our names, norm_stats.json, tokenizer.

config.json: `{"type": "oxygen_pi05", "version": 1, "model": {sizes}, "conventions": {...}, "robot": NAME,
"weights": "trained" | "random"}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from ..pi05.config import Pi05Config
from ..pi05.model import Pi05
from .errors import CheckpointError

TYPE, VERSION = "oxygen_pi05", 1
EMBEDDING, HEAD = "backbone.embedding", "backbone.head"


@dataclass(frozen=True)
class NativeConfig:
    config: Pi05Config
    conventions: dict
    robot: str | None
    trained: bool


def read_config(content: Mapping, folder: Path) -> NativeConfig:
    """Raises CheckpointError for another version, or a field that is missing or unknown."""
    if content.get("version") != VERSION:
        raise CheckpointError(f"{folder}/config.json has version {content.get('version')}, this software reads {VERSION}")
    try:
        return NativeConfig(
            Pi05Config.from_dict(content["model"]), content["conventions"], content.get("robot"),
            {"trained": True, "random": False}[content["weights"]],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{folder}/config.json does not describe a policy: {error!r}") from error


def sources(config: Pi05Config) -> dict[str, tuple[str, ...]]:
    """Every parameter is stored under its own name."""
    with torch.device("meta"):
        return {name: (name,) for name, _ in Pi05(config).named_parameters()}


def save(folder: Path, model: Pi05, *, conventions: dict, robot: str | None, trained: bool,
         dtype: torch.dtype | None = None) -> None:
    """Write config.json and model.safetensors; statistics and tokenizer are files of their own beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "type": TYPE, "version": VERSION, "robot": robot, "weights": "trained" if trained else "random",
        "conventions": conventions, "model": model.config.to_dict(),
    }
    (folder / "config.json").write_text(json.dumps(content, indent=2) + "\n")
    tensors = {name: p.detach().to(dtype or p.dtype).contiguous().cpu() for name, p in model.named_parameters()}
    weights = folder / "model.safetensors"
    save_file(tensors, weights, metadata={"format": "pt"})
    weights.chmod(0o644)  # safetensors makes it its owner's alone; an installed policy is read by others
