"""A policy folder, recognised by its content: openpi's, LeRobot's or our own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..pi05.config import Pi05Config
from . import layouts, lerobot, native
from .checkpoint import Checkpoint, Layout
from .conventions import Conventions
from .errors import CheckpointError
from .files import read_json
from .inventory import some, take_inventory
from .lerobot_processors import Processors, read_processors
from .lerobot_statistics import read_feature
from .sizes import infer_config, stated
from .statistics import NoStatistics, Statistics, check_rules, find_norm_stats, read_norm_stats
from .tensors import DTYPES, TensorFolder

IDENTITY = dict.fromkeys(("state", "actions"), "identity")


def load(path: str | Path, *, asset_id: str = "", allow_identity_statistics: bool = False) -> Checkpoint:
    """Recognise an openpi (PyTorch), LeRobot or oxygen_ros policy folder and read all but its weights.

    asset_id: which of several openpi statistics. allow_identity_statistics: a folder without statistics is taken to
    be a policy that was trained on raw numbers, instead of being refused.
    Raises CheckpointError that says what is missing or wrong, and where.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder; a policy is a folder with model.safetensors and config.json")
    try:
        return _read(folder, asset_id, allow_identity_statistics)
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be read: {error}") from error
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        # JSON of another shape than it should have shows in as many ways as it has fields.
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        told = f"the JSON files of {folder} do not describe a policy ({reason}); copy them again"
        raise CheckpointError(told) from error


def _read(folder: Path, asset_id: str, allow_identity_statistics: bool) -> Checkpoint:
    tensors = TensorFolder(folder)
    config = read_json(folder / "config.json") if (folder / "config.json").exists() else {}
    reader = _Reader(folder, config, tensors, asset_id, allow_identity_statistics)
    if config.get("type") == native.TYPE:
        return reader.native()
    processors = read_processors(folder)
    if lerobot.is_lerobot(config, processors):
        return reader.lerobot(processors)
    return reader.openpi()


