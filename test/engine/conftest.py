"""A network small enough that fifty frames take a second, of sizes that there is compiled code for."""

import pytest
import torch

from oxygen_ros.engine.observation import Observation
from oxygen_ros.pi05.config import Pi05Config, TransformerConfig, VisionConfig
from oxygen_ros.pi05.model import Pi05
from oxygen_ros.pi05.random_weights import random_model

CONFIG = Pi05Config(
    vision=VisionConfig(image_size=28, patch_size=14, width=24, depth=2, num_heads=3, mlp_dim=40),
    backbone=TransformerConfig(48, 3, 96, num_heads=4, num_kv_heads=1, head_dim=16),
    expert=TransformerConfig(32, 3, 64, num_heads=4, num_kv_heads=1, head_dim=16),
    vocab_size=112, action_dim=16, action_horizon=5, max_token_len=16,
)


def make_model() -> Pi05:
    # A tied random head repeats its last token; one of its own makes texts that tell requests apart.
    model = random_model(CONFIG, seed=3)
    head = torch.randn(CONFIG.vocab_size, CONFIG.backbone.width, generator=torch.Generator().manual_seed(5))
    model.backbone.head = torch.nn.Parameter(head, requires_grad=False)
    return model


@pytest.fixture(scope="session")
def model():
    return make_model()


@pytest.fixture(scope="session")
def packed():
    """The same network, as a policy on a CPU has it."""
    model = make_model()
    model.pack()
    assert model.backbone.compiled
    return model


@pytest.fixture
def observe():
    """observe(seed) -> an Observation with its own pictures, prompt length, stamp and noise."""

    def make(seed: int, cameras: int = 2) -> Observation:
        generator = torch.Generator().manual_seed(seed)
        length = int(torch.randint(3, 16, (1,), generator=generator))
        return Observation(
            images=torch.randint(0, 256, (cameras, 28, 28, 3), dtype=torch.uint8, generator=generator),
            tokens=torch.randint(4, CONFIG.vocab_size, (length,), generator=generator),
            stamp_ns=1000 + seed,
            noise=torch.randn(CONFIG.action_horizon, CONFIG.action_dim, generator=generator),
        )

    return make
