"""The rules of the software that trained a policy, where public implementations differ (pi05.md section 13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from .errors import CheckpointError


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
    relative_actions: None leaves it to the robot description which actions are deltas. Otherwise all are, except the
    ones named here; the names are the folder's own, from its action_features. See `deltas`.
    action_features: the folder's names of the action dimensions in order; empty where it gives none.
    padding: what surrounds a picture that is not square, in model scale. LeRobot 0.4.x pads with -3 by mistake, and
    its policies have seen that.
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
    action_features: tuple[str, ...] = ()
    padding: float = -1.0

    def __post_init__(self) -> None:
        if set(self.normalization) != {"state", "actions"}:
            raise ValueError(f"normalization is {self.normalization!r}, expected a rule of state and one of actions")
        if self.resize not in ("openpi", "lerobot"):
            raise ValueError(f"resize is {self.resize!r}, expected openpi or lerobot")

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Conventions:
        """From JSON, whose lists become tuples. Raises TypeError for an unknown field."""
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})

    def to_dict(self) -> dict[str, Any]:
        """The inverse of `from_dict`."""
        return asdict(self)

    def deltas(self, actions: Sequence[str]) -> tuple[str, ...] | None:
        """Those of the robot's actions that the model gives relative to the state; None: as the robot says.

        Robot and folder may spell names differently, so they are matched by position. Raises CheckpointError where
        their numbers differ.
        """
        if self.relative_actions is None:
            return None
        theirs = self.action_features or actions
        if len(theirs) != len(actions):
            raise CheckpointError(
                f"the policy has {len(theirs)} actions ({', '.join(theirs)}), the robot {len(actions)} "
                f"({', '.join(actions)}): it cannot be told which of them are relative"
            )
        return tuple(ours for ours, name in zip(actions, theirs) if name not in self.relative_actions)
