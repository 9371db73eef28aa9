"""What only passes of fixed shapes could get wrong: memory that several frames and requests write to."""

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from oxygen_ros.engine.engine import Engine, EngineSettings, FrameError
from oxygen_ros.engine.fixed_passes import BUCKET, FixedPasses, Graphs
from oxygen_ros.engine.kv_pool import KVPool
from oxygen_ros.engine.outputs import Actions, Token
from oxygen_ros.engine.passes import Passes
from oxygen_ros.engine.request import LanguageRequest, RunningRequest
from oxygen_ros.pi05 import native
from oxygen_ros.pi05.config import PRESETS
from oxygen_ros.pi05.random_weights import random_model

HOW = dict(denoise_steps=2, accumulated_time=False, text_attention="bidirectional", cameras=3, seed=0, fixed_noise=True)


def running(passes, pool, observe, count):
    """Requests on frames of their own, each with a prompt of its own."""
    made = []
    for number in range(count):
        slot, observation = pool.take_slot(), observe(number)
        passes.prefill(observation, passes.see(observation), slot, wants_hidden=False)
        request = LanguageRequest(number, tuple(range(5, 7 + number)), 100, end_tokens=())
        made.append(RunningRequest(request, slot, pool.take_tail(), 0, None))
    return made


def test_who_waits_loses_nothing_while_others_go_on(model, observe):
    """Steps over a part of the requests, as under pressure; each says what the plain passes let it say."""
    pools = [KVPool(model.config, slots=6, requests=4, cameras=3, max_tail=12, device=model.device, dtype=model.dtype)
             for _ in range(2)]
    plain, fixed = Passes(model, padded=False, **HOW), FixedPasses(model, pools[1], **HOW)
    theirs, ours = running(plain, pools[0], observe, 4), running(fixed, pools[1], observe, 4)
    for batch in ((0, 1, 2, 3), (0,), (2, 1), (3,), (1, 0), (3, 2, 1, 0), (0,), (3,)):
        expected = plain.step([theirs[i] for i in batch])
        said = fixed.step([ours[i] for i in batch])
        assert [token.token_id for token in said] == [token.token_id for token in expected]
    assert [len(r.said) for r in ours] == [5, 4, 3, 4]
    assert [r.tail.length for r in ours] == [r.tail.length for r in theirs]


@pytest.mark.parametrize("vocab_size", [1024, 1023], ids=["all of it", "its expert alone"])
def test_a_network_for_the_compiled_code_is_refused(vocab_size):
    packed = random_model(replace(PRESETS["tiny"], vocab_size=vocab_size), 0)
    packed.pack()
    pool = KVPool(packed.config, slots=4, requests=2, cameras=3, max_tail=4, device=packed.device, dtype=packed.dtype)
    with pytest.raises(ValueError, match="packed for a CPU's compiled code has no passes of fixed shapes; leave"):
        FixedPasses(packed, pool, **HOW)


def test_a_tail_that_is_full_is_an_error_and_stays_whole(model, observe):
    pool = KVPool(model.config, slots=4, requests=2, cameras=3, max_tail=4, device=model.device, dtype=model.dtype)
    fixed = FixedPasses(model, pool, **HOW)
    full, other = running(fixed, pool, observe, 2)
    for _ in range(3):
        fixed.step([full])
    with pytest.raises(ValueError, match="1 more tokens do not fit a language tail of 4 that holds 4"):
        fixed.step([full])
    kept = pool.tails[full.tail.index].clone()
    fixed.step([other])
    assert torch.equal(pool.tails[full.tail.index, ..., :3, :], kept[..., :3, :])


def test_a_broken_frame_leaves_nothing_in_what_later_frames_hide(model, observe):
    engine = Engine(model, EngineSettings(denoise_steps=2, slots=2, max_requests=1, fixed_shapes=True))
    plain = Engine(model, EngineSettings(denoise_steps=2, slots=2, max_requests=1, fixed_shapes=False))
    broken = replace(observe(1, cameras=3), images=torch.full((3, 3, 28, 28), torch.nan))
    for _ in range(2):  # as many as there are slots
        with pytest.raises(FrameError, match="not finite|NaN"):
            list(engine.frame(broken))
    for seed in (2, 3):
        for one in (engine, plain):
            one.submit(LanguageRequest(seed, (5, 6), 4, end_tokens=()))
        ours, theirs = (list(one.frame(observe(seed, cameras=1))) for one in (engine, plain))
        torch.testing.assert_close(ours[0].actions, theirs[0].actions, atol=1e-5, rtol=0)
        said = [[output.token_id for output in outputs if isinstance(output, Token)] for outputs in (ours, theirs)]
        assert said[0] == said[1] and len(said[0]) == 4


def test_prompts_about_the_size_of_a_bucket(model, observe):
    config = replace(model.config, max_token_len=2 * BUCKET + 5)
    model = random_model(config, seed=3)
    engine = Engine(model, EngineSettings(denoise_steps=2, fixed_shapes=True))
    plain = Engine(model, EngineSettings(denoise_steps=2, fixed_shapes=False))
    for length in (1, BUCKET - 1, BUCKET, BUCKET + 1, 2 * BUCKET, 2 * BUCKET + 1, config.max_token_len):
        seen = replace(observe(length), tokens=torch.arange(length) % 90 + 4)
        ours, theirs = (next(one.frame(seen)) for one in (engine, plain))
        assert isinstance(ours, Actions)
        torch.testing.assert_close(ours.actions, theirs.actions, atol=1e-5, rtol=0)


