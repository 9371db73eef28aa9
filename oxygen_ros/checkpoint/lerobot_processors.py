"""LeRobot's policy_preprocessor.json and policy_postprocessor.json: which steps surround its policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import CheckpointError
from .files import read_json

PREPROCESSOR, POSTPROCESSOR = "policy_preprocessor.json", "policy_postprocessor.json"

# Done here by embodiment/ and engine/, or without effect on one robot's policy.
_KNOWN = {
    "rename_observations_processor", "to_batch_processor", "relative_actions_processor", "normalizer_processor",
    "pi05_prepare_state_tokenizer_processor_step", "tokenizer_processor", "device_processor",
    "unnormalizer_processor", "absolute_actions_processor",
}


@dataclass(frozen=True)
class Step:
    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    state_file: str | None = None


@dataclass(frozen=True)
class Processors:
    """The steps before and after the policy; none where the folder has no such file."""

    folder: Path
    before: tuple[Step, ...]
    after: tuple[Step, ...]

    @property
    def normalizer(self) -> Step | None:
        return _named(self.before, "normalizer_processor")

    @property
    def unnormalizer(self) -> Step | None:
        return _named(self.after, "unnormalizer_processor")

    @property
    def rename_map(self) -> Mapping[str, str]:
        """Observation name -> the policy's name for it."""
        step = _named(self.before, "rename_observations_processor")
        return (step.config.get("rename_map") or {}) if step else {}

    @property
    def relative(self) -> Step | None:
        """LeRobot 0.5.1 and later write this step, enabled or not."""
        return _named(self.before, "relative_actions_processor")

    @property
    def absolute(self) -> Step | None:
        return _named(self.after, "absolute_actions_processor")

    @property
    def unknown(self) -> list[str]:
        return [step.name for step in (*self.before, *self.after) if step.name not in _KNOWN]


def read_processors(folder: Path) -> Processors:
    """Raises CheckpointError for a file that is not a processor description."""
    return Processors(folder, _steps(folder / PREPROCESSOR), _steps(folder / POSTPROCESSOR))


def _steps(path: Path) -> tuple[Step, ...]:
    if not path.is_file():
        return ()
    try:
        return tuple(
            Step(str(step.get("registry_name") or step.get("class")), step.get("config") or {}, step.get("state_file"))
            for step in read_json(path)["steps"]
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is not a LeRobot processor description: {error!r}") from error


def _named(steps: tuple[Step, ...], name: str) -> Step | None:
    return next((step for step in steps if step.name == name), None)
