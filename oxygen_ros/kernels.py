"""The compiled code of src/: what it is, and for which processor generation it is used."""

from __future__ import annotations

import ctypes
import functools
import itertools
import warnings
from pathlib import Path

import oxygen_ros

LIBRARY = "liboxygen_kernels.so"

_Pointer, _Long = ctypes.c_void_p, ctypes.c_long
_FUNCTIONS = {  # of src/dispatch.cpp: result, arguments
    "oxygen_generation": (ctypes.c_char_p, _Long),
    "oxygen_panel_width": (_Long, _Long),
    "oxygen_scratch_size": (_Long, _Pointer, _Pointer),
    "oxygen_transformer": (None, _Long, _Pointer, _Pointer),
    "oxygen_denoise": (None, _Long, _Pointer, _Pointer, _Pointer),
    "oxygen_linear": (None, _Long, _Pointer, _Long, _Long, _Pointer, _Long, _Pointer, _Long),
    "oxygen_gelu": (None, _Long, _Pointer, _Long, _Long, _Long),
    "oxygen_resize": (ctypes.c_bool, _Long, _Pointer, _Pointer, _Pointer, _Pointer, _Long),
}
_chosen = 0


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled code, which colcon puts beside the modules; None where the package was installed without it, and
    with a warning where it was built for another machine."""
    for folder in oxygen_ros.__path__:
        file = Path(folder) / LIBRARY
        if file.is_file():
            try:
                loaded = ctypes.CDLL(str(file))
            except OSError as error:
                warnings.warn(f"the compiled code is not used, computing takes longer: {error}; build the package anew")
                return None
            for name, (result, *arguments) in _FUNCTIONS.items():
                getattr(loaded, name).restype, getattr(loaded, name).argtypes = result, arguments
            return loaded
    return None


def generations() -> list[str]:
    """The instruction sets, the best first, that the compiled code can use on this machine; [] where there is none."""
    loaded = library()
    return [] if loaded is None else [
        name.decode() for name in iter(map(loaded.oxygen_generation, itertools.count()).__next__, None)
    ]


def use(generation: str) -> None:
    """Use this instruction set from now on, but for what is packed already; at first it is the best.

    Raises ValueError if it is not among `generations()`.
    """
    global _chosen
    if generation not in generations():
        raise ValueError(f"no compiled code for {generation} runs here, only for {', '.join(generations())}")
    _chosen = generations().index(generation)


def chosen() -> int:
    """The index in `generations()` of the one to use."""
    return _chosen
