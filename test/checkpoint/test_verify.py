"""`oxygen-verify` passes on recorded values of either layout and of any size, and names what is off."""

import itertools
import json
import math
import shutil
from dataclasses import replace

import pytest
import torch
from conftest import REFERENCE
from plain import PlainPi05
from safetensors.torch import load_file, save_file
from spoil import LAYER, weights, write

from oxygen_ros.checkpoint.layouts import HEAD, sources
from oxygen_ros.checkpoint.verify import main
from oxygen_ros.pi05.config import Pi05Config, TransformerConfig, VisionConfig
from oxygen_ros.pi05.random_weights import random_model


@pytest.fixture
def reference(tmp_path):
    return shutil.copytree(REFERENCE, tmp_path / "reference")


@pytest.mark.parametrize("layout", ["lerobot", "openpi"])
def test_the_recorded_folder_passes(capsys, layout):
    assert main([str(REFERENCE), "--layout", layout]) == 0
    lines = capsys.readouterr().out.splitlines()
    quantities = [line for line in lines if line.startswith("ok")]
    rtc = 1 + 91 + 33 + 5 + 2 * 5 + 5  # plain, guided, masks, weights, traces, trained
    assert len(quantities) == 21 + 14 + rtc == len(lines) - 2
    assert lines[-2] == "not compared: 12 runs of rtc.json with the full Jacobian, which is not offered"
    assert lines[-1] == "oxygen-verify: every quantity within its limit"


def test_the_openpi_folder_itself_may_be_given(capsys):
    assert main([str(REFERENCE / "openpi")]) == 0


CHANGES = {
    "action_out_proj.bias": ("bidirectional: actions", "bidirectional: prefix_k_last"),
    "time_mlp_out.bias": ("bidirectional: adarms_cond_t1", "bidirectional: lang_logits"),
    "action_in_proj.bias": ("bidirectional: suffix_embeddings_t1", "bidirectional: image_features"),
    LAYER + "mlp.up_proj.weight": ("causal: prefix_v_last", "bidirectional: image_features"),
    "paligemma_with_expert.paligemma.model.multi_modal_projector.linear.bias": (
        "bidirectional: image_features", "bidirectional: suffix_embeddings_t1"),
}


@pytest.mark.parametrize("layout", ["lerobot", "openpi"])
@pytest.mark.parametrize("name", CHANGES)
def test_one_changed_weight_is_found_and_what_it_moves_is_named(reference, capsys, name, layout):
    folder = reference / "openpi" if layout == "openpi" else reference
    tensors = weights(folder)
    tensors[name].view(-1)[0] += 0.5
    write(folder, tensors)
    assert main([str(reference), "--layout", layout]) == 1
    captured = capsys.readouterr()
    moved, untouched = CHANGES[name]
    failed = [line[6:51].strip() for line in captured.out.splitlines() if line.startswith("FAIL")]
    assert moved in failed and untouched not in failed
    assert f"{len(failed)} quantities past their limit: {', '.join(failed)}" in captured.err


def test_a_changed_record_is_found(reference, capsys):
    expected = load_file(reference / "expected.safetensors")
    expected["lang_tokens"][1, 7] += 1
    expected["velocities"][9, 1, 5, 7] = float("nan")
    save_file(expected, reference / "expected.safetensors")
    assert main([str(reference)]) == 1
    assert "2 quantities past their limit: " in (error := capsys.readouterr().err)
    assert "bidirectional: lang_tokens" in error and "bidirectional: velocities" in error


def test_a_changed_run_of_real_time_chunking_is_found(reference, capsys):
    recorded = load_file(reference / "rtc.safetensors")
    recorded["trace.exp_d2_s3_b10.correction"][9, 1, 2, 7] += 1e-3
    recorded["actions.trained_d2"][0, 5, 0] += 1e-3
    recorded["weights.linear_d0_s3"] = recorded["weights.linear_d0_s3"][:5].clone()
    save_file(recorded, reference / "rtc.safetensors")
    assert main([str(reference)]) == 1
    assert ("3 quantities past their limit: rtc: weights.linear_d0_s3, rtc: trace.exp_d2_s3_b10.correction, "
            "rtc: actions.trained_d2") in capsys.readouterr().err


def test_runs_that_are_not_of_the_format_are_one_line(reference, capsys):
    runs = json.loads((reference / "rtc.json").read_text())
    runs["guided"][3].pop("execution_horizon")
    (reference / "rtc.json").write_text(json.dumps(runs))
    assert main([str(reference)]) == 1
    error = capsys.readouterr().err
    assert "rtc.json is not of the reference format: KeyError('execution_horizon')" in error and error.count("\n") == 1


