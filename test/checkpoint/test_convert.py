"""`oxygen-convert`: the converted folder is the same policy, bit for bit, and appears whole or not at all."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import REFERENCE
from safetensors import safe_open
from safetensors.torch import load_file
from spoil import EMBEDDING, LAYER, outcome, weights, write

from oxygen_ros.checkpoint import native
from oxygen_ros.checkpoint.convert import convert, main
from oxygen_ros.checkpoint.errors import CheckpointError
from oxygen_ros.checkpoint.load import load
from oxygen_ros.embodiment import tokenizer
from oxygen_ros.pi05.random_weights import random_model


def test_the_converted_policy_is_the_same(folder, tmp_path):
    (folder / "tokenizer.model").write_bytes(b"pieces")
    out = tmp_path / "deep" / "out"
    assert convert(load(folder), out, robot="aloha") == []
    assert sorted(file.name for file in out.iterdir()) == [
        "config.json", "model.safetensors", "norm_stats.json", "tokenizer.model"
    ]
    assert (out / "tokenizer.model").read_bytes() == b"pieces"
    before, after = load(folder), load(out)
    assert (after.layout, after.robot, after.trained) == ("oxygen", "aloha", True)
    assert after.config == before.config and after.conventions == before.conventions
    for feature, measures in before.statistics.items():
        assert measures.keys() == after.statistics[feature].keys()
        assert all(np.array_equal(values, after.statistics[feature][name]) for name, values in measures.items())
    actions, tokens = outcome(before)
    again, same = outcome(after)
    assert torch.equal(again, actions) and same == tokens
    assert not [file for file in out.parent.iterdir() if file != out]  # nothing half-written is left


def test_converting_again_changes_no_byte(folder, tmp_path):
    convert(load(folder), tmp_path / "once")
    convert(load(tmp_path / "once"), tmp_path / "twice")
    for name in ("config.json", "model.safetensors", "norm_stats.json"):
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "twice" / name).read_bytes()


def test_the_file_is_read_by_the_safetensors_library_and_aligned(folder, tmp_path):
    tensors = {name: v.bfloat16() if "mlp" in name else v for name, v in weights(folder).items()}
    write(folder, tensors)
    convert(load(folder), tmp_path / "out")
    with safe_open(tmp_path / "out" / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
    stored = load_file(tmp_path / "out" / "model.safetensors")
    assert stored["backbone.layers.1.mlp.down.weight"].dtype == torch.bfloat16
    assert torch.equal(stored["backbone.layers.1.mlp.down.weight"], tensors[LAYER + "mlp.down_proj.weight"])
    gate_up = [tensors[f"{LAYER}mlp.{part}_proj.weight"] for part in ("gate", "up")]
    assert torch.equal(stored["backbone.layers.1.mlp.gate_up.weight"], torch.cat(gate_up))
    with (tmp_path / "out" / "model.safetensors").open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    header.pop("__metadata__")
    assert size % 8 == 0
    width = {"F32": 4, "BF16": 2}
    assert all(entry["data_offsets"][0] % width[entry["dtype"]] == 0 for entry in header.values())


def test_bfloat16_is_what_the_network_would_compute_in(folder, tmp_path):
    convert(load(folder), tmp_path / "out", dtype=torch.bfloat16)
    stored = load_file(tmp_path / "out" / "model.safetensors")
    assert stored["backbone.layers.0.mlp.down.weight"].dtype == torch.bfloat16
    assert stored["expert.norm.dense.weight"].dtype == torch.float32
    actions, tokens = outcome(load(folder), dtype=torch.bfloat16)
    again, same = outcome(load(tmp_path / "out"), dtype=torch.bfloat16)
    assert torch.equal(again, actions) and same == tokens


def test_pieces_of_two_types_are_joined_without_loss(folder, tmp_path):
    tensors = weights(folder)
    for part, kind in (("q", torch.float16), ("k", torch.bfloat16), ("v", torch.float16)):
        tensors[f"{LAYER}self_attn.{part}_proj.weight"] = tensors[f"{LAYER}self_attn.{part}_proj.weight"].to(kind)
    write(folder, tensors)
    convert(load(folder), tmp_path / "out")
    joined = torch.cat([tensors[f"{LAYER}self_attn.{part}_proj.weight"].float() for part in "qkv"])
    stored = load_file(tmp_path / "out" / "model.safetensors")
    assert torch.equal(stored["backbone.layers.1.attention.qkv.weight"], joined)


def test_a_broken_tie_survives(folder, tmp_path):
    tensors = weights(folder)
    write(folder, tensors | {EMBEDDING: torch.randn(512, 64)})
    convert(load(folder), tmp_path / "out")
    actions, tokens = outcome(load(folder))
    again, same = outcome(load(tmp_path / "out"))
    assert torch.equal(again, actions) and same == tokens


def test_what_is_lacking_is_said(folder, tmp_path):
    lacking = convert(load(folder), tmp_path / "out")
    assert [line.partition(":")[0] for line in lacking] == ["no tokenizer", "no robot named"]


def test_the_tokenizer_files_are_those_that_are_looked_for():
    assert native.TOKENIZERS == tokenizer.FILES


def test_an_existing_folder_is_kept(folder, tmp_path, capsys):
    out = tmp_path / "out"
    convert(load(folder), out)
    (out / "mine.txt").write_text("notes")
    assert main([str(folder), str(out)]) == 1
    assert f"{out} is there already; --force replaces it" in capsys.readouterr().err
    assert (out / "mine.txt").exists()
    assert main([str(folder), str(out), "--force", "--robot", "droid"]) == 0
    assert not (out / "mine.txt").exists() and load(out).robot == "droid"
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([folder.name, "out"])


def test_force_replaces_nothing_but_our_own_folders(folder, tmp_path):
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter1.txt").write_text("work")
    with pytest.raises(CheckpointError, match="not a policy folder of oxygen_ros, so --force does not replace it"):
        convert(load(folder), out, force=True)
    with pytest.raises(CheckpointError, match="is the folder to convert"):
        convert(load(folder), folder, force=True)
    assert (out / "chapter1.txt").read_text() == "work"


def test_a_failed_conversion_leaves_nothing(folder, tmp_path, capsys):
    tensors = weights(folder)
    tensors["time_mlp_in.bias"][0] = float("nan")
    write(folder, tensors)
    assert main([str(folder), str(tmp_path / "out")]) == 1
    assert "tensor time_mlp_in.bias (F32)" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == [folder.name]


def test_identity_statistics_survive(lerobot_folder, tmp_path):
    for file in ("policy_preprocessor.json", "policy_postprocessor.json"):
        (lerobot_folder / file).unlink()
    assert main([str(lerobot_folder), str(tmp_path / "out")]) == 1
    assert main([str(lerobot_folder), str(tmp_path / "out"), "--identity-statistics"]) == 0
    assert load(tmp_path / "out").conventions.normalization == {"state": "identity", "actions": "identity"}


def test_the_command(tmp_path):
    command = [sys.executable, "-m", "oxygen_ros.checkpoint.convert", REFERENCE / "openpi", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"{REFERENCE / 'openpi'}: openpi PyTorch folder, pi0.5, 112 tensors (112 F32) in 1 file"
    assert lines[-1] == f"wrote {tmp_path / 'out'}"
    assert done.stderr.strip().startswith("100% of ")
    again = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (again.returncode, again.stderr.count("\n")) == (1, 1)


def test_our_own_folder_of_another_version(folder, tmp_path):
    convert(load(folder), tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    for change, told in (({"version": 2}, "has version 2, known is 1"),
                         ({"conventions": {"smoothing": 1}}, "smoothing"),
                         ({"weights": "borrowed"}, "borrowed")):
        (tmp_path / "out" / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(CheckpointError, match=told):
            load(tmp_path / "out")


def test_saving_a_network(folder, tmp_path):
    """native.save, which makes the embedded default policy."""
    config = load(folder).config
    model = random_model(config, seed=5)
    native.save(tmp_path / "out", model, conventions={"accumulated_time": False}, robot="aloha", trained=False)
    (tmp_path / "out" / "norm_stats.json").write_text(
        (REFERENCE / "openpi" / "assets" / "tiny" / "norm_stats.json").read_text()
    )
    checkpoint = load(tmp_path / "out")
    assert not checkpoint.trained and not checkpoint.conventions.accumulated_time
    assert "warning: the weights are random numbers, nobody has trained them" in checkpoint.notes
    theirs = dict(checkpoint.model().named_parameters())
    assert all(torch.equal(value, theirs[name]) for name, value in model.named_parameters())
