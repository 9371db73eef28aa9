"""Loading holds the weights once: neither the file's mapped pages nor a second copy stay beside them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
from make_full_size_checkpoint import write_descriptions, write_weights  # noqa: E402

from oxygen_ros.pi05.config import PRESETS  # noqa: E402

MEASURE = """
import resource, sys, torch
from oxygen_ros.checkpoint.load import load
from oxygen_ros.pi05.random_weights import random_model
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
checkpoint = load(sys.argv[1])
torch.ones(1 << 20, dtype=torch.bfloat16).aminmax()  # torch's own start-up
before = peak()
model = checkpoint.model(dtype=getattr(torch, sys.argv[2]))
print(peak() - before, sum(p.numel() for p in model.parameters()))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A random policy of the benchmark's size, 170 MB in bfloat16, in shards of 50 MB."""
    folder, config = tmp_path_factory.mktemp("mid"), PRESETS["mid"]
    write_weights(folder, config, 50_000_000)
    write_descriptions(folder, config)
    (folder / "dims.json").write_text(json.dumps({"vision": {"num_heads": 8}}))
    return folder


@pytest.mark.parametrize("dtype, size", [("bfloat16", 2), ("float32", 4)])
def test_peak_memory(folder, dtype, size):
    command = [sys.executable, "-c", MEASURE, folder, dtype]
    grown, parameters = map(int, subprocess.run(command, capture_output=True, check=True, timeout=100).stdout.split())
    assert parameters > 80e6
    assert grown < 1.2 * size * parameters
