"""Real-time chunking, where recorded runs do not reach. (Those are compared by test/checkpoint/test_verify.py.)"""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from oxygen_ros.checkpoint.load import load
from oxygen_ros.pi05.cache import Strip
from oxygen_ros.pi05.rtc import Guidance, soft_mask

FOLDER = Path(__file__).resolve().parents[1] / "reference" / "pi05_tiny_a"


def test_no_leftover_is_plain_sampling():
    inputs, model = load_file(FOLDER / "inputs.safetensors"), load(FOLDER).model()
    noise, backbone, plan = inputs["noise"][0], model.config.backbone, model.plan(10)
    with torch.inference_mode():
        x = model.embed_prefix(inputs["images"][0], inputs["tokens"][0])
        storage = torch.zeros(backbone.depth, 2, backbone.num_kv_heads, len(noise) + len(x), backbone.head_dim)
        strip = Strip(storage, len(noise))
        model.backbone.prefill(x, strip)
        none = Guidance(torch.empty(0, 8), delay=2, end=5)
        assert torch.equal(model.denoise(noise, strip, plan, none), model.denoise(noise, strip, plan))


def test_refusals():
    with pytest.raises(ValueError, match="max_weight is 0"):
        Guidance(torch.zeros(2, 2), 0, 2, max_weight=0)
    with pytest.raises(ValueError, match="delay -1"):
        Guidance(torch.zeros(2, 2), -1, 2)
    with pytest.raises(ValueError, match="schedule is 'cubic'"):
        soft_mask(5, 1, 3, 5, "cubic")
