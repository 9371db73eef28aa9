"""What glibc keeps of freed memory: its heap is in arenas, new ones made whenever threads contend, and each keeps some.

Every lifecycle transition has new threads, so a process that goes on taking transitions would go on growing, by some
MiB an arena (mallopt(3), malloc_trim(3)). Other C libraries have neither call, nor arenas of this kind.
"""

from __future__ import annotations

import contextlib
import ctypes

_M_ARENA_MAX = -8  # malloc.h


def limit_arenas(count: int) -> None:
    """To be called while there are no threads: arenas that exist stay."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, count)


def give_back() -> None:
    """Freed memory to the system, of all arenas."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