@pytest.mark.parametrize("spoil, word", [
    (lambda folder: (folder / "rtc.safetensors").unlink(), "rtc.safetensors cannot be read"),
    (lambda folder: replace_in(folder / "rtc.json", '"pass_limit": 3e-05', '"pass_limit": "small"'), "rtc.json is not"),
    (lambda folder: replace_in(folder / "tolerances.json", '"max_abs"', '"most"'), "tolerances.json is not"),
    (lambda folder: change(folder / "inputs.safetensors", "noise", lambda noise: noise[0]),
     "inputs.safetensors is not"),
    (lambda folder: change(folder / "rtc.safetensors", "prev_chunk", lambda chunk: chunk.repeat(1, 1, 2)),
     "rtc.json is not"),
], ids=["no runs", "limit", "tolerance", "noise", "wide leftover"])
def test_a_record_of_another_format_is_one_line(reference, capsys, spoil, word):
    spoil(reference)
    assert main([str(reference)]) == 1
    error = capsys.readouterr().err
    assert word in error and error.count("\n") == 1


def replace_in(path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new))


def change(path, name: str, by) -> None:
    tensors = load_file(path)
    save_file(tensors | {name: by(tensors[name]).contiguous()}, path)


@pytest.mark.parametrize("name", ["inputs.safetensors", "expected.safetensors", "expected_causal_text.safetensors",
                                  "tolerances.json", "model.safetensors"])
def test_a_missing_file_is_named_in_one_line(reference, capsys, name):
    (reference / name).unlink()
    assert main([str(reference)]) == 1
    captured = capsys.readouterr()
    assert name in captured.err and captured.err.count("\n") == 1 and captured.out == ""


def test_a_record_that_lacks_a_quantity_or_is_cut_short(reference, capsys):
    expected = load_file(reference / "expected.safetensors")
    expected.pop("velocities")
    save_file(expected, reference / "expected.safetensors")
    assert main([str(reference)]) == 1
    assert "not of the reference format: velocities is missing" in capsys.readouterr().err
    file = reference / "inputs.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    assert main([str(reference)]) == 1
    assert "inputs.safetensors cannot be read as safetensors" in capsys.readouterr().err


def test_no_folder(tmp_path, capsys):
    assert main([str(tmp_path / "nowhere")]) == 1
    assert "nowhere" in capsys.readouterr().err


SIZES = {
    "two key/value heads": Pi05Config(
        vision=VisionConfig(image_size=42, patch_size=14, width=24, depth=1, num_heads=3, mlp_dim=40),
        backbone=TransformerConfig(40, 2, 56, num_heads=6, num_kv_heads=2, head_dim=8),
        expert=TransformerConfig(24, 2, 48, num_heads=6, num_kv_heads=2, head_dim=8),
        vocab_size=83, action_dim=5, action_horizon=3, max_token_len=7,
    ),
    "other constants": Pi05Config(
        vision=VisionConfig(image_size=16, patch_size=8, width=32, depth=2, num_heads=4, mlp_dim=24,
                            layer_norm_eps=1e-3),
        backbone=TransformerConfig(48, 4, 96, num_heads=3, num_kv_heads=1, head_dim=12),
        expert=TransformerConfig(32, 4, 40, num_heads=3, num_kv_heads=1, head_dim=12),
        vocab_size=101, action_dim=9, action_horizon=8, max_token_len=10,
        rms_norm_eps=1e-3, rope_theta=500.0, time_min_period=0.02, time_max_period=2.0,
    ),
}
STEPS = {"two key/value heads": 4, "other constants": 7}
NEW_TOKENS = 5
LIMITS = {"prefix_hidden_final": 3e-4, "velocities": 3e-5, "velocity_t1": 3e-5, "x_after_step": 3e-5, "actions": 3e-5}


