"""The engine: actions first and exact, language that does not depend on its company, nothing lost, nothing leaked."""

import random
import time
from dataclasses import replace

import pytest
import torch

from oxygen_ros.engine.engine import Engine, EngineSettings, FrameError
from oxygen_ros.engine.observation import Observation
from oxygen_ros.engine.outputs import Actions, FinishReason, FrameStats, Task, Token
from oxygen_ros.engine.request import LanguageRequest, RequestError, RunningRequest
from oxygen_ros.pi05.backbone import Continuation
from oxygen_ros.pi05.cache import Strip, Tail
from oxygen_ros.pi05.rtc import Guidance

STEPS = 3


@pytest.fixture(params=[False, True], ids=["", "fixed shapes"])
def engine_for(request):
    def make(model, **changes):
        settings = {"denoise_steps": STEPS, "cameras": 3, "slots": 4, "max_requests": 3, "max_language_tokens": 24}
        return Engine(model, EngineSettings(fixed_shapes=request.param, **settings | changes))

    return make


def ask(request_id, prompt=(5, 6, 7), max_tokens=6, **options):
    return LanguageRequest(request_id, tuple(prompt), max_tokens, **{"end_tokens": (), **options})


def alone(model, observation, prompt=(), count=0):
    """(actions, greedy tokens) of one observation, straight from the network, on memory of its own."""
    c = model.config
    shape = (c.backbone.depth, 2, c.backbone.num_kv_heads)
    strip = Strip(torch.zeros(*shape, c.action_horizon + 64, c.backbone.head_dim), c.action_horizon)
    tail = Tail(torch.zeros(*shape, 64, c.backbone.head_dim))
    pixels = observation.images.permute(0, 3, 1, 2).float() / 255 * 2 - 1
    said, pending = [], list(prompt)
    with torch.inference_mode():
        hidden = model.backbone.prefill(model.embed_prefix(pixels, observation.tokens), strip, hidden="last")
        actions = model.denoise(observation.noise, strip, model.plan(STEPS))
        while len(said) < count:
            if pending:
                logits = model.advance(torch.tensor(pending), [Continuation(strip, tail, len(pending))])
            else:
                logits = model.backbone.logits(hidden)
            said.append(int(logits.argmax()))
            pending = said[-1:]
    return actions, said


def texts(tokens):
    said = {}
    for token in tokens:
        if token.token_id >= 0:
            assert token.index == len(said.setdefault(token.request_id, []))
            said[token.request_id].append(token.token_id)
    return said


def test_order_and_values_of_one_frame(engine_for, model, observe):
    engine, observation = engine_for(model), observe(1)
    engine.submit(ask(7, max_tokens=4))
    outputs = list(engine.frame(observation))
    actions, expected = alone(model, observation, (5, 6, 7), 4)
    assert [type(o) for o in outputs] == [Actions, Token, Token, Token, Token, FrameStats]
    torch.testing.assert_close(outputs[0].actions, actions, atol=1e-6, rtol=0)
    assert texts(outputs[1:5]) == {7: expected}
    assert [t.last for t in outputs[1:5]] == [False, False, False, True]
    assert outputs[4].finish_reason is FinishReason.LENGTH
    assert {o.stamp_ns for o in outputs[:5]} == {1001}
    stats = outputs[-1]
    assert (stats.decode_steps, stats.tokens, stats.active_requests, stats.slots_used) == (4, 4, 0, 0)
    assert stats.prefix_tokens == 2 * 4 + len(observation.tokens)


def test_the_chunk_leaves_before_language_is_computed(engine_for, model, observe, monkeypatch):
    engine = engine_for(model)
    engine.submit(ask(1))
    monkeypatch.setattr(model, "advance", lambda *_: pytest.fail("language was decoded before the chunk was taken"))
    stream = engine.frame(observe(2))
    assert isinstance(next(stream), Actions)
    stream.close()


