"""`oxygen-convert`: any policy folder that we read, as one of our own."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from ..command_line import CommandLine
from ..pi05.model import Pi05
from . import native
from .checkpoint import Checkpoint
from .errors import CheckpointError
from .load import load
from .safetensors_writer import Spec
from .statistics import FILE, write_norm_stats

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def convert(checkpoint: Checkpoint, out: Path, *, dtype: torch.dtype | None = None, robot: str | None = None,
            force: bool = False, progress: Callable[[int, int], None] = lambda done, total: None) -> list[str]:
    """Write `out`; return lines about what it lacks. The folder appears whole or not at all.

    dtype: what a network will compute in; the tensors that it then keeps in float32 stay as they are stored. None
    keeps every tensor's type. robot: description to name in the folder. force: replace a policy folder of our own.
    Raises CheckpointError where `out` is there and may not be replaced, or the weights cannot be used; OSError.
    """
    _may_write(checkpoint, out, force)
    out.parent.mkdir(parents=True, exist_ok=True)
    # Beside `out`, not in /tmp: only inside one file system is a rename a single step.
    partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        lacking = _fill(partial, checkpoint, dtype, robot, progress)
        partial.chmod(0o755)
        if out.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{out.name}.old.", dir=out.parent))
            os.replace(out, old)
            os.replace(partial, out)
            shutil.rmtree(old)
        else:
            os.replace(partial, out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return lacking


def _may_write(checkpoint: Checkpoint, out: Path, force: bool) -> None:
    if out.resolve() == checkpoint.folder.resolve():
        raise CheckpointError(f"{out} is the folder to convert; give another one to write")
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not force:
        raise CheckpointError(f"{out} is there already; --force replaces it")
    try:
        ours = json.loads((out / "config.json").read_text())["type"] == native.TYPE
    except (OSError, ValueError, KeyError, TypeError):
        ours = False
    if not ours:
        raise CheckpointError(
            f"{out} is not a policy folder of oxygen_ros, so --force does not replace it; remove it yourself"
        )


def _fill(folder: Path, checkpoint: Checkpoint, dtype: torch.dtype | None, robot: str | None,
          progress: Callable[[int, int], None]) -> list[str]:
    with torch.device("meta"):
        network = Pi05(checkpoint.config)

    def kept(name: str) -> torch.dtype:
        stored = checkpoint.stored_dtype(name)
        if dtype is None or network.precision_of(name, dtype) is not dtype:
            return stored if stored in (torch.float16, torch.bfloat16) else torch.float32
        return dtype

    specs = {name: Spec(checkpoint.shape(name), kept(name)) for name in checkpoint.parameters}
    written = 0

    def read(name: str) -> torch.Tensor:
        nonlocal written
        tensor = checkpoint.read(name, specs[name].dtype)
        written += specs[name].size
        progress(written, total)
        return tensor

    total = sum(spec.size for spec in specs.values())
    content = native.NativeConfig(
        checkpoint.config, checkpoint.conventions, robot or checkpoint.robot, checkpoint.trained
    )
    native.write(folder, content, specs, read)
    write_norm_stats(folder / FILE, checkpoint.statistics)
    tokenizers = [file for name in native.TOKENIZERS if (file := checkpoint.folder / name).is_file()]
    for file in tokenizers:
        shutil.copyfile(file, folder / file.name)
    lacking = [] if tokenizers else [
        f"no tokenizer: {checkpoint.folder} has none ({', '.join(native.TOKENIZERS)}); copy PaliGemma's there"
    ]
    return lacking + ([] if content.robot else ["no robot named: the parameter robot must say which one"])


def _show(done: int, total: int) -> None:
    """A line of percents that rewrites itself; where nobody watches, only its end."""
    if done == total or sys.stderr.isatty():
        end = "\n" if done == total else ""
        print(f"\r{done / total:5.0%} of {total / 1e6:.1f} MB", end=end, file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = CommandLine(
        prog="oxygen-convert",
        description="Write a policy folder of our own (model.safetensors, config.json, norm_stats.json, tokenizer) "
        "from an openpi PyTorch folder, a LeRobot policy folder or another of our own. The actions stay the same.",
    )
    parser.add_argument("source", metavar="IN", type=Path, help="policy folder to read")
    parser.add_argument("out", metavar="OUT", type=Path, help="folder to write; must not be there yet")
    parser.add_argument("--dtype", choices=sorted(DTYPES),
                        help="type of the weights; bfloat16 leaves alone what the network keeps in float32 "
                        "(default: as stored)")
    parser.add_argument("--robot", help="name of the robot description to write into the folder")
    parser.add_argument("--asset-id", default="", help="which statistics, where an openpi folder has several")
    parser.add_argument("--identity-statistics", action="store_true",
                        help="accept a folder without statistics: its policy was trained on raw numbers")
    parser.add_argument("--force", action="store_true", help="replace OUT if it is a policy folder of oxygen_ros")
    options = parser.parse_args(arguments)
    try:
        checkpoint = load(
            options.source, asset_id=options.asset_id, allow_identity_statistics=options.identity_statistics
        )
        print(*checkpoint.notes, sep="\n")
        lacking = convert(
            checkpoint, options.out, dtype=DTYPES.get(options.dtype), robot=options.robot, force=options.force,
            progress=_show,
        )
    except (CheckpointError, OSError) as error:
        print(f"oxygen-convert: {error}", file=sys.stderr)
        return 1
    for line in lacking:
        print(f"warning: {line}")
    print(f"wrote {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
