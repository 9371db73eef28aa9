"""Memory and temperature of what the network runs on, where the machine tells them."""

from __future__ import annotations

from pathlib import Path

import torch

from ..machine import resident_bytes

_ZONES = Path("/sys/class/thermal")


def readings(device: torch.device) -> dict[str, str]:
    """Lines for diagnostics; what cannot be read here is left out."""
    resident = resident_bytes()
    found = {"process memory (MiB)": "" if resident is None else f"{resident / 2**20:.0f}"}
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        found["device memory allocated (MiB)"] = f"{torch.cuda.memory_allocated(device) / 2**20:.0f}"
        found["device memory free (MiB)"] = f"{free / 2**20:.0f} of {total / 2**20:.0f}"
        found["device temperature (C)"] = _gpu_temperature(device)
    else:
        found["device temperature (C)"] = _cpu_temperature()
    return {name: value for name, value in found.items() if value}


def _cpu_temperature() -> str:
    found = []
    for zone in _ZONES.glob("thermal_zone*/temp"):
        try:
            found.append(int(zone.read_text()) / 1000)
        except (OSError, ValueError):  # a sensor that is off says so with an error
            continue
    return f"{max(found):.0f}" if found else ""


def _gpu_temperature(device: torch.device) -> str:
    try:
        return str(torch.cuda.temperature(device))
    except Exception:  # it needs pynvml, which need not be there, and a driver that tells
        return ""
