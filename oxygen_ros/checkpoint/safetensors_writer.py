"""Writing a safetensors file tensor by tensor, so that a policy of any size needs the memory of one tensor.

The format (huggingface/safetensors, "Format"): a little-endian 64-bit header length, a JSON header, the bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch

_NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


class Spec(NamedTuple):
    """What a tensor will be, said before it is there."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def size(self) -> int:
        return self.dtype.itemsize * torch.Size(self.shape).numel()


def write_safetensors(path: Path, specs: Mapping[str, Spec], read: Callable[[str], torch.Tensor]) -> None:
    """read(name) is called once for each name and must give what its Spec says."""
    # Wide types first: the data then needs no gaps to stay aligned for whoever maps it.
    names = sorted(specs, key=lambda name: (-specs[name].dtype.itemsize, name))
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name in names:
        start, end = end, end + specs[name].size
        header[name] = {
            "dtype": _NAMES[specs[name].dtype], "shape": list(specs[name].shape), "data_offsets": [start, end]
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            tensor = read(name)
            if tuple(tensor.shape) != specs[name].shape or tensor.dtype != specs[name].dtype:
                raise ValueError(f"{name} is {tensor.dtype} {list(tensor.shape)}, announced as {specs[name]}")
            file.write(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
