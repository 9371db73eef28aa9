"""The most memory that was in use during a piece of work."""

from __future__ import annotations

from pathlib import Path

import torch

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Peak:
    """Between `begin` and `end`: bytes of CUDA memory, or of the process's resident set on Linux, else None.

    Weights, and what other engines of the process hold, are part of it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def begin(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            return
        try:
            CLEAR.write_text("5")  # resets VmHWM, see proc(5)
            self._known = True
        except OSError:
            self._known = False

    def end(self) -> int | None:
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        if not self._known:
            return None
        peak = next((line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:")), None)
        return None if peak is None else int(peak.split()[1]) * 1024
