"""The network's shortcuts change no value: each is held to the same network written the long way."""

import pytest
import torch
from plain import PlainPi05

from oxygen_ros.pi05.backbone import Continuation
from oxygen_ros.pi05.cache import Strip, Tail
from oxygen_ros.pi05.config import PRESETS, Pi05Config, TransformerConfig, VisionConfig
from oxygen_ros.pi05.flow import flow_times
from oxygen_ros.pi05.random_weights import random_model

STEPS = 4

CONFIGS = {
    "one key/value head": Pi05Config(
        vision=VisionConfig(image_size=28, patch_size=14, width=24, depth=2, num_heads=3, mlp_dim=40),
        backbone=TransformerConfig(48, 3, 96, num_heads=4, num_kv_heads=1, head_dim=12),
        expert=TransformerConfig(32, 3, 64, num_heads=4, num_kv_heads=1, head_dim=12),
        vocab_size=97, action_dim=7, action_horizon=5, max_token_len=16,
    ),
    "two key/value heads": Pi05Config(
        vision=VisionConfig(image_size=42, patch_size=14, width=16, depth=1, num_heads=2, mlp_dim=24),
        backbone=TransformerConfig(40, 2, 64, num_heads=6, num_kv_heads=2, head_dim=8),
        expert=TransformerConfig(24, 2, 48, num_heads=6, num_kv_heads=2, head_dim=8),
        vocab_size=64, action_dim=5, action_horizon=1, max_token_len=16,
    ),
    "sizes of the compiled code": Pi05Config(
        vision=VisionConfig(image_size=28, patch_size=14, width=16, depth=1, num_heads=2, mlp_dim=24),
        backbone=TransformerConfig(48, 3, 80, num_heads=6, num_kv_heads=2, head_dim=16),
        expert=TransformerConfig(32, 3, 48, num_heads=6, num_kv_heads=2, head_dim=16),
        vocab_size=112, action_dim=16, action_horizon=7, max_token_len=16,
    ),
}


class Case:
    """A frame with a missing camera in the middle and a padded prompt; the long way sees all of it, masked."""

    def __init__(self, config: Pi05Config, packed: bool) -> None:
        generator = torch.Generator().manual_seed(7)
        self.model = random_model(config, seed=3)
        self.plain = PlainPi05(self.model)
        if packed:
            self.model.pack()
        size = config.vision.image_size
        images = torch.rand(3, 3, size, size, generator=generator) * 2 - 1
        present = torch.tensor([True, False, True])
        tokens = torch.randint(4, config.vocab_size, (9,), generator=generator)
        mask = torch.arange(9) < 6
        self.valid = torch.cat((present.repeat_interleave(config.vision.tokens_per_image), mask))
        self.text_start = 3 * config.vision.tokens_per_image
        self.prefix = torch.cat([self.plain.image_tokens(image) for image in images] + [self.plain.embed(tokens)])
        self.noise = torch.randn(config.action_horizon, config.action_dim, generator=generator)
        with torch.inference_mode():
            self.x = self.model.embed_prefix(images[present], tokens[mask])
        self.causal_from = int(self.valid[: self.text_start].sum())

    def strip(self) -> Strip:
        c = self.model.config
        b = c.backbone
        storage = torch.full((b.depth, 2, b.num_kv_heads, c.action_horizon + 64, b.head_dim), 9.0)
        return Strip(storage, c.action_horizon)

    def tail(self, room: int = 32) -> Tail:
        c = self.model.config.backbone
        return Tail(torch.full((c.depth, 2, c.num_kv_heads, room, c.head_dim), 9.0))


@pytest.fixture(scope="module", params=[(name, packed) for name in CONFIGS for packed in (False, True)],
                ids=lambda p: p[0] + (", packed" if p[1] else ""))
def case(request):
    name, packed = request.param
    return Case(CONFIGS[name], packed)


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal text"])
def test_prefix_hidden_states(case, causal):
    expected, _ = case.plain.run(case.prefix, case.valid, case.text_start if causal else len(case.prefix), None, 0.0)
    options = {"causal_from": case.causal_from if causal else None}
    with torch.inference_mode():
        everything = case.model.backbone.prefill(case.x, case.strip(), hidden="all", **options)
        last = case.model.backbone.prefill(case.x, case.strip(), hidden="last", **options)
    torch.testing.assert_close(everything.double(), expected[case.valid], atol=5e-5, rtol=0)
    torch.testing.assert_close(last, everything[-1:], atol=2e-5, rtol=0)


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal text"])
@pytest.mark.parametrize("hidden", ["none", "last"])
def test_actions(case, causal, hidden):
    """Whatever language wants of the prefix, actions are those of the joint computation over masked positions."""
    expected = case.plain.actions(
        case.prefix, case.valid, case.text_start if causal else len(case.prefix), case.noise, STEPS
    )
    strip = case.strip()
    with torch.inference_mode():
        case.model.backbone.prefill(case.x, strip, causal_from=case.causal_from if causal else None, hidden=hidden)
        actions = case.model.denoise(case.noise, strip, case.model.plan(STEPS))
    torch.testing.assert_close(actions.double(), expected, atol=3e-5, rtol=0)


