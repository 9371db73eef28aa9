"""Small policy folders in the layouts of the public stacks: the reference weights, a tokenizer, room for a prompt."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import sentencepiece
from safetensors.torch import load_file, save_file

REFERENCE = Path(__file__).parent / "reference" / "pi05_tiny_a"
LEROBOT = (
    "config.json",
    "model.safetensors",
    "policy_preprocessor.json",
    "policy_postprocessor.json",
    "policy_preprocessor_step_3_normalizer_processor.safetensors",
    "policy_postprocessor_step_0_unnormalizer_processor.safetensors",
)
ROOM = 120  # tokens of a prompt; the reference's own 12 hold no state
EMBEDDING = "model.paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight"


def tokenizer_model() -> bytes:
    """A SentencePiece file with PaliGemma's special ids whose pieces fit the reference's embedding of 512."""
    model, tasks = BytesIO(), ["pick up the red block", "open the drawer", "fold the towel."]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([f"Task: {task}, State: 12 255;\nAction: " for task in tasks] * 20),
        model_writer=model, vocab_size=330, hard_vocab_limit=False, byte_fallback=True, user_defined_symbols=["\n"],
        pad_id=0, eos_id=1, bos_id=2, unk_id=3, split_digits=True, add_dummy_prefix=False,
        remove_extra_whitespaces=False, normalization_rule_name="identity", minloglevel=2,
    )  # fmt: skip
    return model.getvalue()


def write_folder(layout: str, folder: Path, tokenizer: bytes | None) -> Path:
    """layout: openpi, lerobot (as version 0.6.1 writes it) or lerobot_0_4."""
    folder.mkdir(parents=True)
    if layout == "openpi":
        shutil.copytree(REFERENCE / "openpi", folder, dirs_exist_ok=True)
    else:
        for name in LEROBOT:
            shutil.copy(REFERENCE / name, folder)
        edit(folder / "config.json", lambda config: config.update(tokenizer_max_length=ROOM))
    shutil.copy(REFERENCE / "dims.json", folder)
    edit(folder / "dims.json", lambda dims: dims.update(max_token_len=ROOM))
    if layout == "lerobot_0_4":
        _age(folder)
    if tokenizer is not None:
        (folder / "tokenizer.model").write_bytes(tokenizer)
    return folder


def edit(path: Path, change: Callable[[dict], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.chmod(0o644)
    path.write_text(json.dumps(content))


def edit_step(folder: Path, name: str, **fields: object) -> None:
    """Change a step's configuration in whichever processor file has it."""
    for file in ("policy_preprocessor.json", "policy_postprocessor.json"):
        edit(folder / file, lambda content: [
            step["config"].update(fields) for step in content["steps"] if step["registry_name"] == name
        ])  # fmt: skip


def _age(folder: Path) -> None:
    """What LeRobot 0.4.4 did not write yet: relative actions, and the embedding beside the head."""
    for file in ("policy_preprocessor.json", "policy_postprocessor.json"):
        edit(folder / file, lambda content: content.update(steps=[
            step for step in content["steps"] if "_actions_processor" not in step["registry_name"]
        ]))  # fmt: skip
    new = ("use_relative_actions", "relative_exclude_joints", "action_feature_names")
    edit(folder / "config.json", lambda config: [config.pop(name) for name in new])
    weights = load_file(folder / "model.safetensors")
    weights.pop(EMBEDDING)
    save_file(weights, folder / "model.safetensors")
