"""Our own policy folder: config.json, model.safetensors under our names, norm_stats.json, tokenizer.

config.json: `{"type": "oxygen_pi05", "version": 1, "model": {sizes}, "conventions": {...}, "robot": NAME,
"weights": "trained" | "random"}`. Everything that a loader needs to know is in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..pi05.config import Pi05Config
from ..pi05.model import Pi05
from .conventions import Conventions
from .errors import CheckpointError
from .files import SINGLE
from .layouts import Source, Sources
from .safetensors_writer import Spec, write_safetensors

TYPE, VERSION = "oxygen_pi05", 1
HEAD = "backbone.head"
TOKENIZERS = ("tokenizer.model", "paligemma_tokenizer.model", "tokenizer.json")
"""The same as embodiment.tokenizer.FILES, which this room may not import."""


@dataclass(frozen=True)
class NativeConfig:
    """The content of config.json."""

    config: Pi05Config
    conventions: Conventions
    robot: str | None
    trained: bool


def read_config(content: Mapping[str, Any], folder: Path) -> NativeConfig:
    """Raises CheckpointError for another version, or a field that is missing or unknown."""
    if content.get("version") != VERSION:
        raise CheckpointError(f"{folder}/config.json has version {content.get('version')}, known is {VERSION}")
    try:
        return NativeConfig(
            Pi05Config.from_dict(content["model"]), Conventions.from_dict(content["conventions"]),
            content.get("robot"), {"trained": True, "random": False}[content["weights"]],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{folder}/config.json does not describe a policy: {error!r}") from error


def sources(config: Pi05Config, names: Collection[str]) -> Sources:
    """Every parameter is stored under its own name; the head only where it is not the embedding."""
    with torch.device("meta"):
        table = {name: (Source(name, tuple(p.shape)),) for name, p in Pi05(config).named_parameters()}
    if HEAD in names:
        table[HEAD] = (Source(HEAD, table["backbone.embedding"][0].shape),)
    return table


def save(folder: Path, model: Pi05, *, conventions: Conventions | Mapping[str, Any], robot: str | None, trained: bool,
         dtype: torch.dtype | None = None) -> None:
    """Write config.json and model.safetensors; statistics and tokenizer are files of their own beside them.

    dtype: of every tensor; None keeps what each has.
    """
    parameters = dict(model.named_parameters())
    described = conventions if isinstance(conventions, Conventions) else Conventions.from_dict(conventions)
    write(
        folder, NativeConfig(model.config, described, robot, trained),
        {name: Spec(tuple(p.shape), dtype or p.dtype) for name, p in parameters.items()},
        lambda name: parameters[name].to(dtype or parameters[name].dtype),
    )


def write(folder: Path, content: NativeConfig, specs: Mapping[str, Spec], read: Callable[[str], torch.Tensor]) -> None:
    """The same from parameters that are read one by one."""
    folder.mkdir(parents=True, exist_ok=True)
    described = {
        "type": TYPE, "version": VERSION, "robot": content.robot, "weights": "trained" if content.trained else "random",
        "conventions": content.conventions.to_dict(), "model": content.config.to_dict(),
    }
    (folder / "config.json").write_text(json.dumps(described, indent=2) + "\n")
    write_safetensors(folder / SINGLE, specs, read)
