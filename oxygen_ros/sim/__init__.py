"""Simulated robots. Of ROS, this room knows only message definitions: it records a bag on a machine without it."""

from . import gl  # noqa: F401  (before a module here imports mujoco, which then chooses its GL library)