def record(folder, config: Pi05Config, steps: int) -> None:
    """A reference folder of these sizes whose values the network written the long way gives, in float64."""
    model = random_model(config, seed=11)
    generator = torch.Generator().manual_seed(12)
    stored = {}
    for name, parts in sources(config, {HEAD}).items():
        value = dict(model.named_parameters())[name]
        rows = value.split([part.shape[0] for part in parts])
        stored |= {part.name: piece.reshape(part.shape).clone() for part, piece in zip(parts, rows)}
    save_file(stored, folder / "model.safetensors")
    size, room = config.vision.image_size, config.max_token_len
    inputs = {
        "images": torch.rand(3, 4, 3, size, size, generator=generator) * 2 - 1,
        "image_masks": torch.tensor([[1, 0, 1, 1], [0, 0, 0, 1], [1, 1, 1, 1]], dtype=torch.bool),
        "tokens": torch.randint(3, config.vocab_size, (3, room), generator=generator),
        "token_mask": torch.arange(room)[None] < torch.tensor([[room - 2], [1], [room]]),
        "noise": torch.randn(3, config.action_horizon, config.action_dim, generator=generator),
    }
    save_file(inputs, folder / "inputs.safetensors")
    for file, causal in (("expected.safetensors", False), ("expected_causal_text.safetensors", True)):
        samples = [sample(model, {name: value[i] for name, value in inputs.items()}, causal, steps) for i in range(3)]
        per_step = ("velocities", "x_after_step")
        save_file({
            name: torch.stack([s[name] for s in samples], 1 if name in per_step else 0).contiguous()
            for name in samples[0]
        }, folder / file)
    limits = {name: {"max_abs": limit} for name, limit in LIMITS.items()} | {"lang_tokens": {"equal": True}}
    names = ("expected.safetensors", "expected_causal_text.safetensors")
    (folder / "tolerances.json").write_text(json.dumps(dict.fromkeys(names, limits)))
    backbone = {"num_heads": config.backbone.num_heads, "num_kv_heads": config.backbone.num_kv_heads}
    (folder / "dims.json").write_text(json.dumps({
        "vision": {"num_heads": config.vision.num_heads}, "backbone": backbone, "max_token_len": room,
        "rms_norm_eps": config.rms_norm_eps, "layer_norm_eps": config.vision.layer_norm_eps,
        "rope_theta": config.rope_theta, "time_min_period": config.time_min_period,
        "time_max_period": config.time_max_period,
    }))
    (folder / "config.json").write_text(json.dumps({
        "action_dim": config.action_dim, "action_horizon": config.action_horizon
    }))
    numbers = {"q01": [-1.0] * 4, "q99": [1.0] * 4}
    (folder / "norm_stats.json").write_text(json.dumps({"norm_stats": {"state": numbers, "actions": numbers}}))


def sample(model, inputs, causal: bool, steps: int) -> dict[str, torch.Tensor]:
    plain = PlainPi05(model)
    tokens_per_image = model.config.vision.tokens_per_image
    prefix = torch.cat([plain.image_tokens(image) for image in inputs["images"]] + [plain.embed(inputs["tokens"])])
    valid = torch.cat((inputs["image_masks"].repeat_interleave(tokens_per_image), inputs["token_mask"]))
    causal_from = 4 * tokens_per_image if causal else len(prefix)
    hidden, _ = plain.run(prefix, valid, causal_from, None, 0.0)
    x, velocities, states = inputs["noise"].double(), [], []
    for i in range(steps):
        velocities.append(plain.run(prefix, valid, causal_from, x, 1 - i / steps)[1])
        x = x - velocities[-1] / steps
        states.append(x)
    # Decoded tokens are a causal tail after a prefix that stays one block.
    said = plain.say(prefix, valid, [], NEW_TOKENS, causal_from if causal else None)
    values = {
        "prefix_hidden_final": hidden * valid[:, None], "velocities": torch.stack(velocities),
        "velocity_t1": velocities[0], "x_after_step": torch.stack(states), "actions": x,
    }
    return {name: value.float() for name, value in values.items()} | {"lang_tokens": torch.tensor(said)}


@pytest.mark.parametrize("sizes", SIZES)
def test_other_sizes_heads_masks_horizons_and_steps(tmp_path, capsys, sizes):
    """The shortcuts (masked positions left out, prefix cached, heads folded, modulations planned) change no value."""
    record(tmp_path, SIZES[sizes], STEPS[sizes])
    assert main([str(tmp_path)]) == 0, capsys.readouterr().out
    assert capsys.readouterr().out.count("ok  ") == 12


RUNS = [  # steps, delay, end, weight, leftover
    (3, 0, 10, 10, "whole"), (3, 4, 2, 10, "whole"), (6, 99, 99, 7.5, "whole"), (1, 1, 2, 1, "whole"),
    (4, 1, 5, 3, "one row and dim"), (3, 2, 5, 2.5, "no rows"), (3, 2, 5, 2.5, None), (3, 1, 3, 5, "no batch axis"),
    (3, 1, 30, 5, "more rows than a chunk has"),
]


