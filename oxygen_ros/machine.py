"""What this is computed on, for whoever reads a number that was measured here."""

from __future__ import annotations

import os
import platform
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


def resident_bytes() -> int | None:
    """Memory of this process that is in RAM; None where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
