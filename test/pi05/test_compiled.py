"""The compiled layers against the same ones as torch computes them, on every instruction set there is here."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from oxygen_ros.pi05.backbone import Backbone, Continuation
from oxygen_ros.pi05.cache import Strip, Tail
from oxygen_ros.pi05.compiled import CompiledTransformer
from oxygen_ros.pi05.config import PRESETS, Pi05Config
from oxygen_ros.pi05.expert import ActionExpert
from oxygen_ros.pi05.flow import euler, flow_times
from oxygen_ros.pi05.random_weights import random_model

SHAPES = {
    # width, depth, mlp_dim, heads, kv_heads, head_dim
    "one key/value head": (64, 3, 96, 8, 1, 32),
    "two of four queries": (48, 2, 112, 8, 2, 16),
    "a head for each": (16, 1, 16, 3, 3, 48),
}


def sized(shape, horizon: int = 50) -> Pi05Config:
    width, depth, mlp_dim, heads, kv_heads, head_dim = shape
    tiny = PRESETS["tiny"]
    sizes = dict(depth=depth, num_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim)
    return replace(
        tiny, action_horizon=horizon, backbone=replace(tiny.backbone, width=width, mlp_dim=mlp_dim, **sizes),
        expert=replace(tiny.expert, width=width, mlp_dim=mlp_dim, **sizes),
    )


def expert_of(config: Pi05Config) -> ActionExpert:
    expert = random_model(config, seed=1).expert
    for norm in (norm for layer in expert.layers for norm in (layer.norm1, layer.norm2)):
        torch.nn.init.normal_(norm.dense.weight, std=0.5, generator=torch.Generator().manual_seed(2))
    return expert


def pair_of(config: Pi05Config) -> tuple[ActionExpert, ActionExpert]:
    """The same expert, as torch computes it and packed."""
    packed = expert_of(config)
    packed.pack()
    return expert_of(config), packed


def noise_of(config: Pi05Config) -> torch.Tensor:
    return torch.randn(config.action_horizon, config.action_dim, generator=torch.Generator().manual_seed(4))


def strip_of(config: Pi05Config, prefix: int, valid: torch.Tensor | None = None) -> Strip:
    """A prefix at random, in a slot with room for more."""
    backbone, generator = config.backbone, torch.Generator().manual_seed(3)
    shape = (backbone.depth, 2, backbone.num_kv_heads, config.action_horizon + prefix + 7, backbone.head_dim)
    strip = Strip(torch.randn(shape, generator=generator), config.action_horizon)
    strip.begin(prefix, valid)
    return strip


@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7, 10, 12, 13, 50])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@torch.inference_mode()
def test_velocities_and_what_they_leave_in_the_cache(generation, threads, shape, rows):
    config = sized(shape, rows)
    expert, packed = pair_of(config)
    assert packed.layers[0].mlp.down.weight is None, "the compiled code has not taken the weights"
    modulation = expert.modulations(torch.tensor(0.7, dtype=torch.float64))
    for prefix in (1, 5, 33):
        actions = noise_of(config)
        theirs, ours = strip_of(config, prefix), strip_of(config, prefix)
        expected = expert.velocity(actions, modulation, theirs)
        torch.testing.assert_close(packed.velocity(actions, modulation, ours), expected, atol=1e-5, rtol=1e-5)
        for layer in range(config.expert.depth):
            torch.testing.assert_close(ours.joint(layer), theirs.joint(layer), atol=1e-5, rtol=1e-5)
        packed.pack()  # once more changes nothing
        torch.testing.assert_close(packed.velocity(actions, modulation, ours), expected, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_all_steps_in_one_call(generation, threads):
    config = sized(SHAPES["one key/value head"], 13)
    expert, packed = pair_of(config)
    noise = noise_of(config)
    kept = noise.clone()
    plan = expert.modulations(torch.tensor(flow_times(7), dtype=torch.float64))
    expected = expert.denoise(noise, plan, strip_of(config, 20))
    strip = strip_of(config, 20)
    torch.testing.assert_close(packed.denoise(noise, plan, strip), expected, atol=1e-5, rtol=1e-5)
    by_velocities = euler(noise, 7, lambda x, step: packed.velocity(x, plan[step], strip))
    torch.testing.assert_close(by_velocities, expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(noise, kept)
    strided = noise.t().contiguous().t()
    torch.testing.assert_close(packed.denoise(strided, plan, strip), expected, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_hidden_positions_and_a_flow_time_for_each_row(generation):
    config = sized(SHAPES["two of four queries"], 10)
    expert, packed = pair_of(config)
    valid = torch.rand(40, generator=torch.Generator().manual_seed(0)) < 0.5
    times = torch.linspace(1, 0, 10, dtype=torch.float64)
    each = expert.modulations(times).permute(1, 2, 0, 3)  # as real-time chunking's trained prefixes hand it over
    actions = noise_of(config)
    expected = expert.velocity(actions, each, strip_of(config, 40, valid))
    hidden = strip_of(config, 40, valid)
    for layer in range(config.expert.depth):
        for part in hidden.prefix(layer):
            part[:, ~valid] = 1e4
    torch.testing.assert_close(packed.velocity(actions, each, hidden), expected, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
@pytest.mark.parametrize("wrong", [(9, 32), (11, 32), (10, 16), (10, 48)], ids=str)
def test_what_would_reach_past_the_memory_is_refused(wrong):
    config = sized(SHAPES["one key/value head"], 10)
    expert, packed = pair_of(config)
    plan = expert.modulations(torch.tensor(flow_times(2), dtype=torch.float64))
    strip = strip_of(config, 20)
    kept = strip.storage.clone()
    with pytest.raises(ValueError, match=r"the strip is for 10|expected torch.float32 \[10, 32\] on cpu"):
        packed.denoise(torch.zeros(wrong), plan, strip)
    with pytest.raises(ValueError, match="torch.float64"):
        packed.denoise(torch.zeros(10, 32, dtype=torch.float64), plan, strip)
    with pytest.raises((ValueError, RuntimeError)):  # torch's own error for a width that its product does not take
        packed.velocity(torch.zeros(wrong), plan[0], strip)
    assert torch.equal(strip.storage, kept)
    of_others = strip_of(sized(SHAPES["two of four queries"], 10), 20)
    with pytest.raises(ValueError, match=r"keys and values: .* expected torch.float32 \[3, 2, 1, 37, 32\] on cpu"):
        packed.denoise(torch.zeros(10, 32), plan, of_others)


@torch.inference_mode()
def test_large_scores_and_what_is_not_a_number(generation):
    config = sized(SHAPES["one key/value head"], 10)
    expert, packed = pair_of(config)
    modulation = expert.modulations(torch.tensor(0.2, dtype=torch.float64))
    actions = noise_of(config)
    theirs, ours = strip_of(config, 20), strip_of(config, 20)
    for strip in (theirs, ours):
        for layer in range(config.expert.depth):
            strip.prefix(layer)[0].mul_(100)  # of some weights nothing is left, and e to the scores is not finite
    expected = expert.velocity(actions, modulation, theirs)
    torch.testing.assert_close(packed.velocity(actions, modulation, ours), expected, atol=1e-3, rtol=0)
    actions[3, 2] = math.nan
    assert packed.velocity(actions, modulation, ours).isnan().all(), "all actions see the broken one"


@pytest.mark.parametrize("field, size", [("width", 72), ("mlp_dim", 100), ("head_dim", 24)])
def test_sizes_without_compiled_code_are_packed_for_torch(field, size):
    config = sized(SHAPES["one key/value head"], 10)
    sizes = {field: size}
    config = replace(config, expert=replace(config.expert, **sizes),
                     backbone=replace(config.backbone, **(sizes if field == "head_dim" else {})))
    expert, packed = pair_of(config)
    packed.pack()
    actions = noise_of(config)
    with torch.inference_mode():
        modulation = expert.modulations(torch.tensor(0.2, dtype=torch.float64))
        expected = expert.velocity(actions, modulation, strip_of(config, 20))
        velocity = packed.velocity(actions, modulation, strip_of(config, 20))
        torch.testing.assert_close(velocity, expected, atol=1e-5, rtol=1e-5)


def backbones_of(config: Pi05Config) -> tuple[Backbone, Backbone]:
    """The same backbone, as torch computes it and packed."""
    packed = random_model(config, seed=1).backbone
    packed.pack()
    assert packed.layers[0].mlp.down.weight is None and packed.packed, "the compiled code has not taken the weights"
    return random_model(config, seed=1).backbone, packed


def rows_of(config: Pi05Config, count: int) -> torch.Tensor:
    return torch.randn(count, config.backbone.width, generator=torch.Generator().manual_seed(count))


@pytest.mark.parametrize("hidden", ["none", "last", "all"])
@pytest.mark.parametrize("length", [1, 13, 96, 200])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@torch.inference_mode()
def test_a_prefix(generation, threads, shape, length, hidden):
    config = sized(shape, 4)
    plain, packed = backbones_of(config)
    x, valid = rows_of(config, length), torch.rand(length, generator=torch.Generator().manual_seed(0)) < 0.7
    valid[0] = True  # a row that sees nothing has no value
    for options in ({}, {"causal_from": length // 2}, {"causal_from": 0}, {"causal_from": length + 3}, {"valid": valid},
                    {"causal_from": length // 3, "valid": valid, "shared": max(1, length // 2)}):
        theirs, ours = (strip_of(config, length) for _ in range(2))
        expected = plain.prefill(x.clone(), theirs, hidden=hidden, **options)
        given = x.clone()
        got = packed.prefill(given, ours, hidden=hidden, **options)
        assert torch.equal(given, x)
        torch.testing.assert_close(ours.storage, theirs.storage, atol=2e-5, rtol=1e-5)
        if hidden == "none":
            assert got is None
        else:
            torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-5)


def requests_of(config: Pi05Config) -> list[Continuation]:
    """Two on one frame, of which one begins with a prompt, and three on frames of their own, one of them padded."""
    valid = torch.arange(40) % 3 > 0
    strips = [strip_of(config, 33), strip_of(config, 5), strip_of(config, 40, valid), strip_of(config, 1)]
    requests, generator = [], torch.Generator().manual_seed(6)
    backbone = config.backbone
    for strip, said, count in zip([strips[0], *strips], (3, 0, 20, 1, 7), (1, 30, 1, 2, 1)):
        tail = Tail(torch.randn(backbone.depth, 2, backbone.num_kv_heads, 40, backbone.head_dim, generator=generator))
        tail.length = said
        requests.append(Continuation(strip, tail, count))
    return requests


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@torch.inference_mode()
def test_new_positions_of_many_requests(generation, threads, shape):
    config = sized(shape, 4)
    plain, packed = backbones_of(config)
    theirs, ours = requests_of(config), requests_of(config)
    x = rows_of(config, sum(request.count for request in ours))
    expected = plain.advance(x, theirs)
    torch.testing.assert_close(packed.advance(x, ours), expected, atol=2e-5, rtol=1e-5)
    for one, other in zip(ours, theirs):
        assert one.tail.length == other.tail.length
        torch.testing.assert_close(one.tail.storage, other.tail.storage, atol=2e-5, rtol=1e-5)
        assert torch.equal(one.strip.storage, other.strip.storage)
    torch.testing.assert_close(packed.logits(expected), plain.logits(expected), atol=2e-5, rtol=1e-5)


@torch.inference_mode()
def test_no_bit_depends_on_who_shares_the_batch(generation, threads):
    config = sized(SHAPES["two of four queries"], 4)
    packed = backbones_of(config)[1]
    together, alone = requests_of(config), requests_of(config)
    x = rows_of(config, sum(request.count for request in together))
    hidden = packed.advance(x, together)
    parts = x.split([request.count for request in alone])
    assert torch.equal(hidden, torch.cat([packed.advance(part, [request]) for part, request in zip(parts, alone)]))
    assert torch.equal(packed.logits(hidden), torch.cat([packed.logits(row[None]) for row in hidden]))
    assert all(torch.equal(one.tail.storage, other.tail.storage) for one, other in zip(together, alone))


@torch.inference_mode()
def test_a_tail_that_is_full_is_refused_before_it_is_written():
    config = sized(SHAPES["one key/value head"], 4)
    packed = backbones_of(config)[1]
    requests = requests_of(config)
    requests[0].tail.length = 40
    kept = [request.tail.storage.clone() for request in requests]
    with pytest.raises(ValueError, match="1 more tokens do not fit a language tail of 40 that holds 40"):
        packed.advance(rows_of(config, sum(request.count for request in requests)), requests)
    requests[0].tail.length = 3
    with pytest.raises(ValueError, match="34 rows with 35 rotary positions, for 35 places in the cache"):
        packed.advance(rows_of(config, 34), requests)
    requests[1] = Continuation(requests[1].strip, requests[1].tail, 0)
    with pytest.raises(ValueError, match="0 more tokens: a request goes on by at least one"):
        packed.advance(rows_of(config, 5), requests)
    assert all(torch.equal(request.tail.storage, was) for request, was in zip(requests, kept))


@torch.inference_mode()
def test_nor_on_the_number_of_threads(generation):
    config = sized(SHAPES["one key/value head"], 4)
    packed = backbones_of(config)[1]
    x, strips = rows_of(config, 130), [strip_of(config, 130) for _ in range(2)]
    before, hidden = torch.get_num_threads(), []
    try:
        for threads, strip in zip((1, 2), strips):
            torch.set_num_threads(threads)
            hidden.append(packed.prefill(x, strip, hidden="all"))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*hidden) and torch.equal(strips[0].storage, strips[1].storage)


def test_two_threads_at_once():
    """As the tasks of isolated execution run: each with memory of its own, on one network."""
    config = sized(SHAPES["one key/value head"], 4)
    packed = backbones_of(config)[1]
    xs = [rows_of(config, length) for length in (40, 130)]

    @torch.inference_mode()
    def prefills(x: torch.Tensor) -> list[torch.Tensor]:
        return [packed.prefill(x, strip_of(config, len(x)), hidden="all") for _ in range(50)]

    alone = [prefills(x)[0] for x in xs]
    with ThreadPoolExecutor(2) as threads:
        for expected, got in zip(alone, threads.map(prefills, xs)):
            assert all(torch.equal(hidden, expected) for hidden in got)


@torch.inference_mode()
def test_numbers_that_nobody_may_read_are_refused():
    config = sized(SHAPES["one key/value head"], 10)
    backbone, expert = backbones_of(config)[1], pair_of(config)[1]
    x, strip = rows_of(config, 13), strip_of(config, 13)
    layers = CompiledTransformer(config.backbone, 1e-6, backbones_of(config)[0].layers)
    rotary = backbone.rotary.span(0, 13, x.device)
    for wanted in ([-1], [13], [3, 3], [4, 2]):
        with pytest.raises(ValueError, match="wanted are the rows .* expected ascending numbers below 13"):
            layers(x, rotary, [layers.prefix(strip, None)], wanted)
    for kind, shape in ((torch.int64, 13), (torch.bool, 12)):
        with pytest.raises(ValueError, match=r"valid: torch.\w+ \[\d+\], expected torch.bool \[13\]"):
            backbone.prefill(x, strip, valid=torch.ones(shape, dtype=kind))
    for shared in (0, 14):
        with pytest.raises(ValueError, match=f"{shared} positions of a prefix of 13 cannot be shared"):
            backbone.prefill(x, strip, causal_from=2, shared=shared)
    actions, whole = noise_of(config), expert.modulations(torch.tensor(0.5, dtype=torch.float64))
    norms = len(whole)
    each = whole[:, :, None].expand(norms, 3, 5, -1)
    for modulation in (whole[:2], whole.double(), each, whole[..., ::2]):
        with pytest.raises(ValueError, match=r"modulation: .* expected torch.float32 \[7, 3, .*64\] on cpu"):
            expert.velocity(actions, modulation, strip)
    with pytest.raises(ValueError, match="of a modulation do not lie one after the other"):
        expert.velocity(actions, whole.repeat_interleave(2, dim=-1)[..., ::2], strip)
    with pytest.raises(ValueError, match="1 of 13 rows are wanted; adaptive norms are for all of them"):
        layers(x, rotary, [layers.prefix(strip, None)], [3], whole)


@torch.inference_mode()
def test_a_vocabulary_without_compiled_code_is_packed_for_torch():
    config = replace(sized(SHAPES["one key/value head"], 4), vocab_size=97)
    plain, packed = (random_model(config, seed=1).backbone for _ in range(2))
    packed.pack()
    assert not packed.compiled
    x = rows_of(config, 20)
    hidden = [each.prefill(x, strip_of(config, 20), hidden="last") for each in (plain, packed)]
    torch.testing.assert_close(packed.logits(hidden[1]), plain.logits(hidden[0]), atol=2e-5, rtol=1e-5)


def test_other_types_keep_their_weights():
    expert = expert_of(sized(SHAPES["one key/value head"])).to(torch.bfloat16)
    expert.pack()
    assert expert.layers[0].mlp.down.weight.dtype == torch.bfloat16
