"""State and actions to and from the model's scale, never clipped: openpi's and LeRobot's rules (pi05.md 9.3)."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from .errors import InputError

_NEEDS = {
    "openpi_quantile": ("q01", "q99"),
    "openpi_zscore": ("mean", "std"),
    "lerobot_quantiles": ("q01", "q99"),
    "lerobot_mean_std": ("mean", "std"),
    "identity": (),
}
RULES = tuple(_NEEDS)
"""The first two are openpi's."""


@dataclass(frozen=True)
class Statistics:
    """One number per dimension [D] of a feature, in model units; what a checkpoint lacks is None."""

    mean: np.ndarray | None = None
    std: np.ndarray | None = None
    q01: np.ndarray | None = None
    q99: np.ndarray | None = None


class Normalizer:
    """One feature of `width` dimensions under one rule.

    feature: its name, for messages. Statistics wider than the data (zero-padded ones) are cut to `width`.
    Raises InputError where they are narrower, missing, ragged or not finite.
    """

    def __init__(self, rule: str, statistics: Statistics, width: int, feature: str):
        if rule not in RULES:
            raise InputError(f"normalisation of {feature}", repr(rule), f"one of {', '.join(RULES)}")
        self.rule, self.width, self.feature = rule, width, feature
        low, high = [_measure(statistics, measure, width, feature, rule) for measure in _NEEDS[rule]] or (0.0, 1.0)
        if np.any((high - low if "quantile" in rule else high) < 0):
            raise InputError(f"statistics of {feature}", "a q99 below its q01, or a std below 0", "a range of numbers",
                             "they would turn the robot's motion around")
        # Every rule is y = (x - centre) / spread, up to an offset of 1 and a factor of 2 in the quantile rules.
        # They differ in how a spread of zero is avoided.
        if rule == "openpi_quantile":
            self._forward_spread = self._inverse_spread = high - low + 1e-6
        elif rule == "openpi_zscore":
            self._forward_spread = self._inverse_spread = high + 1e-6
        elif rule == "lerobot_quantiles":
            self._forward_spread = self._inverse_spread = np.where(high == low, 1e-8, high - low)
        elif rule == "lerobot_mean_std":
            self._forward_spread, self._inverse_spread = high + 1e-8, high
        else:
            self._forward_spread = self._inverse_spread = high
        self._centre, self._quantile = low, "quantile" in rule

    def normalize(self, values: np.ndarray) -> np.ndarray:
        """Robot scale [..., width] -> model scale [..., width], float64."""
        scaled = (self._checked(values) - self._centre) / self._forward_spread
        return scaled * 2 - 1 if self._quantile else scaled

    def unnormalize(self, values: np.ndarray) -> np.ndarray:
        """Model scale [..., >= width] -> robot scale of the same shape, float64; padded dimensions pass through."""
        values = np.array(values, np.float64)
        scaled = values[..., : self.width]
        scaled = (scaled + 1) / 2 if self._quantile else scaled
        values[..., : self.width] = scaled * self._inverse_spread + self._centre
        return values

    def _checked(self, values: np.ndarray) -> np.ndarray:
        values = np.asarray(values, np.float64)
        if values.shape[-1] != self.width:
            raise InputError(self.feature, f"{values.shape[-1]} dimensions", f"{self.width}")
        return values


def _measure(statistics: Statistics, measure: str, width: int, feature: str, rule: str) -> np.ndarray:
    thing = f"statistics of {feature}"
    values = getattr(statistics, measure)
    if values is None:
        have = [field.name for field in fields(statistics) if getattr(statistics, field.name) is not None]
        found = f"no {measure} (only {', '.join(have) or 'nothing'})"
        raise InputError(thing, found, measure, "choose another normalisation rule")
    try:
        values = np.asarray(values, np.float64)
    except (ValueError, TypeError):
        raise InputError(thing, f"a ragged {measure}", "one number per dimension") from None
    if values.ndim != 1:
        raise InputError(thing, f"{measure} of shape {list(values.shape)}", "one number per dimension")
    if len(values) < width:
        raise InputError(thing, f"{len(values)} dimensions ({measure})", f"{width}", "use the statistics of this robot")
    if rule.startswith("lerobot") and values[width:].any():
        # openpi cuts whatever is wider; a LeRobot feature is exactly as wide as the robot that it was recorded from.
        raise InputError(thing, f"{len(values)} dimensions ({measure})", f"{width}", "use the statistics of this robot")
    if not np.isfinite(values[:width]).all():
        raise InputError(thing, f"{measure} that is not finite", "finite numbers")
    return values[:width]