def test_fifty_frames_with_requests_that_come_at_random(engine_for, model, observe):
    """Actions are those of each observation alone; each request says what it would say alone, from its own frame."""
    rng = random.Random(4)
    engine = engine_for(model, steps_per_frame=2, max_waiting=100)
    observations, requests, joined, tokens = {}, {}, {}, []
    for index in range(50):
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            prompt = [rng.randrange(4, 90) for _ in range(rng.randrange(0, 5))]
            request = ask(len(requests), prompt, rng.randrange(1, 9))
            requests[request.request_id] = request
            engine.submit(request)
        observation = observations[1000 + index] = observe(index, cameras=rng.choice((1, 2, 3)))
        outputs = list(engine.frame(observation))
        torch.testing.assert_close(outputs[0].actions, alone(model, observation)[0], atol=1e-5, rtol=0)
        tokens += [o for o in outputs if isinstance(o, Token)]
    while outputs[-1].active_requests or outputs[-1].waiting_requests:
        index += 1
        observation = observations[1000 + index] = observe(index)
        outputs = list(engine.frame(observation))
        tokens += [o for o in outputs if isinstance(o, Token)]
    for token in tokens:
        joined.setdefault(token.request_id, token.stamp_ns)
        assert joined[token.request_id] == token.stamp_ns  # it answers from one observation to its end
    assert len(requests) >= 30
    expected = {i: alone(model, observations[joined[i]], r.prompt, r.max_tokens)[1] for i, r in requests.items()}
    assert texts(tokens) == expected
    assert outputs[-1].slots_used == 0


def test_end_of_text_is_said_and_ends(engine_for, model, observe):
    _, said = alone(model, observe(3), (5, 6, 7), 6)
    end = said[2]
    engine = engine_for(model)
    engine.submit(ask(1, end_tokens=(end,)))
    tokens = [o for o in engine.frame(observe(3)) if isinstance(o, Token)]
    assert [t.token_id for t in tokens] == said[: said.index(end) + 1]
    assert tokens[-1].finish_reason is FinishReason.END_OF_TEXT and tokens[-1].last


def test_sampling_depends_on_the_seed_alone(engine_for, model, observe):
    def sampled(seed, company):
        engine = engine_for(model)
        for i in range(company):
            engine.submit(ask(100 + i, (8 + i,), 6, temperature=1.0))
        engine.submit(ask(1, temperature=1.0, seed=seed))
        return texts(o for o in engine.frame(observe(4)) if isinstance(o, Token))[1]

    assert sampled(3, company=0) == sampled(3, company=2)
    assert len({tuple(sampled(seed, 0)) for seed in range(5)}) > 1


def test_top_p_draws_from_the_likeliest_only(engine_for, model, observe):
    """A nucleus of next to nothing is greedy; one of everything is what there was without it."""

    def sampled(seed, **options):
        engine = engine_for(model)
        engine.submit(ask(1, temperature=2.0, seed=seed, **options))
        return texts(o for o in engine.frame(observe(4)) if isinstance(o, Token))[1]

    greedy = alone(model, observe(4), (5, 6, 7), 6)[1]
    assert all(sampled(seed, top_p=1e-6) == greedy for seed in range(3))
    assert sampled(1, top_p=1.0) == sampled(1) != greedy


def test_top_p_keeps_what_completes_it(model):
    """0.5, 0.3, 0.2: a nucleus of 0.6 is the first two, of 0.5 the first alone."""
    logits = torch.tensor([0.2, 0.5, 0.3]).log()
    for top_p, expected in ((0.45, {1}), (0.6, {1, 2}), (0.81, {0, 1, 2})):
        running = RunningRequest(ask(1, temperature=1.0, seed=0, top_p=top_p), None, None, 0, None)
        assert {running.sample(logits) for _ in range(200)} == expected


def test_the_text_ends_where_the_request_says(engine_for, model, observe):
    _, said = alone(model, observe(3), (5, 6, 7), 6)
    heard = []
    engine = engine_for(model)
    engine.submit(ask(1, ends=lambda ids: heard.append(list(ids)) or len(ids) == 3))
    tokens = [o for o in engine.frame(observe(3)) if isinstance(o, Token)]
    assert [t.token_id for t in tokens] == said[:3] and heard == [said[:1], said[:2], said[:3]]
    assert tokens[-1].finish_reason is FinishReason.END_OF_TEXT and tokens[-1].last


