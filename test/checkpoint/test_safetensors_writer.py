"""Files written tensor by tensor are read by the safetensors library, and their data is aligned for whoever maps it."""

import json

import pytest
import torch
from safetensors.torch import load_file

from oxygen_ros.checkpoint.safetensors_writer import Spec, write_safetensors


@pytest.mark.parametrize("name", ["a", "ab", "abc", "abcd", "abcde", "abcdef", "abcdefg", "abcdefgh"])
def test_odd_sizes_and_any_header_length(tmp_path, name):
    tensors = {
        name: torch.arange(3, dtype=torch.bfloat16), "wide": torch.arange(5, dtype=torch.float32).view(5, 1),
        "half": torch.arange(8, dtype=torch.float16), "transposed": torch.arange(6, dtype=torch.float32).view(2, 3).T,
    }
    file = tmp_path / "model.safetensors"
    write_safetensors(file, {n: Spec(tuple(t.shape), t.dtype) for n, t in tensors.items()}, tensors.__getitem__)
    stored = load_file(file)
    assert stored.keys() == tensors.keys()
    assert all(torch.equal(stored[n], t) and stored[n].dtype == t.dtype for n, t in tensors.items())
    content = file.read_bytes()
    size = int.from_bytes(content[:8], "little")
    assert size % 8 == 0
    header = json.loads(content[8 : 8 + size])
    assert all(header[n]["data_offsets"][0] % t.dtype.itemsize == 0 for n, t in tensors.items())


def test_a_tensor_that_is_not_what_was_announced(tmp_path):
    with pytest.raises(ValueError, match="x is torch.float32 \\[2\\], announced as"):
        write_safetensors(tmp_path / "f", {"x": Spec((3,), torch.float32)}, lambda name: torch.ones(2))
