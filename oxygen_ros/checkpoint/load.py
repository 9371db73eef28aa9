"""A policy folder, recognised by its content, as a network and everything that belongs to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from ..pi05.config import PRESETS, Pi05Config
from ..pi05.model import Pi05
from . import layouts, native
from .conventions import Conventions
from .errors import CheckpointError
from .statistics import Statistics, read_lerobot_statistics, read_openpi_statistics
from .tensors import TensorFolder


@dataclass(frozen=True)
class Checkpoint:
    """A policy folder whose sizes are known and whose weights are still on disk."""

    folder: Path
    layout: Literal["oxygen", "openpi", "lerobot"]
    config: Pi05Config
    conventions: Conventions
    statistics: Statistics
    trained: bool
    robot: str | None
    _tensors: TensorFolder
    _sources: Mapping[str, tuple[str, ...]]

    def model(self, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32,
              progress: Callable[[int, int], None] = lambda done, total: None) -> Pi05:
        """Read the weights to `device`, once; matrices that we keep as one are joined on the way.

        progress is told how many of how many parameters are read; what it raises ends the loading.
        Raises CheckpointError that lists missing and misshapen tensors, or names one with NaN or infinity.
        """
        with torch.device("meta"):
            model = Pi05(self.config)
        embedding, head = self._embedding_and_head()
        table = {**self._sources, "backbone.embedding": (embedding,)}
        expected = dict(model.named_parameters())
        self._check_shapes({name: tuple(p.shape) for name, p in expected.items()}, table)
        for done, name in enumerate(expected):
            tensor = self._read(table[name], tuple(expected[name].shape), model.precision_of(name, dtype), device)
            _set_parameter(model, name, tensor)
            progress(done + 1, len(expected))
        if self.untied:
            shape = tuple(expected["backbone.embedding"].shape)
            model.backbone.head = torch.nn.Parameter(self._read((head,), shape, dtype, device), requires_grad=False)
        return model.eval()

    @property
    def untied(self) -> bool:
        """Whether the file holds a language head that differs from the embedding."""
        embedding, head = self._embedding_and_head()
        return head != embedding and not torch.equal(self._tensors[head], self._tensors[embedding])

    def _embedding_and_head(self) -> tuple[str, str]:
        if self.layout == "oxygen":
            return native.EMBEDDING, native.HEAD if native.HEAD in self._tensors else native.EMBEDDING
        return layouts.embedding_and_head(self._tensors)

    def _read(self, stored: tuple[str, ...], shape: tuple[int, ...], dtype: torch.dtype, device: str | torch.device
              ) -> Tensor:
        parts = []
        for name in stored:
            part = self._tensors[name].to(dtype)
            if not torch.isfinite(part).all():
                raise CheckpointError(f"tensor {name} in {self.folder} holds NaN or infinity; it cannot be used")
            parts.append(part.to(device))
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).reshape(shape)

    def _check_shapes(self, expected: Mapping[str, tuple[int, ...]], table: Mapping[str, tuple[str, ...]]) -> None:
        shapes = self._tensors.shapes
        missing = [name for ours in expected for name in table[ours] if name not in shapes]
        misshapen = []
        for ours, shape in expected.items():
            found = [shapes[name] for name in table[ours] if name in shapes]
            elements = sum(torch.Size(s).numel() for s in found)
            if len(found) == len(table[ours]) and elements != torch.Size(shape).numel():
                misshapen.append(f"{' + '.join(table[ours])}: found {found}, expected {list(shape)} in all")
        if missing or misshapen:
            lines = [f"{len(missing)} tensors are missing: {_some(missing)}"] if missing else []
            lines += [f"{len(misshapen)} tensors have another shape: {_some(misshapen)}"] if misshapen else []
            raise CheckpointError(f"{self.folder} is not a whole pi0.5 checkpoint; " + "; ".join(lines))

    def unused(self) -> list[str]:
        """Stored tensors that no parameter uses, known left-overs of converters aside."""
        used = {name for names in self._sources.values() for name in names} | set(self._embedding_and_head())
        return [name for name in self._tensors if name not in used and not layouts.HARMLESS.match(name)]


def load(path: str | Path) -> Checkpoint:
    """Recognise an openpi (PyTorch), LeRobot or oxygen_ros policy folder and read all but its weights.

    Raises CheckpointError that says what is missing or wrong, and where.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder; a policy is a folder with model.safetensors and config.json")
    config = _read_json(folder / "config.json")
    tensors = TensorFolder(folder)
    if config.get("type") == native.TYPE:
        ours = native.read_config(config, folder)
        return Checkpoint(
            folder, "oxygen", ours.config, Conventions.from_dict(ours.conventions), read_openpi_statistics(folder),
            ours.trained, ours.robot, tensors, native.sources(ours.config),
        )
    if not layouts.is_openpi(tensors):
        raise CheckpointError(
            f"the tensors of {folder} are not pi0.5's: time_mlp_in and adaptive norms are missing "
            f"(found {len(tensors)} tensors, such as {_some(sorted(tensors))}); pi0 and other policies are not read"
        )
    lerobot = "input_features" in config
    sizes = _sizes(folder, config, tensors, "chunk_size" if lerobot else "action_horizon")
    return Checkpoint(
        folder=folder,
        layout="lerobot" if lerobot else "openpi",
        config=sizes,
        conventions=_lerobot_conventions(config) if lerobot else Conventions(),
        statistics=read_lerobot_statistics(folder) if lerobot else read_openpi_statistics(folder),
        trained=True,
        robot=None,
        _tensors=tensors,
        _sources=layouts.sources(sizes),
    )


