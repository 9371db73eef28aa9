"""What the engine is given for one frame, in model units."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..pi05.rtc import Guidance


@dataclass(frozen=True)
class Observation:
    """One moment of the robot.

    images: the present cameras in the model's order, uint8 [C, S, S, 3] RGB or float32 [C, 3, S, S] in [-1, 1].
    tokens: the action prompt, int64 [T], without padding.
    shared_tokens: how many of them language continues, the rest being for the actions alone; None: all. Fewer than all
    need causal text attention, where what comes later is not seen.
    stamp_ns: when it was seen; the engine only hands it on to what it answers from this observation.
    noise: [H, A] at flow time 1, or None to draw it.
    guidance: what the actions are to join, or None.
    """

    images: Tensor
    tokens: Tensor
    stamp_ns: int = 0
    noise: Tensor | None = None
    guidance: Guidance | None = None
    shared_tokens: int | None = None
