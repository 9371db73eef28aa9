"""Which files of a folder hold the weights, and what a folder is that holds none we read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from .errors import CheckpointError

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = ("*.pt", "*.pth", "*.bin", "*.ckpt", "*.pkl")
MERGE = "merge the adapter into its base model first (peft: merge_and_unload, then save the whole policy)"


def read_json(path: Path) -> dict[str, Any]:
    """An object from a JSON file. Raises CheckpointError that names the file."""
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except (ValueError, OSError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds {type(content).__name__}, expected an object")
    return content


@contextmanager
def reading_safetensors(path: Path) -> Iterator[None]:
    """Around what reads such a file. Raises CheckpointError that names it."""
    try:
        path.open("rb").close()  # of a file that nobody may read the library says that there is none
        yield
    except (SafetensorError, OSError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read as safetensors ({error}); copy the file again") from error


def weight_files(folder: Path) -> list[Path]:
    """`model.safetensors`, or the shards that `model.safetensors.index.json` names.

    Raises CheckpointError with the remedy for adapters, pickles, JAX folders, and where nothing is there.
    """
    if any(folder.glob("adapter_model.*")) or (folder / "adapter_config.json").is_file():
        # Also beside whole weights: those are then the base model, which is not the policy.
        raise CheckpointError(f"{folder} holds a LoRA adapter (adapter_config.json, adapter_model.*); {MERGE}")
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if (folder / INDEX).is_file():
        return _shards(folder)
    shards = sorted(path.name for path in folder.glob("*.safetensors"))
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    inner = next((f for f in (folder / "pretrained_model", folder / "openpi") if (f / SINGLE).is_file()), None)
    if inner:
        raise CheckpointError(f"{folder} has no {SINGLE} of its own; the policy folder is {inner}")
    if pickles:
        raise CheckpointError(
            f"{folder} holds {', '.join(pickles)}: pickle files can run code when they are read, so only safetensors "
            f"are. To convert them: safetensors.torch.save_file(torch.load(FILE, weights_only=True), '{SINGLE}')"
        )
    if (folder / "params").is_dir():
        raise CheckpointError(
            f"{folder} is an openpi JAX checkpoint (params/); convert it with openpi's "
            "examples/convert_jax_model_to_pytorch.py and give the folder that it writes"
        )
    found = f"; {', '.join(shards)} is there, but no index that says what belongs together" if shards else ""
    raise CheckpointError(f"{folder} has no weights: neither {SINGLE} nor {INDEX} is there{found}")


def _shards(folder: Path) -> list[Path]:
    index = folder / INDEX
    try:
        names = sorted(set(read_json(index)["weight_map"].values()))
    except (KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{index} is not a safetensors index: {error!r}") from error
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{index} names {len(names)} files, but {', '.join(missing)} is missing in {folder}: copy the folder again"
        )
    return [folder / name for name in names]