def _sizes(folder: Path, config: Mapping, tensors: TensorFolder, horizon_key: str) -> Pi05Config:
    """From the tensors' shapes, and `dims.json` beside or above them where a test folder says what shapes do not."""
    dims = next((d for d in (folder / "dims.json", folder.parent / "dims.json") if d.is_file()), None)
    stated = _read_json(dims) if dims else {}
    horizon = config.get(horizon_key) or stated.get("action_horizon") or PRESETS["pi05"].action_horizon
    heads = None
    if stated:
        backbone = stated["backbone"]
        heads = {"vision": stated["vision"]["num_heads"], "attention": backbone["num_heads"],
                 "kv": backbone["num_kv_heads"]}
    max_token_len = config.get("tokenizer_max_length") or stated.get("max_token_len") or PRESETS["pi05"].max_token_len
    sizes = layouts.infer_config(tensors.shapes, horizon=horizon, max_token_len=max_token_len, heads=heads)
    fields = sizes.to_dict()
    fields["rms_norm_eps"] = stated.get("rms_norm_eps", sizes.rms_norm_eps)
    fields["rope_theta"] = stated.get("rope_theta", sizes.rope_theta)
    fields["vision"]["layer_norm_eps"] = stated.get("layer_norm_eps", sizes.vision.layer_norm_eps)
    fields["time_min_period"] = config.get("min_period") or stated.get("time_min_period", sizes.time_min_period)
    fields["time_max_period"] = config.get("max_period") or stated.get("time_max_period", sizes.time_max_period)
    return Pi05Config.from_dict(fields)


def _lerobot_conventions(config: Mapping) -> Conventions:
    rules = {"QUANTILES": "lerobot_quantiles", "MEAN_STD": "lerobot_mean_std", "IDENTITY": "identity"}
    mapping = config.get("normalization_mapping") or {"STATE": "QUANTILES", "ACTION": "QUANTILES"}
    try:
        chosen = {ours: rules[mapping[theirs]] for ours, theirs in (("state", "STATE"), ("actions", "ACTION"))}
    except KeyError as error:
        raise CheckpointError(f"normalization_mapping in config.json has or lacks {error}; known: {', '.join(rules)}"
                              ) from error
    return Conventions(normalization=chosen, resize="lerobot", accumulated_time=False)


def _read_json(path: Path) -> dict:
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds {type(content).__name__}, expected an object")
    return content


def _set_parameter(model: Pi05, name: str, value: Tensor) -> None:
    owner, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(owner), leaf, torch.nn.Parameter(value, requires_grad=False))


def _some(names: list[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
