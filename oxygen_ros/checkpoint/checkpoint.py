"""A policy folder that was recognised: its sizes, rules and statistics, and its weights when they are asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from ..pi05.config import Pi05Config
from ..pi05.model import Pi05
from . import native
from .conventions import Conventions
from .errors import CheckpointError
from .layouts import Sources
from .statistics import Statistics
from .tensors import DTYPES, TensorFolder

Layout = Literal["oxygen", "openpi", "lerobot"]


@dataclass(frozen=True)
class Checkpoint:
    """A policy folder whose sizes are known and whose weights are still on disk.

    trained: False for weights that are random numbers. robot: the description that the folder names, if any.
    notes: lines for the log, which say what was recognised and which rule was chosen; some begin with `warning: `.
    """

    folder: Path
    layout: Layout
    config: Pi05Config
    conventions: Conventions
    statistics: Statistics
    trained: bool
    robot: str | None
    notes: tuple[str, ...]
    _tensors: TensorFolder
    _sources: Sources

    @property
    def parameters(self) -> tuple[str, ...]:
        """The network's parameter names; `backbone.head` is among them where it is not the embedding."""
        return tuple(self._sources)

    def shape(self, name: str) -> tuple[int, ...]:
        """Of one parameter, as `Pi05` holds it."""
        first = self._sources[name][0].shape
        rows = sum(source.shape[0] for source in self._sources[name])
        # The patch embedding is stored as a convolution and used as a matrix.
        return (rows,) if len(first) == 1 else (rows, torch.Size(first[1:]).numel())

    def stored_dtype(self, name: str) -> torch.dtype:
        """The type in the file; the narrowest that holds them all exactly, where a parameter is stored in pieces."""
        return reduce(torch.promote_types, (DTYPES[self._tensors.types[source.name]] for source in self._sources[name]))

    def read(self, name: str, dtype: torch.dtype, device: str | torch.device = "cpu") -> Tensor:
        """One parameter, copied out of the mapped file piece by piece, straight to where it will stay.

        It is copied on the CPU too: a policy whose weights are pages of a file waits for the disk in the middle of a
        frame, or changes when somebody copies a new file over the old one.
        Raises CheckpointError that names a tensor with NaN or infinity.
        """
        target = torch.empty(self.shape(name), dtype=dtype, device=device)
        start = 0
        for source in self._sources[name]:
            rows = target[start : start + source.shape[0]]
            rows.copy_(self._tensors[source.name].reshape(rows.shape))
            start += len(rows)
            # Both ends are finite only if all is; unlike isfinite this needs no memory of the tensor's size.
            if not torch.stack(rows.aminmax()).isfinite().all():
                raise CheckpointError(self._not_finite(source.name))
        return target

    def model(self, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32,
              progress: Callable[[int, int], None] = lambda done, total: None) -> Pi05:
        """Read the weights to `device`, once; matrices that we keep as one are joined on the way.

        dtype: what the network computes in, whatever the file holds. progress is told how many of how many parameters
        are read; what it raises ends the loading. Raises CheckpointError that names a tensor with NaN or infinity.
        """
        with torch.device("meta"):
            model = Pi05(self.config)
        for done, name in enumerate(self.parameters, start=1):
            owner, _, leaf = name.rpartition(".")
            value = self.read(name, model.precision_of(name, dtype), device)
            setattr(model.get_submodule(owner), leaf, torch.nn.Parameter(value, requires_grad=False))
            progress(done, len(self.parameters))
        return model.eval()

    def sha256(self, stopped: Callable[[], bool] = lambda: False) -> str:
        """Of the weight files, one after the other: what `cat FILES | sha256sum` says. Empty if stopped half-way."""
        digest, block = hashlib.sha256(), memoryview(bytearray(1 << 22))
        for path in self._tensors.files:
            with path.open("rb", buffering=0) as file:
                while count := file.readinto(block):
                    if stopped():
                        return ""
                    digest.update(block[:count])
        return digest.hexdigest()

    @property
    def untied(self) -> bool:
        """Whether the file holds a language head that differs from the embedding."""
        return native.HEAD in self._sources

    def _not_finite(self, stored: str) -> str:
        kind = self._tensors.types[stored]
        why = "; float16 ends at 65504: export the policy as bfloat16 or float32" if kind == "F16" else ""
        return f"tensor {stored} ({kind}) in {self.folder} holds NaN or infinity; it cannot be used{why}"
