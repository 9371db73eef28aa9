"""Writes a random pi0.5 policy folder of the released size in LeRobot's layout: bfloat16, in shards, about 7 GB.

./run python scripts/make_full_size_checkpoint.py OUT

For measuring how loading and inference behave at full size where the released weights cannot be had. Values are
seeded and of a trained network's order of magnitude; they mean nothing. Memory: that of the largest tensor, 1 GB.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from oxygen_ros.checkpoint.layouts import HEAD, sources
from oxygen_ros.checkpoint.lerobot_processors import POSTPROCESSOR, PREPROCESSOR
from oxygen_ros.checkpoint.safetensors_writer import Spec, write_safetensors
from oxygen_ros.pi05.config import PRESETS, Pi05Config

UNUSED_HEAD = "paligemma_with_expert.gemma_expert.lm_head.weight"
CAMERAS, STATE, ACTIONS, HORIZON = ("image", "image2"), 8, 7, 10
NORMALIZATION = {"VISUAL": "IDENTITY", "STATE": "QUANTILES", "ACTION": "QUANTILES"}


def shapes(config: Pi05Config) -> dict[str, tuple[int, ...]]:
    """Every tensor that LeRobot 0.4.x writes: the tied matrix once, and the expert's unused head."""
    table = {source.name: source.shape for stored in sources(config, {HEAD}).values() for source in stored}
    return table | {UNUSED_HEAD: (config.vocab_size, config.expert.width)}


def random_tensor(name: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    matrix = len(shape) > 1 and "position_embedding" not in name
    scale = torch.Size(shape[1:]).numel() ** -0.5 if matrix else 0.1
    values = torch.empty(shape, dtype=torch.bfloat16).normal_(0.0, scale, generator=generator)
    layer_norm = "vision_model" in name and "norm" in name and name.endswith("weight")
    return values.add_(1.0) if layer_norm else values


def write_weights(folder: Path, config: Pi05Config, shard_bytes: int) -> None:
    shards: list[dict[str, Spec]] = [{}]
    for name, shape in shapes(config).items():
        spec = Spec(shape, torch.bfloat16)
        if shards[-1] and sum(s.size for s in shards[-1].values()) + spec.size > shard_bytes:
            shards.append({})
        shards[-1][f"model.{name}"] = spec
    generator = torch.Generator().manual_seed(0)
    files = [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]
    for file, specs in zip(files, shards):
        write_safetensors(folder / file, specs, lambda name: random_tensor(name, specs[name].shape, generator))
        print(f"{file}: {sum(s.size for s in specs.values()) / 1e9:.2f} GB", flush=True)
    index = {
        "metadata": {"total_size": sum(spec.size for specs in shards for spec in specs.values())},
        "weight_map": {name: file for file, specs in zip(files, shards) for name in specs},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))


def write_descriptions(folder: Path, config: Pi05Config) -> None:
    image = {"type": "VISUAL", "shape": [3, config.vision.image_size, config.vision.image_size]}
    inputs = {f"observation.images.{name}": image for name in CAMERAS}
    (folder / "config.json").write_text(json.dumps({
        "type": "pi05",
        "input_features": inputs | {"observation.state": {"type": "STATE", "shape": [STATE]}},
        "output_features": {"action": {"type": "ACTION", "shape": [ACTIONS]}},
        "paligemma_variant": "gemma_2b", "action_expert_variant": "gemma_300m", "dtype": "bfloat16",
        "chunk_size": config.action_horizon, "n_action_steps": config.action_horizon, "max_state_dim": 32,
        "max_action_dim": config.action_dim, "num_inference_steps": 10, "empty_cameras": 0,
        "tokenizer_max_length": config.max_token_len, "normalization_mapping": NORMALIZATION,
    }, indent=1))
    statistics = {}
    for feature, width in (("observation.state", STATE), ("action", ACTIONS)):
        for measure, value in (("mean", 0.0), ("std", 1.0), ("q01", -2.0), ("q99", 2.0)):
            statistics[f"{feature}.{measure}"] = torch.full((width,), value)
    for file, step, state in ((PREPROCESSOR, "normalizer_processor", "pre.safetensors"),
                              (POSTPROCESSOR, "unnormalizer_processor", "post.safetensors")):
        description = {"registry_name": step, "config": {"eps": 1e-8, "norm_map": NORMALIZATION}, "state_file": state}
        (folder / file).write_text(json.dumps({"name": file.removesuffix(".json"), "steps": [description]}, indent=1))
        save_file(statistics, folder / state)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--shard-gb", type=float, default=2.0, help="size of a shard (default: %(default)s)")
    options = parser.parse_args()
    config = PRESETS["pi05"].with_horizon(HORIZON)
    options.out.mkdir(parents=True, exist_ok=True)
    write_weights(options.out, config, int(options.shard_gb * 1e9))
    write_descriptions(options.out, config)


if __name__ == "__main__":
    main()