def test_steps_per_frame_and_a_deadline_that_has_passed(engine_for, model, observe):
    engine = engine_for(model, steps_per_frame=2)
    engine.submit(ask(1, max_tokens=6))
    first = list(engine.frame(observe(5)))
    late = list(engine.frame(observe(6), deadline=time.monotonic() - 1.0))
    assert [type(o) for o in late] == [Actions, FrameStats]  # the machine is late: language waits, actions do not
    assert late[-1].slack < 0 and late[-1].active_requests == 1
    rest = list(engine.frame(observe(7))) + list(engine.language())
    tokens = [o for outputs in (first, rest) for o in outputs if isinstance(o, Token)]
    assert [o.decode_steps for o in (first[-1], late[-1])] == [2, 0]
    assert texts(tokens) == {1: alone(model, observe(5), (5, 6, 7), 6)[1]}


def test_a_full_pool_never_stalls_actions(engine_for, model, observe):
    """Two slots: one request may live at a time, the others wait in order of priority; every frame has its chunk."""
    engine = engine_for(model, slots=2, steps_per_frame=1, max_requests=3)
    finished = []
    engine.submit(ask(1, max_tokens=3))
    outputs = list(engine.frame(observe(0)))
    for i, priority in ((2, 0), (3, 5), (4, 0)):
        engine.submit(ask(i, max_tokens=1, priority=priority))
    for index in range(1, 12):
        assert outputs[-1].slots_used <= 1
        outputs = list(engine.frame(observe(index)))
        assert isinstance(outputs[0], Actions)
        finished += [o.request_id for o in outputs if isinstance(o, Token) and o.last]
    assert finished == [1, 3, 2, 4]


def test_requests_of_one_frame_share_its_slot(engine_for, model, observe):
    engine = engine_for(model, steps_per_frame=1)
    for i in range(3):
        engine.submit(ask(i, prompt=(5 + i,)))
    stats = list(engine.frame(observe(8)))[-1]
    assert (stats.active_requests, stats.slots_used) == (3, 1)


def test_cancel_waiting_and_running(engine_for, model, observe):
    engine = engine_for(model, steps_per_frame=1, max_requests=1)
    for i in (1, 2):
        engine.submit(ask(i))
    list(engine.frame(observe(1)))
    assert engine.cancel(1) and engine.cancel(2) and not engine.cancel(9)
    tokens = [o for o in engine.frame(observe(2)) if isinstance(o, Token)]
    assert {(t.request_id, t.finish_reason, t.last, t.token_id) for t in tokens} == {
        (1, FinishReason.CANCELLED, True, -1), (2, FinishReason.CANCELLED, True, -1)
    }
    assert list(engine.frame(observe(3)))[-1].slots_used == 0
    engine.submit(ask(1))  # the id is free again


def test_refused_requests(engine_for, model):
    engine = engine_for(model, max_waiting=2)
    with pytest.raises(RequestError, match="20 prompt tokens and 6 new ones are 26, one request has room for 24"):
        engine.submit(ask(1, prompt=range(4, 24)))
    engine.submit(ask(1))
    with pytest.raises(RequestError, match="request 1 is still being answered"):
        engine.submit(ask(1))
    engine.submit(ask(2))
    with pytest.raises(RequestError, match="2 requests are waiting already"):
        engine.submit(ask(3))
    with pytest.raises(RequestError, match="max_tokens is 0"):
        ask(4, max_tokens=0)


@pytest.mark.parametrize("stage", ["prefill", "denoise", "decode"])
def test_a_frame_that_fails_ends_its_requests_and_nothing_else(engine_for, model, observe, monkeypatch, stage):
    engine = engine_for(model, steps_per_frame=1)
    engine.submit(ask(1, max_tokens=9))
    list(engine.frame(observe(0)))
    engine.submit(ask(2))

    def out_of_memory(*_, **__):
        raise torch.OutOfMemoryError("out of memory")

    owner, name = {
        "prefill": (model.backbone, "fill"),
        "denoise": (model.expert, "velocity"),
        "decode": (model.backbone, "logits"),
    }[stage]
    tokens = []
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, out_of_memory)
        with pytest.raises(FrameError, match=f"{stage} failed: out of memory") as failure:
            for output in engine.frame(observe(1)):
                tokens += [output] if isinstance(output, Token) else []
    assert failure.value.stage == stage
    ended = {t.request_id: t for t in tokens}
    assert set(ended) == ({1, 2} if stage == "decode" else {2})
    assert all(t.last and t.finish_reason is FinishReason.ERROR and "out of memory" in t.detail for t in tokens)
    outputs = list(engine.frame(observe(2)))
    torch.testing.assert_close(outputs[0].actions, alone(model, observe(2))[0], atol=1e-6, rtol=0)
    outputs = list(engine.language()) or outputs
    while outputs[-1].active_requests:
        outputs = list(engine.language())
    assert outputs[-1].slots_used == 0