class _Reader:
    """One folder being read; `notes` collects what its owner should know."""

    def __init__(self, folder: Path, config: Mapping[str, Any], tensors: TensorFolder, asset_id: str,
                 allow_identity: bool) -> None:
        self.folder, self.config, self.tensors = folder, config, tensors
        self.asset_id, self.allow_identity = asset_id, allow_identity
        self.notes: list[str] = []

    def native(self) -> Checkpoint:
        ours = native.read_config(self.config, self.folder)
        self._say_found("oxygen_ros policy folder")
        if not ours.trained:
            self.notes.append("warning: the weights are random numbers, nobody has trained them")
        self._say_no_asset_id("one of our own")
        statistics, rules = self._norm_stats(ours.conventions.normalization, "")
        conventions = replace(ours.conventions, normalization=rules)
        table = native.sources(ours.config, self.tensors)
        return self._checkpoint("oxygen", ours.config, conventions, statistics, table, ours.trained, ours.robot)

    def openpi(self) -> Checkpoint:
        layouts.recognise(self.tensors)
        self._say_found("openpi PyTorch folder")
        sizes = self._sizes("action_horizon", "action_dim")
        statistics, rules = self._norm_stats(Conventions().normalization, self.asset_id)
        self.notes.append(
            "openpi's rules: quantile statistics, pictures scaled with antialiasing, flow time summed in float32; "
            "prompt and relative actions as the robot description says"
        )
        table = layouts.sources(sizes, self.tensors)
        return self._checkpoint("openpi", sizes, Conventions(normalization=rules), statistics, table)

    def lerobot(self, processors: Processors) -> Checkpoint:
        if not self.config:
            raise CheckpointError(f"{self.folder} is a LeRobot folder, but its config.json is missing")
        lerobot.check_policy(self.config)
        layouts.recognise(self.tensors)
        self._say_found("LeRobot policy folder")
        self._say_no_asset_id("LeRobot's")
        sizes = self._sizes("chunk_size", "max_action_dim")
        try:
            modes = lerobot.normalization_modes(self.config, processors, self.notes.append)
            statistics = self._lerobot_statistics(processors, modes)
            conventions = lerobot.conventions(self.config, processors, self.tensors, modes, self.notes.append)
        except (TypeError, AttributeError, ValueError) as error:
            raise CheckpointError(f"{self.folder}: config.json or processors are not LeRobot's: {error}") from error
        return self._checkpoint("lerobot", sizes, conventions, statistics, layouts.sources(sizes, self.tensors))

    def _say_found(self, what: str) -> None:
        self.notes.append(f"{self.folder}: {what}, pi0.5, {self.tensors.summary()}")

    def _say_no_asset_id(self, whose: str) -> None:
        if self.asset_id:
            self.notes.append(f"warning: asset_id {self.asset_id!r} is for openpi folders; this is {whose}")

    def _sizes(self, horizon: str, action_dim: str) -> Pi05Config:
        """`dims.json` beside or above the weights is where a reference folder says what shapes do not."""
        dims = next((d for d in (self.folder / "dims.json", self.folder.parent / "dims.json") if d.is_file()), None)
        told = stated(self.config, read_json(dims) if dims else {}, horizon, action_dim)
        return infer_config(self.tensors.shapes, told)

    def _norm_stats(self, rules: Mapping[str, str], asset_id: str) -> tuple[Statistics, Mapping[str, str]]:
        try:
            path = find_norm_stats(self.folder, asset_id)
        except NoStatistics as error:
            self._identity(error)
            return {"state": {}, "actions": {}}, IDENTITY
        statistics = read_norm_stats(path)
        self.notes.append(f"statistics from {path}")
        return statistics, rules

    def _lerobot_statistics(self, processors: Processors, modes: dict[str, str]) -> Statistics:
        statistics: dict[str, Any] = {}
        for ours, mode in modes.items():
            statistics[ours] = {}
            if mode == "IDENTITY":
                continue
            try:
                statistics[ours] = read_feature(ours, mode, processors, self.tensors, self.notes.append)
            except NoStatistics as error:
                self._identity(error)
                modes[ours] = "IDENTITY"
        return statistics

    def _identity(self, error: NoStatistics) -> None:
        if not self.allow_identity:
            raise error
        self.notes.append("warning: no statistics, as identity_statistics allows: numbers pass as they are")

    def _checkpoint(self, layout: Layout, config: Pi05Config, conventions: Conventions, statistics: Statistics,
                    table: layouts.Sources, trained: bool = True, robot: str | None = None) -> Checkpoint:
        found = take_inventory(self.tensors.shapes, table)
        if not found.whole:
            raise CheckpointError(f"{self.folder} is not a whole pi0.5 policy:\n{found.report()}")
        self._check_types(table)
        check_rules(statistics, conventions.normalization, self.folder)
        if found.harmless:
            self.notes.append(f"{len(found.harmless)} left-over tensors are not used: {some(found.harmless)}")
        if found.unknown:
            told = f"{len(found.unknown)} tensors belong to no part of pi0.5 and are left out: {some(found.unknown)}"
            self.notes.append(f"warning: {told}")
        if layout != "oxygen":
            table = self._tie(table)
        return Checkpoint(
            self.folder, layout, config, conventions, statistics, trained, robot, tuple(self.notes), self.tensors, table
        )

    def _check_types(self, table: layouts.Sources) -> None:
        kinds = {source.name: self.tensors.types[source.name] for stored in table.values() for source in stored}
        strange = [f"{name} ({kind})" for name, kind in kinds.items() if kind not in DTYPES]
        if strange:
            raise CheckpointError(
                f"{len(strange)} weights in {self.folder} are of a type that is not read: {some(strange)}; "
                f"known: {', '.join(DTYPES)}. Export the policy without quantisation"
            )

    def _tie(self, table: layouts.Sources) -> layouts.Sources:
        """Embedding and head are one matrix, unless the file holds both and they differ (pi05.md section 10.4)."""
        (embedding,), head = table["backbone.embedding"], table.get(native.HEAD)
        if head is None:
            self.notes.append(f"{embedding.name} is both token embedding and language head")
        elif _equal(self.tensors[embedding.name], self.tensors[head[0].name]):
            table = {name: stored for name, stored in table.items() if name != native.HEAD}
        else:
            self.notes.append(
                f"warning: the tie of embedding and language head is broken: tokens are embedded by {embedding.name}, "
                f"language comes from {head[0].name}"
            )
        return table


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """By value: one of the two may have been kept in a wider type."""
    wide = torch.promote_types(a.dtype, b.dtype)
    return torch.equal(a.to(wide), b.to(wide))
