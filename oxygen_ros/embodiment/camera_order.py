"""Which of a robot's cameras is which of the policy's, and so in which order the model sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from .errors import InputError
from .robot import Camera

SLOTS = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")
"""openpi's cameras, in the order in which every policy of its sees them (pi05.md section 9.5)."""

_PREFIX = "observation.images."
_REMEDY = "say with parameter camera.<name>.slot which is which"


def arrange(cameras: Sequence[Camera], features: Sequence[str], chosen: Mapping[str, str]) -> tuple[Camera, ...]:
    """The cameras in the model's order, each with the policy's name as its slot.

    features: the policy's cameras in its order, without `observation.images.`; empty where it does not name them.
    chosen: camera name -> slot that its owner says. Otherwise a camera is the feature of its own name, or else that of
    its slot. A feature that no camera feeds is left out, as every pi0.5 does with a missing camera.
    Raises InputError, with both lists, for a camera whose feature cannot be told or is another camera's.
    """
    slots = [_slot(camera, features, chosen) for camera in cameras]
    if not features:
        named = [slot for slot in slots if slot in SLOTS]
        if not named:  # nothing but the owner's list says an order
            return tuple(replace(camera, slot=slot) for camera, slot in zip(cameras, slots))
        features = SLOTS
    told = ", ".join(f"{camera.name} (slot {slot})" for camera, slot in zip(cameras, slots))
    wanted = f"the policy's {', '.join(features)}"
    if any(slot not in features for slot in slots):
        raise InputError("cameras", told, wanted, _REMEDY)
    if len(set(slots)) < len(slots):
        raise InputError("cameras", f"two for the same picture among {told}", f"each once of {wanted}", _REMEDY)
    ordered = sorted(zip(slots, cameras), key=lambda pair: features.index(pair[0]))
    return tuple(replace(camera, slot=slot) for slot, camera in ordered)


def _slot(camera: Camera, features: Sequence[str], chosen: Mapping[str, str]) -> str:
    if given := chosen.get(camera.name):
        return given.removeprefix(_PREFIX)
    return camera.name if camera.name in features else camera.slot
