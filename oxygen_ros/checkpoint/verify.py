"""`oxygen-verify`: our network against numbers that independent public implementations recorded."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ..pi05.backbone import Continuation
from ..pi05.cache import Strip, Tail
from ..pi05.flow import euler, time_embedding
from ..pi05.model import Pi05
from .errors import CheckpointError
from .files import read_json
from .load import load

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


class Recomputation:
    """Every recorded quantity of one text mask, computed by our network on a reference folder's inputs.

    Samples are computed one by one, without their masked cameras and padding, and laid out as recorded:
    [B, camera tokens, then text], zero where invalid.
    """

    def __init__(self, model: Pi05, inputs: dict[str, Tensor], causal_text: bool, steps: int, new_tokens: int) -> None:
        self.model, self.inputs, self.steps, self.new_tokens = model, inputs, steps, new_tokens
        self.causal_text = causal_text
        samples = [self._sample(index) for index in range(len(inputs["tokens"]))]
        self.quantities = {
            name: torch.stack([s[name] for s in samples], dim=1 if name in ("velocities", "x_after_step") else 0)
            for name in samples[0]
        }
        one = torch.ones(len(inputs["tokens"]), dtype=torch.float64)
        expert = model.expert
        self.quantities["time_embedding_t1"] = time_embedding(one, expert.time_in.in_features, *expert.periods).float()
        self.quantities["adarms_cond_t1"] = expert.condition(one)

    def _sample(self, index: int) -> dict[str, Tensor]:
        model, config = self.model, self.model.config
        images, image_mask = self.inputs["images"][index], self.inputs["image_masks"][index]
        tokens, token_mask = self.inputs["tokens"][index], self.inputs["token_mask"][index]
        noise = self.inputs["noise"][index]
        backbone = config.backbone

        valid = torch.cat((image_mask.repeat_interleave(config.vision.tokens_per_image), token_mask))
        image_features = model.vision(images)
        everything = torch.cat((image_features.flatten(0, 1), model.backbone.embed(tokens)))
        x = model.embed_prefix(images[image_mask], tokens[token_mask])

        width = config.action_horizon + len(valid) + self.new_tokens
        storage = torch.zeros(backbone.depth, 2, backbone.num_kv_heads, width, backbone.head_dim)
        strip = Strip(storage, config.action_horizon)
        causal_from = int(len(x) - token_mask.sum()) if self.causal_text else None
        hidden = model.backbone.prefill(x, strip, causal_from=causal_from, hidden="all")

        def laid_out(rows: Tensor, axis: int = 0) -> Tensor:
            shape = list(rows.shape)
            shape[axis] = len(valid)
            return torch.zeros(shape).index_copy_(axis, valid.nonzero()[:, 0], rows)

        result = {
            "image_features": image_features,
            "prefix_embeddings": everything,
            "prefix_pad_mask": valid,
            "prefix_position_ids": valid.cumsum(0) - 1,
            "prefix_hidden_final": laid_out(hidden),
            "suffix_embeddings_t1": model.expert.action_in(noise),
            "suffix_position_ids": strip.prefix_length + torch.arange(config.action_horizon),
        }
        for name, layer in (("first", 0), ("last", backbone.depth - 1)):
            key, value = strip.prefix(layer)
            result[f"prefix_k_{name}"], result[f"prefix_v_{name}"] = laid_out(key, 1), laid_out(value, 1)
        result |= self._actions(noise, strip)
        result |= self._language(hidden[-1:], strip, torch.zeros_like(storage[..., : self.new_tokens, :]))
        return result

    def _actions(self, noise: Tensor, strip: Strip) -> dict[str, Tensor]:
        plan = self.model.plan(self.steps)
        velocities, states = [], []

        def velocity(x: Tensor, step: int) -> Tensor:
            if step:
                states.append(x)
            velocities.append(self.model.expert.velocity(x, plan[step], strip))
            return velocities[-1]

        actions = euler(noise, self.steps, velocity)
        accumulated = self.model.denoise(noise, strip, self.model.plan(self.steps, accumulated_time=True))
        return {
            "actions": actions,
            "actions_accumulated_time": accumulated,
            "velocity_t1": velocities[0],
            "velocities": torch.stack(velocities),
            "x_after_step": torch.stack([*states, actions]),
        }

    def _language(self, last_hidden: Tensor, strip: Strip, storage: Tensor) -> dict[str, Tensor]:
        tail, logits = Tail(storage), self.model.backbone.logits(last_hidden)
        all_logits, tokens = [], []
        for _ in range(self.new_tokens):
            all_logits.append(logits[0])
            tokens.append(logits.argmax(-1))
            if len(tokens) < self.new_tokens:
                logits = self.model.advance(tokens[-1], [Continuation(strip, tail, 1)])
        return {
            "lang_logits_first": all_logits[0],
            "lang_logits": torch.stack(all_logits),
            "lang_tokens": torch.cat(tokens),
        }


def compare(folder: Path, layout: str | None = None) -> Iterator[Comparison]:
    """Every recorded quantity of a reference folder beside ours, in float32 on the CPU.

    layout `openpi` takes the weights from the folder's `openpi/`. Raises CheckpointError for a folder that is not
    of the reference format.
    """
    weights = folder / "openpi" if layout == "openpi" else folder
    if not (folder / "inputs.safetensors").is_file() and (folder.parent / "inputs.safetensors").is_file():
        folder = folder.parent
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
            ours = Recomputation(model, inputs, mask == "causal", steps, new_tokens).quantities
            for name, recorded in expected.items():
                limit = limits[file].get(name, {"equal": True})
                yield _compare(f"{mask}: {name}", ours.get(name), recorded, limit)


def _read(path: Path, needed: tuple[str, ...]) -> dict[str, Tensor]:
    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise CheckpointError(f"{path} cannot be read as safetensors ({error}); copy the file again") from error
    missing = [name for name in needed if name not in tensors]
    if missing:
        raise CheckpointError(f"{path} is not of the reference format: {', '.join(missing)} is missing")
    return tensors


def _compare(name: str, ours: Tensor | None, recorded: Tensor, limit: dict) -> Comparison:
    bound = 0.0 if limit.get("equal") else float(limit["max_abs"])
    if ours is None or ours.shape != recorded.shape:
        return Comparison(name, None, bound)
    # A NaN on either side must not pass: it compares false, and `difference` stays NaN.
    return Comparison(name, float((ours.double() - recorded.double()).abs().max()), bound)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="oxygen-verify",
        description="Load a reference folder's weights, recompute every quantity recorded there and print the largest "
        "absolute difference beside its limit. Exit 1 if one is past its limit.",
    )
    parser.add_argument("folder", type=Path, help="reference folder (inputs, expected values, tolerances, weights)")
    parser.add_argument("--layout", choices=["lerobot", "openpi"], default="lerobot",
                        help="which copy of the weights: the folder itself, or its openpi/ (default: %(default)s)")
    options = parser.parse_args(arguments)
    failed = []
    try:
        for c in compare(options.folder, options.layout):
            shown = "missing" if c.difference is None else f"{c.difference:.1e}"
            print(f"{'ok  ' if c.passed else 'FAIL'}  {c.name:<40} {shown:>9}  limit {c.limit:.0e}", flush=True)
            if not c.passed:
                failed.append(c.name)
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
