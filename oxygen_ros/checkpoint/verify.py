"""`oxygen-verify`: our network against numbers that independent public implementations recorded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from ..command_line import CommandLine
from .errors import CheckpointError
from .files import read_json, reading_safetensors
from .load import load
from .recomputation import Recomputation
from .rtc_runs import RtcRuns, is_ours

RTC = "rtc.json"
MASKS = {"bidirectional": "expected.safetensors", "causal": "expected_causal_text.safetensors"}


@dataclass(frozen=True)
class Comparison:
    """One recorded quantity beside ours. `difference` is None where the shapes differ."""

    name: str
    difference: float | None
    limit: float

    @property
    def passed(self) -> bool:
        return self.difference is not None and self.difference <= self.limit


def compare(folder: Path, layout: str | None = None) -> Iterator[Comparison]:
    """Every recorded quantity of a reference folder beside ours, in float32 on the CPU.

    Of real-time chunking, if the folder has runs of it, those that we offer. layout `openpi` takes the weights from the
    folder's `openpi/`. Raises CheckpointError for a folder that is not of the reference format.
    """
    weights, folder = folder / "openpi" if layout == "openpi" else folder, _records(folder)
    for name in ("inputs.safetensors", "tolerances.json", *MASKS.values()):
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder} is not a reference folder: {name} is missing")
    checkpoint = load(weights)
    limits = read_json(folder / "tolerances.json")
    inputs = _read(folder / "inputs.safetensors", ("images", "image_masks", "tokens", "token_mask", "noise"))
    with torch.inference_mode():
        model = checkpoint.model()
        for mask, file in MASKS.items():
            expected = _read(folder / file, ("velocities", "lang_tokens"))
            steps, new_tokens = len(expected["velocities"]), expected["lang_tokens"].shape[1]
            with _of_format(folder / "inputs.safetensors"):
                ours = Recomputation(model, inputs, mask == "causal", steps, new_tokens)
            with _of_format(folder / "tolerances.json"):
                bounds = {name: _bound(limits[file].get(name, {"equal": True})) for name in expected}
            for name, recorded in expected.items():
                yield _compare(f"{mask}: {name}", ours.quantities.get(name), recorded, bounds[name])
            if mask == "bidirectional" and (folder / RTC).is_file():
                yield from _compare_rtc(folder, RtcRuns(model, inputs["noise"], ours.strips), steps)


def left_out(folder: Path) -> list[str]:
    """Names of the recorded runs that are not compared, because what they do is not offered. Raises CheckpointError."""
    path = _records(folder) / RTC
    return [run["name"] for run in read_json(path)["guided"] if not is_ours(run)] if path.is_file() else []


def _records(folder: Path) -> Path:
    """Where the recorded numbers are, which may be above the weights."""
    above = not (folder / "inputs.safetensors").is_file() and (folder.parent / "inputs.safetensors").is_file()
    return folder.parent if above else folder


def _compare_rtc(folder: Path, ours: RtcRuns, steps: int) -> Iterator[Comparison]:
    runs, recorded = read_json(folder / RTC), _read(folder / "rtc.safetensors", ())
    seen = set()  # runs share masks and weights
    with _of_format(folder / RTC):
        for name, value, limit in ours.quantities(runs, recorded, steps):
            if name not in seen:
                seen.add(name)
                yield _compare(f"rtc: {name}", value, recorded[name], float(limit))


@contextmanager
def _of_format(path: Path) -> Iterator[None]:
    """Around what is made of a file's content, where anything may be. Raises CheckpointError."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise CheckpointError(f"{path} is not of the reference format: {error!r}") from error


def _bound(limit: dict) -> float:
    return 0.0 if limit.get("equal") else float(limit["max_abs"])


def _read(path: Path, needed: tuple[str, ...]) -> dict[str, Tensor]:
    with reading_safetensors(path):
        tensors = load_file(path)
    missing = [name for name in needed if name not in tensors]
    if missing:
        raise CheckpointError(f"{path} is not of the reference format: {', '.join(missing)} is missing")
    return tensors


def _compare(name: str, ours: Tensor | None, recorded: Tensor, limit: float) -> Comparison:
    if ours is None or ours.shape != recorded.shape:
        return Comparison(name, None, limit)
    # A NaN on either side must not pass: it compares false, and `difference` stays NaN.
    return Comparison(name, float((ours.double() - recorded.double()).abs().max()), limit)


def main(arguments: list[str] | None = None) -> int:
    parser = CommandLine(
        prog="oxygen-verify",
        description="Load a reference folder's weights, recompute every quantity of the network recorded there, "
        "real-time chunking too, and print the largest absolute difference beside its limit. Exit 1 if one is past it.",
    )
    parser.add_argument("folder", type=Path, help="reference folder (inputs, expected values, tolerances, weights)")
    parser.add_argument("--layout", choices=["lerobot", "openpi"], default="lerobot",
                        help="which copy of the weights: the folder itself, or its openpi/ (default: %(default)s)")
    options = parser.parse_args(arguments)
    failed = []
    try:
        for c in compare(options.folder, options.layout):
            shown = "missing" if c.difference is None else f"{c.difference:.1e}"
            print(f"{'ok  ' if c.passed else 'FAIL'}  {c.name:<45} {shown:>7}  limit {c.limit:.0e}", flush=True)
            if not c.passed:
                failed.append(c.name)
        if names := left_out(options.folder):
            print(f"not compared: {len(names)} runs of {RTC} with the full Jacobian, which is not offered")
    except CheckpointError as error:
        print(f"oxygen-verify: {error}", file=sys.stderr)
        return 1
    if failed:
        print(f"oxygen-verify: {len(failed)} quantities past their limit: {', '.join(failed)}", file=sys.stderr)
        return 1
    print("oxygen-verify: every quantity within its limit")
    return 0


if __name__ == "__main__":
    sys.exit(main())
