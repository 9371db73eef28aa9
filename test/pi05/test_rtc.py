"""Real-time chunking, held to the runs recorded from LeRobot (test/reference/pi05_tiny_a/rtc.*)."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from oxygen_ros.checkpoint.load import load
from oxygen_ros.pi05.cache import Strip
from oxygen_ros.pi05.flow import flow_times
from oxygen_ros.pi05.rtc import Guidance, guidance_weight, soft_mask

FOLDER = Path(__file__).resolve().parents[1] / "reference" / "pi05_tiny_a"
RUNS = json.loads((FOLDER / "rtc.json").read_text())
RECORDED = load_file(FOLDER / "rtc.safetensors")
IDENTITY = [run for run in RUNS["guided"] if run["jacobian"] == "identity"]


def named(runs):
    return pytest.mark.parametrize("run", runs, ids=[run["name"] for run in runs])


@pytest.fixture(scope="module")
def frames():
    """(model, [(noise, prefilled strip)] of both samples)."""
    inputs, found = load_file(FOLDER / "inputs.safetensors"), []
    model = load(FOLDER).model()
    backbone = model.config.backbone
    with torch.inference_mode():
        for i, noise in enumerate(inputs["noise"]):
            x = model.embed_prefix(inputs["images"][i][inputs["image_masks"][i]], inputs["tokens"][i][inputs["token_mask"][i]])
            storage = torch.zeros(backbone.depth, 2, backbone.num_kv_heads, len(noise) + len(x), backbone.head_dim)
            strip = Strip(storage, len(noise))
            model.backbone.prefill(x, strip)
            found.append((noise, strip))
    return model, found


@named(IDENTITY)
def test_guided_actions(frames, run):
    model, samples = frames
    leftover, plan = RECORDED[run["previous_chunk"]], model.plan(run["num_steps"])
    with torch.inference_mode():
        actions = torch.stack([
            model.denoise(noise, strip, plan, Guidance(
                leftover[i], run["inference_delay"], run["execution_horizon"],
                run["prefix_attention_schedule"].lower(), run["max_guidance_weight"],
            ))
            for i, (noise, strip) in enumerate(samples)
        ])
    assert (actions - RECORDED[run["actions"]]).abs().max() <= run["pass_limit"]


@named(IDENTITY)
def test_masks_and_weights(run):
    rows = RECORDED[run["previous_chunk"]].shape[1]
    mask = soft_mask(6, run["inference_delay"], run["execution_horizon"], rows, run["prefix_attention_schedule"].lower())
    torch.testing.assert_close(mask, RECORDED[run["weights"]], atol=1e-6, rtol=0)
    weights = torch.tensor([guidance_weight(t, run["max_guidance_weight"]) for t in flow_times(run["num_steps"])])
    torch.testing.assert_close(weights, RECORDED[run["guidance_weights"]], atol=1e-5, rtol=0)


@named(RUNS["trained"])
def test_trained(frames, run):
    model, samples = frames
    leftover, delay = RECORDED[run["previous_chunk"]], run["inference_delay"]
    with torch.inference_mode():
        actions = torch.stack([
            model.denoise_after(leftover[i, :delay], noise, strip, run["num_steps"])
            for i, (noise, strip) in enumerate(samples)
        ])
    assert (actions - RECORDED[run["actions"]]).abs().max() <= run["pass_limit"]


def test_no_leftover_is_plain_sampling(frames):
    model, samples = frames
    plan = model.plan(10)
    with torch.inference_mode():
        for i, (noise, strip) in enumerate(samples):
            plain = model.denoise(noise, strip, plan)
            none = model.denoise(noise, strip, plan, Guidance(torch.empty(0, 8), delay=2, end=5))
            assert torch.equal(none, plain)
            assert (plain - RECORDED["actions_plain"][i]).abs().max() <= 3e-5


def test_refusals():
    with pytest.raises(ValueError, match="max_weight is 0"):
        Guidance(torch.zeros(2, 2), 0, 2, max_weight=0)
    with pytest.raises(ValueError, match="delay -1"):
        Guidance(torch.zeros(2, 2), -1, 2)
    with pytest.raises(ValueError, match="schedule is 'cubic'"):
        soft_mask(5, 1, 3, 5, "cubic")
