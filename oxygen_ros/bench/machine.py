"""What the numbers were measured on, and two probes of it that belong beside every table."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import torch


def describe(device: torch.device) -> dict[str, object]:
    """The machine in words and numbers."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load_average_before": load,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def busy(described: dict[str, object]) -> bool:
    """Whether the machine was working before we came. Threads that wait for each other then lose whole time slices."""
    load = described["load_average_before"]
    return load is not None and load > 0.5


def seconds(work: Callable[[], object], device: torch.device, repeats: int = 5) -> float:
    """The median time of `work`, in seconds, after one run that is not counted."""
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    return sorted(times[1:])[repeats // 2]


@torch.inference_mode()
def matmul_flops(device: torch.device, dtype: torch.dtype, size: int | None = None) -> float:
    """Floating-point operations per second of a square matrix product, a multiply-add being two."""
    size = size or (1536 if device.type == "cpu" else 8192)
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return 2 * size**3 / seconds(lambda: a @ b, device)


@torch.inference_mode()
def bandwidth(device: torch.device, dtype: torch.dtype, size: int = 256 * 2**20) -> float:
    """Bytes per second at which `size` bytes of weights are read for one row: what decoding lives on."""
    width = 4096
    matrix = torch.ones(size // dtype.itemsize // width, width, device=device, dtype=dtype)
    row = torch.ones(1, width, device=device, dtype=dtype)
    return matrix.numel() * dtype.itemsize / seconds(lambda: torch.nn.functional.linear(row, matrix), device)


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
