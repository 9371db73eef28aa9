"""Every mode says the same; they differ in time and memory only."""

import random

import pytest
import torch

from oxygen_ros.engine.baselines import MODES
from oxygen_ros.engine.engine import EngineSettings, FrameError
from oxygen_ros.engine.observation import Observation
from oxygen_ros.engine.outputs import Actions, FinishReason, FrameStats, Token
from oxygen_ros.engine.request import LanguageRequest


def engine_for(mode, model, **changes):
    settings = {"denoise_steps": 3, "slots": 10, "max_requests": 8, "max_language_tokens": 24, "steps_per_frame": 2}
    return MODES[mode](model, EngineSettings(**{**settings, **changes}))


def drive(engine, observe, frames=50):
    """Chunks, and texts by request, of frames with requests that come at random; the same for every engine."""
    rng = random.Random(7)
    chunks, texts, stats = [], {}, []
    for frame in range(frames):
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            prompt = tuple(rng.randrange(4, 97) for _ in range(rng.choice((0, 0, 1, 4))))
            engine.submit(LanguageRequest(len(texts), prompt, max_tokens=rng.randint(1, 3), end_tokens=()))
            texts[len(texts)] = []
        for output in engine.frame(observe(frame, cameras=rng.choice((1, 2, 3)))):
            if isinstance(output, Actions):
                chunks.append(output.actions)
            elif isinstance(output, Token):
                texts[output.request_id].append((output.token_id, output.stamp_ns, output.finish_reason))
            else:
                stats.append(output)
    while any(text[-1][2] is FinishReason.NONE for text in texts.values() if text):
        for output in engine.language():
            if isinstance(output, Token):
                texts[output.request_id].append((output.token_id, output.stamp_ns, output.finish_reason))
    return torch.stack(chunks), texts, stats


@pytest.fixture(scope="module")
def expected(model):
    return {}


@pytest.mark.parametrize(("network", "way"), [
    ("model", {}), ("model", {"padded": True}), ("model", {"fixed_shapes": True}), ("packed", {}),
    ("packed", {"padded": True}),
], ids=["", "padded", "fixed shapes", "compiled", "compiled, padded"])
@pytest.mark.parametrize("mode", MODES)
def test_fifty_frames_are_the_same_in_every_mode(request, model, observe, mode, network, way, expected):
    if not expected:
        expected["oxygen"] = drive(engine_for("oxygen", model), observe)
    actions, texts, stats = drive(engine_for(mode, request.getfixturevalue(network), **way), observe)
    torch.testing.assert_close(actions, expected["oxygen"][0], atol=1e-5, rtol=0)
    assert texts == expected["oxygen"][1]
    assert sum(len(text) for text in texts.values()) > 50
    assert mode == "oxygen" or stats[-1].slots_used == 0


@pytest.mark.parametrize(("mode", "prefills"), [
    ("isolated_sequential", 3), ("isolated_parallel", 3), ("shared_kv", 1), ("oxygen", 1),
])
def test_what_a_frame_computes(model, observe, mode, prefills):
    engine, observation = engine_for(mode, model), observe(0)
    for request in range(2):
        engine.submit(LanguageRequest(request, (5, 6), max_tokens=4, end_tokens=()))
    stats = list(engine.frame(observation))[-1]
    prefix = 2 * 4 + len(observation.tokens)
    assert isinstance(stats, FrameStats)
    assert stats.prefix_tokens == prefills * prefix
    assert stats.active_requests == (2 if mode == "oxygen" else 0)
    assert stats.tokens == (4 if mode == "oxygen" else 8)
    assert stats.decode_steps == {"shared_kv": 4, "oxygen": 2}.get(mode, 8)


@pytest.mark.parametrize("mode", MODES)
def test_padding_is_computed(model, observe, mode):
    observation = observe(0)
    stats = list(engine_for(mode, model, padded=True).frame(observation))[-1]
    assert stats.prefix_tokens == 3 * 4 + 16


@pytest.mark.parametrize("mode", MODES)
def test_a_failure_ends_the_frame_and_its_requests_only(model, observe, mode):
    engine = engine_for(mode, model)
    engine.submit(LanguageRequest(1, (5,), max_tokens=2, end_tokens=()))
    tokens = []
    with pytest.raises(FrameError, match="prefill failed"):
        for output in engine.frame(Observation(observe(0).images, torch.full((40,), 5))):
            tokens.append(output)
    assert [(t.request_id, t.finish_reason) for t in tokens] == [(1, FinishReason.ERROR)]
    outputs = list(engine.frame(observe(1)))
    assert isinstance(outputs[0], Actions) and outputs[-1].slots_used == 0


@pytest.mark.parametrize("mode", MODES)
def test_an_abandoned_frame_leaks_nothing(model, observe, mode):
    engine = engine_for(mode, model, steps_per_frame=None)
    engine.submit(LanguageRequest(1, (5,), max_tokens=3, end_tokens=()))
    next(engine.frame(observe(0)))
    stats = list(engine.frame(observe(1)))[-1]
    assert (stats.slots_used, stats.active_requests, stats.waiting_requests) == (0, 0, 0)
    engine.submit(LanguageRequest(1, (5,), max_tokens=3, end_tokens=()))


@pytest.mark.parametrize("mode", ["isolated_sequential", "shared_kv"])
def test_cancel_in_the_midst_of_a_frame_ends_a_request_once(model, observe, mode):
    """The second request is cancelled while the first is answered, whether it has begun or not."""
    engine = engine_for(mode, model)
    for request in (1, 2):
        engine.submit(LanguageRequest(request, (5,), max_tokens=3, end_tokens=()))
    tokens = []
    for output in engine.frame(observe(0)):
        if isinstance(output, Token):
            tokens.append(output)
            if len(tokens) == 1:
                assert engine.cancel(2)
    ends = [(t.request_id, t.finish_reason) for t in tokens if t.last]
    assert sorted(ends, key=lambda end: end[0]) == [(1, FinishReason.LENGTH), (2, FinishReason.CANCELLED)]
    assert list(engine.frame(observe(1)))[-1].slots_used == 0


@pytest.mark.parametrize("mode", MODES)
def test_warm_up_and_drain(model, mode):
    engine = engine_for(mode, model)
    engine.warm_up()
    assert engine.drain() == []