def test_language_from_a_shared_prefix(case):
    """Requests with prompts of different lengths, joining at different steps, say what each would say alone."""
    strip, prompts = case.strip(), ([5, 6, 7], [8], [9, 10, 11, 12])
    expected = [case.plain.say(case.prefix, case.valid, prompt, 5) for prompt in prompts]
    tails, pending, said = [case.tail() for _ in prompts], [list(p) for p in prompts], [[] for _ in prompts]
    with torch.inference_mode():
        case.model.backbone.prefill(case.x, strip)
        step = 0
        while any(len(s) < 5 for s in said):
            live = [i for i in range(3) if step >= i and len(said[i]) < 5]
            tokens = torch.tensor([t for i in live for t in pending[i]])
            logits = case.model.advance(tokens, [Continuation(strip, tails[i], len(pending[i])) for i in live])
            for i, token in zip(live, logits.argmax(-1).tolist()):
                said[i].append(token)
                pending[i] = [token]
            step += 1
    assert said == expected


def test_language_from_the_prompt_itself(case):
    """Without a prompt of its own, a request starts from the prefix's last position."""
    expected = case.plain.say(case.prefix, case.valid, [], 4)
    strip, tail, said = case.strip(), case.tail(), []
    with torch.inference_mode():
        logits = case.model.backbone.logits(case.model.backbone.prefill(case.x, strip, hidden="last"))
        for _ in range(4):
            said.append(int(logits.argmax()))
            logits = case.model.advance(torch.tensor(said[-1:]), [Continuation(strip, tail, 1)])
    assert said == expected


def test_denoising_leaves_the_prefix_as_it_is(case):
    strip = case.strip()
    with torch.inference_mode():
        case.model.backbone.prefill(case.x, strip)
        before = [tuple(t.clone() for t in strip.prefix(i)) for i in range(case.model.config.backbone.depth)]
        case.model.denoise(case.noise, strip, case.model.plan(STEPS))
    for layer, (key, value) in enumerate(before):
        assert torch.equal(strip.prefix(layer)[0], key) and torch.equal(strip.prefix(layer)[1], value)


def test_what_does_not_fit_is_refused(case):
    with torch.inference_mode():
        with pytest.raises(ValueError, match="a prefix of 65 tokens does not fit a KV slot of 64"):
            case.model.backbone.prefill(torch.zeros(65, case.model.config.backbone.width), case.strip())
        strip, tail = case.strip(), case.tail(room=2)
        case.model.backbone.prefill(case.x, strip)
        with pytest.raises(ValueError, match="3 more tokens do not fit a language tail of 2 that holds 0"):
            case.model.advance(torch.tensor([1, 2, 3]), [Continuation(strip, tail, 3)])
        with pytest.raises(ValueError, match=r"images have shape \[1, 3, 8, 8\]"):
            case.model.vision(torch.zeros(1, 3, 8, 8))


def test_flow_times():
    assert flow_times(4) == [1.0, 0.75, 0.5, 0.25]
    exact, accumulated = flow_times(10), flow_times(10, accumulated=True)
    assert len(accumulated) == 10 and exact != accumulated  # float32 sums of -0.1 drift
    assert max(abs(a - b) for a, b in zip(exact, accumulated)) < 1e-6
    with pytest.raises(ValueError, match="at least 1, not 0"):
        flow_times(0)


def test_presets_are_the_documented_sizes():
    with torch.device("meta"):
        from oxygen_ros.pi05.model import Pi05

        real = Pi05(PRESETS["pi05"])
    shapes = {name: tuple(p.shape) for name, p in real.named_parameters()}
    assert shapes["backbone.embedding"] == (257152, 2048)
    assert shapes["backbone.layers.17.attention.qkv.weight"] == ((8 + 2) * 256, 2048)
    assert shapes["expert.layers.17.norm2.dense.weight"] == (3 * 1024, 1024)
    assert shapes["vision.blocks.26.fc1.weight"] == (4304, 1152)
    # pi05.md section 10.2, less the two tied or unused 257152-row heads.
    assert sum(p.numel() for p in real.parameters()) == pytest.approx(3.35e9, rel=0.02)


def test_config_round_trip_and_refusals():
    config = PRESETS["mid"]
    assert Pi05Config.from_dict(config.to_dict()) == config
    with pytest.raises(ValueError, match="head_dim is 64 and 32"):
        Pi05Config(
            vision=config.vision,
            backbone=config.backbone,
            expert=TransformerConfig(256, 8, 1024, num_heads=8, num_kv_heads=1, head_dim=32),
        )


@pytest.mark.parametrize("name, kept", [
    ("vision.patch_embedding.weight", True), ("vision.position_embedding", True),
    ("vision.blocks.0.norm1.weight", False),
    ("backbone.layers.2.norm1.weight", True), ("backbone.norm.weight", True), ("backbone.embedding", False),
    ("backbone.layers.2.attention.qkv.weight", False), ("expert.layers.0.norm2.dense.bias", True),
    ("expert.norm.dense.weight", True), ("expert.action_out.weight", True), ("expert.time_in.bias", True),
    ("expert.layers.0.mlp.down.weight", False), ("vision.projector.weight", False),
])
def test_float32_islands_of_bfloat16(case, name, kept):
    """pi05.md section 11."""
    expected = torch.float32 if kept else torch.bfloat16
    assert case.model.precision_of(name, torch.bfloat16) is expected