def record_runs(folder, config: Pi05Config) -> None:
    """Guided runs of a recorded folder, by the formulas of the specification in float64."""
    inputs, plain = load_file(folder / "inputs.safetensors"), PlainPi05(random_model(config, seed=11))
    noise = inputs["noise"]
    horizon, chunk = noise.shape[1], torch.randn(noise.shape, generator=torch.Generator().manual_seed(5)).clamp(-1, 1)
    stored = {
        "whole": chunk, "one row and dim": chunk[:, :1, :1], "no rows": chunk[:, :0], "no batch axis": chunk[0, :-1],
        "more rows than a chunk has": torch.cat((chunk, chunk), 1),
    }
    runs = []
    prefixes = [(torch.cat([*map(plain.image_tokens, images), plain.embed(tokens)]),
                 torch.cat((mask.repeat_interleave(config.vision.tokens_per_image), token_mask)))
                for images, tokens, mask, token_mask in zip(*(inputs[n] for n in (
                    "images", "tokens", "image_masks", "token_mask")))]

    def denoised(steps: int, weights, target, bound: float):
        samples = []
        for x, leftover, (prefix, valid) in zip(noise.double(), target, prefixes):
            for i in range(steps):
                t = 1 - i / steps
                velocity = plain.run(prefix, valid, len(prefix), x, t)[1]
                error = weights[:, None] * (leftover - (x - t * velocity))
                x = x - (velocity - weight_at(t, bound) * error) / steps
            samples.append(x)
        return torch.stack(samples)

    def weight_at(t: float, bound: float) -> float:
        return bound if t == 1 else min(bound, (t * t + (1 - t) ** 2) / (t * (1 - t)))

    fades = {"LINEAR": lambda r: r, "EXP": lambda r: r * math.expm1(r) / math.expm1(1), "ONES": lambda r: 1,
             "ZEROS": lambda r: 0}
    for (steps, delay, end, bound, leftover), (schedule, fade) in itertools.product(RUNS, fades.items()):
        given = noise[:, :0] if leftover is None else stored[leftover][..., :horizon, :]
        target = torch.zeros(noise.shape, dtype=torch.float64)
        target[:, : given.shape[-2], : given.shape[-1]] = given
        last = min(end, given.shape[-2])
        first = min(delay, last)
        weights = torch.tensor([1 if i < first else fade((last - i) / (last - first + 1)) if i < last else 0
                                for i in range(horizon)], dtype=torch.float64)
        name = str(len(runs))
        stored |= {f"actions{name}": denoised(steps, weights, target, bound).float(), f"mask{name}": weights.float(),
                   f"weights{name}": torch.tensor([weight_at(1 - i / steps, bound) for i in range(steps)])}
        runs.append({
            "name": name, "prefix_attention_schedule": schedule, "inference_delay": delay, "execution_horizon": end,
            "max_guidance_weight": bound, "num_steps": steps, "previous_chunk": leftover, "jacobian": "identity",
            "actions": f"actions{name}", "weights": f"mask{name}", "guidance_weights": f"weights{name}",
            "pass_limit": 1e-4,
        })
    stored["plain"] = load_file(folder / "expected.safetensors")["actions"]
    save_file({name: value.contiguous().clone() for name, value in stored.items()}, folder / "rtc.safetensors")
    limits = {"actions, jacobian identity": 3e-5, "trace, jacobian identity": {}, "weights": 1e-6,
              "guidance_weights": 1e-5}
    (folder / "rtc.json").write_text(json.dumps({"plain": "plain", "guided": runs, "pass_limits": limits}))


@pytest.mark.parametrize("sizes", SIZES)
def test_runs_of_other_sizes_steps_weights_and_leftovers(tmp_path, capsys, sizes):
    record(tmp_path, SIZES[sizes], STEPS[sizes])
    record_runs(tmp_path, SIZES[sizes])
    assert main([str(tmp_path)]) == 0, capsys.readouterr().out
    assert capsys.readouterr().out.count("ok    rtc: ") == 1 + 3 * 4 * len(RUNS)


@pytest.fixture(scope="module")
def other_constants(tmp_path_factory):
    folder = tmp_path_factory.mktemp("other_constants")
    record(folder, SIZES["other constants"], 1)
    return folder


@pytest.mark.parametrize("field, value", [
    ("rms_norm_eps", 1e-6), ("rope_theta", 10000.0), ("time_min_period", 0.004), ("time_max_period", 4.0),
    ("layer_norm_eps", 1e-6),
])
def test_constants_of_dims_json_count(other_constants, tmp_path, field, value):
    folder = shutil.copytree(other_constants, tmp_path / "changed")
    assert main([str(folder)]) == 0
    dims = json.loads((folder / "dims.json").read_text())
    (folder / "dims.json").write_text(json.dumps(dims | {field: value}))
    assert main([str(folder)]) == 1


def test_sizes_are_not_those_of_the_recorded_folder():
    """Guards `SIZES`: nothing here passes because it equals a default."""
    for config in SIZES.values():
        assert config.backbone.width != 64 and config.action_horizon != 6 and config.action_dim != 8
        assert replace(config, action_horizon=6) != config
