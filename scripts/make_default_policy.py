"""Writes resource/pi05_aloha_tiny: a whole policy folder, except that nobody has trained its weights yet.

./run python scripts/make_default_policy.py [--out DIR]

Weights: seeded random numbers, kept as bfloat16 for git. Tokenizer: SentencePiece, trained on the sentences below with
PaliGemma's special ids. Statistics: of the sample bag, in the model's units. The same inputs give the same files.
"""

from __future__ import annotations

import argparse
import io
import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import sentencepiece
import torch
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory

from oxygen_ros.checkpoint import native
from oxygen_ros.embodiment.joints import pair, read_state
from oxygen_ros.embodiment.registry import robot
from oxygen_ros.pi05.config import PRESETS
from oxygen_ros.pi05.random_weights import random_model

ROOT = Path(__file__).resolve().parent.parent
BAG = ROOT / "resource" / "aloha_transfer_cube.mcap"

VERBS = ("transfer", "pick up", "lift", "grasp", "hand over", "release", "reach", "move", "put down", "hold", "find",
         "push")
THINGS = ("the cube", "the red cube", "the block", "the peg", "the cup", "the gripper", "the left arm", "the right arm")
PLACES = ("", " to the left gripper", " to the right gripper", " on the table", " above the table", " between the arms")
QUESTIONS = (
    "where is {thing}?", "what is the robot doing?", "what color is {thing}?", "which arm holds {thing}?",
    "is {thing} on the table?", "is the task done?", "what comes next?",
)
ANSWERS = (
    "{thing} is on the table.", "{thing} is in the left gripper.", "{thing} is in the right gripper.", "yes", "no",
    "the right arm reaches for {thing}.", "the left arm takes {thing}.", "both arms hold {thing}.", "it is red.",
)


def sentences() -> list[str]:
    """Everything this policy will read or say, in the prompt forms of pi0.5."""
    tasks = [f"{verb} {thing}{place}" for verb, thing, place in product(VERBS, THINGS, PLACES)]
    numbers = [" ".join(str((7 * start + 3 * k) % 257 - 1) for k in range(14)) for start in range(0, 256, 3)]
    asked = [f"\nQuestion: {q.format(thing=thing)}\nAnswer: " for q, thing in product(QUESTIONS, THINGS)]
    said = [a.format(thing=thing) for a, thing in product(ANSWERS, THINGS)]
    return (
        [f"Task: {task}, State: {numbers[i % len(numbers)]};\nAction: " for i, task in enumerate(tasks)]
        + asked + said + ["\nDescribe the scene: ", "\nSubtask: "]
    )


def tokenizer(vocab_size: int) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences()), model_writer=model, model_type="bpe", vocab_size=vocab_size,
        pad_id=0, eos_id=1, bos_id=2, unk_id=3, byte_fallback=True, split_digits=True, user_defined_symbols=["\n"],
        normalization_rule_name="identity", add_dummy_prefix=False, remove_extra_whitespaces=False,
        hard_vocab_limit=False, num_threads=1, minloglevel=2,
    )
    return model.getvalue()


def statistics(bag: Path, horizon: int) -> dict:
    """Of the states, and of the next `horizon` commands relative to each, in the model's units."""
    body = robot("aloha")
    rows: dict[str, list[np.ndarray]] = {"/joint_states": [], "/joint_commands": []}
    with bag.open("rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        for _, channel, _, message in reader.iter_decoded_messages(list(rows)):
            rows[channel.topic].append(read_state(body.joints, pair(message.name, message.position)))
    states, commands = (np.array(rows[topic]) for topic in rows)
    chunks = [
        body.to_model_actions(commands[i : i + horizon], body.to_model_state(states[i]))
        for i in range(len(states) - horizon)
    ]
    data = {"state": body.to_model_state(states), "actions": np.concatenate(chunks)}
    measures = {"mean": lambda x: x.mean(0), "std": lambda x: x.std(0),
                "q01": lambda x: np.quantile(x, 0.01, axis=0), "q99": lambda x: np.quantile(x, 0.99, axis=0)}
    return {"norm_stats": {
        name: {measure: of(values).round(6).tolist() for measure, of in measures.items()}
        for name, values in data.items()
    }}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "resource" / "pi05_aloha_tiny")
    folder = parser.parse_args().out
    pieces = tokenizer(PRESETS["tiny"].vocab_size)
    vocab_size = sentencepiece.SentencePieceProcessor(model_proto=pieces).vocab_size()
    config = replace(PRESETS["tiny"], vocab_size=vocab_size)
    conventions = {
        "normalization": {"state": "openpi_quantile", "actions": "openpi_quantile"},
        "resize": "openpi", "accumulated_time": False,
    }
    model = random_model(config, seed=0)
    # An untrained network with a tied head says its last token again and again; a head of its own makes it babble.
    head = torch.randn(config.vocab_size, config.backbone.width, generator=torch.Generator().manual_seed(1))
    model.backbone.head = torch.nn.Parameter(head * config.backbone.width**-0.5, requires_grad=False)
    native.save(folder, model, conventions=conventions, robot="aloha", trained=False,
                dtype=torch.bfloat16)
    (folder / "tokenizer.model").write_bytes(pieces)
    (folder / "norm_stats.json").write_text(json.dumps(statistics(BAG, config.action_horizon), indent=1) + "\n")
    print(f"wrote {folder}")


if __name__ == "__main__":
    main()