def test_more_pictures_than_cameras(model, observe):
    engine = Engine(model, EngineSettings(cameras=2, fixed_shapes=True))
    with pytest.raises(FrameError, match="3 images are more than the 2 cameras"):
        list(engine.frame(observe(0, cameras=3)))
    assert isinstance(next(engine.frame(observe(0, cameras=2))), Actions)


@pytest.mark.parametrize("fixed_shapes", [False, True], ids=["", "fixed shapes"])
def test_bfloat16_is_near_float32(model, observe, fixed_shapes):
    """What a GPU computes in, with the parts that stay float32: actions to the precision of bfloat16, and some text."""
    exact, coarse = random_model(model.config, seed=3), random_model(model.config, seed=3)
    for name, parameter in coarse.named_parameters():
        parameter.data = parameter.data.to(coarse.precision_of(name, torch.bfloat16))
    settings = EngineSettings(denoise_steps=4, fixed_shapes=fixed_shapes)
    for seed in range(3):
        frames = []
        for network in (exact, coarse):
            engine = Engine(network, settings)
            engine.submit(LanguageRequest(seed, (5, 6, 7), 5, end_tokens=()))
            frames.append(list(engine.frame(observe(seed))))
        torch.testing.assert_close(frames[1][0].actions, frames[0][0].actions, atol=0.1, rtol=0)
        assert not torch.equal(frames[1][0].actions, frames[0][0].actions)
        assert sum(isinstance(output, Token) for output in frames[1]) == 5


class NoHost(TorchDispatchMode):
    """Refuses what a CUDA graph cannot hold: a value read by the host or made by it, a shape that depends on values."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        assert name not in {"_local_scalar_dense", "nonzero", "masked_select", "unique", "lift_fresh", "equal"}, name
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("text_attention", ["bidirectional", "causal"])
def test_what_is_recorded_asks_the_host_for_nothing(model, observe, monkeypatch, text_attention):
    run, keys = Graphs.run, set()

    def watched(graphs, key, work):
        keys.add(key[0])
        with NoHost():
            run(graphs, key, work)

    monkeypatch.setattr(Graphs, "run", watched)
    engine = Engine(model, EngineSettings(denoise_steps=2, text_attention=text_attention, fixed_shapes=True))
    for seed in range(3):
        engine.submit(LanguageRequest(seed, (5, 6, 7), 5, end_tokens=(), prefix="own" if seed == 1 else "shared"))
        list(engine.frame(observe(seed)))
    assert keys == {"see", "prefill", "velocity", "step"}


class Recorder(TorchDispatchMode):
    """Operations and the tensors that they ran on."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out

    def replay(self):
        made = {}
        for func, args, kwargs, out in self.calls:
            args, kwargs = tree_map(lambda value: made.get(id(value), value), (args, kwargs))
            again = func(*args, **kwargs)
            made |= {id(old): new for old, new in zip(tree_leaves(out), tree_leaves(again))}


@pytest.mark.parametrize("text_attention", ["bidirectional", "causal"])
def test_what_is_replayed_is_what_was_recorded(model, observe, monkeypatch, text_attention):
    """As a CUDA graph does it: the operations of the first time, on the tensors of the first time, and no Python."""

    def run(graphs, key, work):
        if key in graphs._replay:
            graphs._replay[key]()
        else:
            with Recorder() as recorder:
                work()
            graphs._replay[key] = recorder.replay

    monkeypatch.setattr(Graphs, "run", run)
    monkeypatch.setattr(native, "can_run", lambda x: False)  # no operation of torch's: it would not be recorded
    settings = EngineSettings(
        denoise_steps=2, text_attention=text_attention, slots=3, max_requests=2, steps_per_frame=2
    )
    recorded, plain = (Engine(model, replace(settings, fixed_shapes=fixed)) for fixed in (True, False))
    for seed in range(8):
        outputs = []
        for engine in (recorded, plain):
            if seed < 5:
                engine.submit(LanguageRequest(seed, (5, 6, 7)[seed % 3 :], 5, end_tokens=()))
            outputs.append(list(engine.frame(observe(seed, cameras=2 + seed % 2))))
        torch.testing.assert_close(outputs[0][0].actions, outputs[1][0].actions, atol=1e-5, rtol=0)
        said = [[(o.request_id, o.token_id) for o in frame if isinstance(o, Token)] for frame in outputs]
        assert said[0] == said[1]
    assert len(recorded._passes._graphs._replay) < 20  # of 8 frames, 2 steps each and 16 velocities


@torch.inference_mode()
def test_all_that_is_recorded_lies_on_the_networks_device(model, observe):
    """On torch's meta device: an operation that took a tensor from another one would be refused."""
    meta = torch.device("meta")
    network = random_model(model.config, seed=3).to(meta)
    pool = KVPool(model.config, slots=3, requests=2, cameras=3, max_tail=12, device=meta, dtype=network.dtype)
    for table in (network.backbone.rotary, network.expert.rotary):
        table.span(0, pool.max_prefix + 12, meta)
    for text_attention in ("bidirectional", "causal"):
        passes = FixedPasses(network, pool, **HOW | {"text_attention": text_attention})
        slot, observation = pool.take_slot(), observe(1)
        hidden = passes.prefill(observation, passes.see(observation), slot, wants_hidden=True)
        assert hidden.device == passes._denoise(observation.noise.to(meta), slot, None).device == meta
        passes._step()
        assert passes._logits.device == meta
        pool.release(slot)
