"""Changing a folder's files, and what a folder's policy does with the recorded inputs."""

import json
from pathlib import Path

import torch
from conftest import REFERENCE
from safetensors.torch import load_file, save_file

from oxygen_ros.checkpoint.load import load
from oxygen_ros.pi05.backbone import Continuation
from oxygen_ros.pi05.cache import Strip, Tail

HEAD = "paligemma_with_expert.paligemma.lm_head.weight"
EMBEDDING = "paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight"
LAYER = "paligemma_with_expert.paligemma.model.language_model.layers.1."


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Of model.safetensors, under openpi's names whatever the layout."""
    return {name.removeprefix("model."): value for name, value in load_file(folder / "model.safetensors").items()}


def write(folder: Path, tensors: dict[str, torch.Tensor], prefix: str | None = None) -> None:
    """Under the layout's own prefix unless another is given."""
    if prefix is None:
        prefix = "model." if (folder / "policy_preprocessor.json").is_file() else ""
    save_file({prefix + name: value.contiguous() for name, value in tensors.items()}, folder / "model.safetensors")


def edit(path: Path, change) -> None:
    """change(content) alters a JSON file's content in place."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def step(content: dict, name: str) -> dict:
    return next(s for s in content["steps"] if s.get("registry_name") == name)


def outcome(checkpoint, new_tokens: int = 8, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, list[int]]:
    """Actions [H, A] and greedy tokens that a loaded policy gives for the first recorded sample."""
    inputs = {name: value[0] for name, value in load_file(REFERENCE / "inputs.safetensors").items()}
    with torch.inference_mode():
        model = checkpoint.model(dtype=dtype)
        c = model.config
        x = model.embed_prefix(inputs["images"][inputs["image_masks"]], inputs["tokens"][inputs["token_mask"]])
        shape = (c.backbone.depth, 2, c.backbone.num_kv_heads, c.action_horizon + len(x), c.backbone.head_dim)
        strip = Strip(torch.zeros(shape, dtype=model.dtype), c.action_horizon)
        hidden = model.backbone.prefill(x, strip, hidden="last")
        accumulated = checkpoint.conventions.accumulated_time
        actions = model.denoise(inputs["noise"], strip, model.plan(10, accumulated_time=accumulated))
        tail = Tail(torch.zeros((*shape[:3], new_tokens, shape[-1]), dtype=model.dtype))
        logits, tokens = model.backbone.logits(hidden), []
        while True:
            tokens.append(int(logits.argmax()))
            if len(tokens) == new_tokens:
                return actions, tokens
            logits = model.advance(torch.tensor(tokens[-1:]), [Continuation(strip, tail, 1)])


def recorded(folder: Path) -> tuple[torch.Tensor, list[int]]:
    """What the folder's own software gave for that sample."""
    expected = load_file(REFERENCE / "expected.safetensors")
    name = "actions" if (folder / "policy_preprocessor.json").is_file() else "actions_accumulated_time"
    return expected[name][0], expected["lang_tokens"][0].tolist()


def assert_as_recorded(folder: Path) -> None:
    actions, tokens = outcome(load(folder))
    theirs, their_tokens = recorded(folder)
    torch.testing.assert_close(actions, theirs, atol=3e-5, rtol=0)
    assert tokens == their_tokens