def test_actions_that_are_not_finite_are_no_chunk(engine_for, model, observe):
    observation = observe(1)
    noise = observation.noise.clone()
    noise[0, 0] = float("nan")
    outputs = []
    with pytest.raises(FrameError, match="denoise failed: the actions hold NaN"):
        for output in engine_for(model).frame(Observation(observation.images, observation.tokens, noise=noise)):
            outputs.append(output)
    assert outputs == []


def test_a_prompt_too_long_for_a_slot_fails_that_frame_only(engine_for, model, observe):
    engine, observation = engine_for(model), observe(1)
    with pytest.raises(FrameError, match="prefill failed: a prefix of 48 tokens does not fit a KV slot of 28"):
        list(engine.frame(Observation(observation.images, torch.full((40,), 5))))
    assert isinstance(list(engine.frame(observation))[0], Actions)


def test_a_consumer_that_walks_away_leaks_nothing(engine_for, model, observe):
    engine = engine_for(model, steps_per_frame=1)
    engine.submit(ask(1))
    stream = engine.frame(observe(1))
    next(stream)
    stream.close()
    assert [t.request_id for t in engine.drain("done")] == [1]
    assert list(engine.frame(observe(2)))[-1].slots_used == 0


def test_drain_and_warm_up(engine_for, model, observe):
    engine = engine_for(model, steps_per_frame=1, seed=1)
    engine.warm_up()
    engine.submit(ask(1))
    list(engine.frame(observe(1)))
    engine.submit(ask(2))
    tokens = engine.drain("the node was deactivated")
    assert [(t.request_id, t.finish_reason, t.detail) for t in tokens] == [
        (1, FinishReason.CANCELLED, "the node was deactivated"), (2, FinishReason.CANCELLED, "the node was deactivated")
    ]
    assert tokens[0].index == 1 and tokens[0].stamp_ns == 1001 and tokens[1].stamp_ns == 0
    assert list(engine.frame(observe(2)))[-1].slots_used == 0


def test_noise(engine_for, model, observe):
    def chunk(engine, seed=1):
        o = observe(seed)
        return next(engine.frame(Observation(o.images, o.tokens))).actions

    assert torch.equal(chunk(engine_for(model, seed=5)), chunk(engine_for(model, seed=5)))
    free, fixed = engine_for(model, seed=5), engine_for(model, seed=5, fixed_noise=True)
    assert not torch.equal(chunk(free), chunk(free))
    first = chunk(fixed)
    assert torch.equal(chunk(fixed), first) and not torch.equal(chunk(fixed, seed=2), first)


def test_actions_join_what_the_observation_says_they_are_to_join(engine_for, model, observe):
    observation, engine = observe(4), engine_for(model)
    plain = next(engine.frame(observation)).actions
    leftover = plain[2:] + 0.5
    guided = next(engine.frame(replace(observation, guidance=Guidance(leftover, 2, 2, max_weight=STEPS)))).actions
    assert (guided[:2] - leftover[:2]).abs().max() < 0.1 * (plain[:2] - leftover[:2]).abs().max()


def test_float_pictures_are_taken_as_they_are(engine_for, model, observe):
    observation = observe(1)
    floats = observation.images.permute(0, 3, 1, 2).float() / 255 * 2 - 1
    engine = engine_for(model)
    expected = next(engine.frame(observation)).actions
    found = next(engine.frame(Observation(floats, observation.tokens, noise=observation.noise))).actions
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_task_of_a_request_comes_back(engine_for, model, observe):
    engine = engine_for(model)
    engine.submit(ask(1, max_tokens=1, task=Task.REMEMBER))
    assert [o.task for o in engine.frame(observe(1)) if isinstance(o, Token)] == [Task.REMEMBER]


def test_however_small_a_temperature_is_greedy(engine_for, model, observe):
    engine = engine_for(model)
    engine.submit(ask(1, temperature=1e-40))
    said = texts(o for o in engine.frame(observe(4)) if isinstance(o, Token))
    assert said[1] == alone(model, observe(4), (5, 6, 7), 6)[1]
