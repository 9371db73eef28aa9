"""The tensors of a folder's safetensors files, memory-mapped one by one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import safe_open

from .errors import CheckpointError
from .files import MERGE, reading_safetensors, weight_files

# What torch.compile, DDP, FSDP, activation checkpointing and LeRobot put around a model's own names.
_LEADING = re.compile(r"^(?:(?:module|model)\.)+")
_ANYWHERE = re.compile(r"(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
_OLD_NAME = re.compile(r"^action_time_mlp_")  # LeRobot reads these as time_mlp_, so do we
_ADAPTER = re.compile(r"\.lora_|\.base_layer\.|^base_model\.")

DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}
"""The types that a weight may have, by their names in safetensors files."""


class TensorFolder(Mapping[str, torch.Tensor]):
    """Name -> tensor over one `model.safetensors` or the shards of `model.safetensors.index.json`.

    Names are given without what wrappers put before them. shapes, and types as safetensors names them: by name,
    known without reading. Raises CheckpointError for a missing, truncated, pickled or adapter file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._places: dict[str, tuple[Path, str]] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.types: dict[str, str] = {}
        self.files = weight_files(folder)
        for path in self.files:
            with reading_safetensors(path), safe_open(path, framework="pt") as file:
                for stored in file.keys():
                    piece = file.get_slice(stored)
                    self._add(path, stored, tuple(piece.get_shape()), piece.get_dtype())
        adapters = [name for name in self._places if _ADAPTER.search(name)]
        if adapters:
            raise CheckpointError(f"{folder} holds {len(adapters)} LoRA adapter tensors ({adapters[0]}, ...); {MERGE}")

    def _add(self, path: Path, stored: str, shape: tuple[int, ...], dtype: str) -> None:
        name = _OLD_NAME.sub("time_mlp_", _LEADING.sub("", _ANYWHERE.sub("", stored)))
        if name in self._places:
            other, theirs = self._places[name]
            raise CheckpointError(
                f"{path.name} holds {stored} and {other.name} holds {theirs}, both for {name}: remove one of them"
            )
        self._places[name], self.shapes[name], self.types[name] = (path, stored), shape, dtype

    def __getitem__(self, name: str) -> torch.Tensor:
        """A view of the mapped file. Each has a mapping of its own, which ends with it: pages that were read would
        otherwise stay in the process's memory beside the copies made from them."""
        path, stored = self._places[name]
        with safe_open(path, framework="pt") as file:
            return file.get_tensor(stored)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def summary(self) -> str:
        """For the log: how many tensors of which types in how many files."""
        types = ", ".join(f"{count} {name}" for name, count in Counter(self.types.values()).most_common())
        return f"{len(self)} tensors ({types}) in {len(self.files)} file{'s' if len(self.files) > 1 else ''}"
