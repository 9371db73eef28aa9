"""Joules that the machine says it used: NVML on an NVIDIA GPU, RAPL where the kernel lets us read it, else none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

POWERCAP = Path("/sys/class/powercap")

Meter = Callable[[], "float | None"]
"""Joules since some moment in the past; None where nothing can be read."""


def meter(device: torch.device) -> tuple[str | None, Meter]:
    """What measures the energy of `device`, by name, and its meter. (None, a meter of None) if nothing does."""
    if device.type == "cuda":
        return _nvml(device)
    packages = [zone for zone in sorted(POWERCAP.glob("intel-rapl:*")) if zone.name.count(":") == 1]
    if not packages or _rapl(packages) is None:
        return None, lambda: None
    return "RAPL packages", _Unwrapped(packages)


class _Unwrapped:
    """The sum of RAPL's counters, each of which starts again from 0 at its own limit."""

    def __init__(self, packages: list[Path]) -> None:
        self._packages = packages
        self._limits = [int((zone / "max_energy_range_uj").read_text()) for zone in packages]
        self._last = _rapl(packages)
        self._joules = 0.0

    def __call__(self) -> float | None:
        now = _rapl(self._packages)
        if now is None or self._last is None:
            return None
        self._joules += sum((b - a) % (limit + 1) for a, b, limit in zip(self._last, now, self._limits)) * 1e-6
        self._last = now
        return self._joules


def _rapl(packages: list[Path]) -> list[int] | None:
    """Microjoules of each package. Most kernels let only root read them."""
    try:
        return [int((zone / "energy_uj").read_text()) for zone in packages]
    except OSError:
        return None


def _nvml(device: torch.device) -> tuple[str | None, Meter]:
    try:
        import pynvml
        pynvml.nvmlInit()
        # NVML does not know CUDA_VISIBLE_DEVICES; the GPU's own id finds the same one in both.
        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except Exception:  # no package, no driver, or a GPU without the counter: nothing is measured
        return None, lambda: None
    return "NVML", lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) * 1e-3
