"""Off-screen OpenGL for MuJoCo. To be imported before mujoco, which chooses its GL library as it is imported."""
from __future__ import annotations

import os
from ctypes.util import find_library

_MISSING = [name for name in ("EGL", "GL") if find_library(name) is None]
# Without the libraries `import mujoco` itself fails under "egl"; disabled, the physics still runs.
os.environ.setdefault("MUJOCO_GL", "disabled" if _MISSING else "egl")


def require() -> None:
    """Raises RuntimeError, with the remedy, where no picture can be rendered."""
    if os.environ["MUJOCO_GL"] == "disabled":
        found = f"lib{' and lib'.join(_MISSING)} not found" if _MISSING else "MUJOCO_GL=disabled"
        raise RuntimeError(
            f"no OpenGL to render pictures with ({found}): apt-get install libegl1 libgl1, and MUJOCO_GL=egl")
