"""What the breakdown compares with gives the same values, so that only time is compared."""

import pytest
import torch

from oxygen_ros.bench import plain
from oxygen_ros.pi05.cache import Strip
from oxygen_ros.pi05.config import PRESETS
from oxygen_ros.pi05.layers import attend
from oxygen_ros.pi05.random_weights import random_model


@pytest.fixture(scope="module")
def model():
    return random_model(PRESETS["tiny"], seed=1)


@pytest.fixture
def strip(model):
    c = model.config
    storage = torch.zeros(c.backbone.depth, 2, c.backbone.num_kv_heads, c.action_horizon + 40, c.backbone.head_dim)
    return Strip(storage, c.action_horizon)


def close(found, expected):
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)


def test_values(model, strip):
    generator = torch.Generator().manual_seed(0)
    c = model.config
    with torch.inference_mode():
        images = torch.rand(3, 3, c.vision.image_size, c.vision.image_size, generator=generator) * 2 - 1
        close(plain.encode(model, images), model.vision(images))

        x = torch.randn(30, c.backbone.width, generator=generator)
        model.backbone.prefill(x, strip)
        ours = [tuple(t.clone() for t in strip.prefix(layer)) for layer in range(c.backbone.depth)]
        plain.prefill(model.backbone, x, strip)
        for layer, pair in enumerate(ours):
            close(strip.prefix(layer)[0], pair[0])
            close(strip.prefix(layer)[1], pair[1])

        noise = torch.randn(c.action_horizon, c.action_dim, generator=generator)
        close(plain.denoise(model, noise, strip, 4), model.denoise(noise, strip, model.plan(4)))

        query = torch.randn(30, c.backbone.num_heads, c.backbone.head_dim, generator=generator)
        close(plain.attend(query, *strip.prefix(0)), attend(query, *strip.prefix(0)))

        suffix = tuple(torch.randn(c.backbone.num_kv_heads, c.action_horizon, c.backbone.head_dim) for _ in range(2))
        strip.write_suffix(0, *suffix)
        for copied, view in zip(plain.joint(strip.prefix(0), suffix), strip.joint(0)):
            # Ours has the suffix first; the order of keys does not matter to attention.
            close(copied.roll(c.action_horizon, 1), view)

        logits = torch.randn(5, c.vocab_size, generator=generator)
        assert torch.equal(plain.choose(logits), logits.argmax(-1))
