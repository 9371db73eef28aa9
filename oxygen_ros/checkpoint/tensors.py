"""The tensors of a folder's safetensors files, memory-mapped and read one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from .errors import CheckpointError

PICKLES = ("*.pt", "*.pth", "*.bin", "*.ckpt", "*.pkl")
_WRAPPERS = re.compile(r"^(?:(?:_orig_mod|module|model)\.)+(?=paligemma_with_expert\.|action_|time_|vision\.|backbone\.|expert\.)")


class TensorFolder(Mapping[str, torch.Tensor]):
    """Name -> tensor over one `model.safetensors` or the shards of `model.safetensors.index.json`.

    Names are given without the prefixes that wrappers leave (`model.`, `module.`, `_orig_mod.`).
    Raises CheckpointError for a missing, truncated or pickled file.
    """

    def __init__(self, folder: Path) -> None:
        self._files = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for path in _weight_files(folder):
            try:
                file = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise CheckpointError(f"{path} cannot be read as safetensors ({error}); copy the file again") from error
            for stored in file.keys():
                name = _WRAPPERS.sub("", stored)
                self._files[name] = (file, stored)
                self.shapes[name] = tuple(file.get_slice(stored).get_shape())

    def __getitem__(self, name: str) -> torch.Tensor:
        file, stored = self._files[name]
        return file.get_tensor(stored)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def _weight_files(folder: Path) -> list[Path]:
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        return [single]
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (ValueError, KeyError, AttributeError) as error:
            raise CheckpointError(f"{index} is not a safetensors index: {error!r}") from error
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise CheckpointError(f"{index} names {len(names)} files, but {', '.join(missing)} is missing in {folder}")
        return [folder / name for name in names]
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if pickles:
        raise CheckpointError(
            f"{folder} holds {', '.join(pickles)}, which are pickles and can run code; only safetensors are read. "
            "On a machine that trusts them, write their tensors with safetensors.torch.save_file to model.safetensors"
        )
    raise CheckpointError(f"{folder} has no weights: neither {single.name} nor {index.name} is there")
