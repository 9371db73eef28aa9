"""The rules of the software that trained a policy, where public implementations differ (pi05.md section 13)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Conventions:
    """What a policy folder says about how its policy is fed and read; the defaults are openpi's.

    normalization: rule of `state` and of `actions`, as `embodiment.normalization.RULES` names them.
    resize: `openpi` is Pillow's, antialiased; `lerobot` is PyTorch's bilinear, in float.
    accumulated_time: whether flow time is summed in float32, as openpi's sampling loop does.
    padded_state_dim: width to which the normalised state is zero-padded before the prompt (LeRobot 0.4.4), or None.
    prompt: one of `embodiment.prompt.FORMS`; None leaves it to the robot description.
    camera_features: the model's cameras in its order, as LeRobot datasets name them without `observation.images.`
    and before renaming; empty where the order is the robot description's (openpi, our own).
    relative_actions: None leaves it to the robot description which actions are deltas. Otherwise all are, save those
    whose name contains one of these words; see `deltas`.
    """

    normalization: Mapping[str, str] = field(
        default_factory=lambda: dict.fromkeys(("state", "actions"), "openpi_quantile")
    )
    resize: Literal["openpi", "lerobot"] = "openpi"
    accumulated_time: bool = True
    padded_state_dim: int | None = None
    prompt: str | None = None
    camera_features: tuple[str, ...] = ()
    relative_actions: tuple[str, ...] | None = None

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Conventions:
        """From JSON, whose lists become tuples. Raises TypeError for an unknown field."""
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})

    def to_dict(self) -> dict[str, Any]:
        """The inverse of `from_dict`."""
        return asdict(self)

    def deltas(self, actions: Iterable[str]) -> tuple[str, ...] | None:
        """Those of these action names that the model gives relative to the state; None: as the robot says.

        LeRobot's rule: an action is absolute if a word of `relative_actions` is part of its name, in any case.
        """
        if self.relative_actions is None:
            return None
        words = [word.lower() for word in self.relative_actions]
        return tuple(name for name in actions if not any(word in name.lower() for word in words))
