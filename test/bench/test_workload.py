"""What the benchmark asks for is what pi05.md says, and the same for the same seed."""

from itertools import islice

import pytest
import torch

from oxygen_ros.bench.workload import ARRIVALS, WORKLOADS, arrivals
from oxygen_ros.pi05.config import PRESETS

CONFIG = PRESETS["tiny"].with_horizon(10)


def some(pattern, seed=0, frames=4000, tokens=30):
    return list(islice(arrivals(pattern, tokens, seed), frames))


@pytest.mark.parametrize("pattern", ARRIVALS)
def test_one_request_a_frame_on_average(pattern):
    frames = some(pattern)
    assert frames == some(pattern)
    lengths = [length for frame in frames for length in frame]
    assert len(lengths) / len(frames) == pytest.approx(1.0, abs=0.05)
    assert sum(lengths) / len(lengths) == pytest.approx(30.0, abs=1.0)


def test_the_patterns_differ():
    assert set(map(len, some("uniform"))) == {1}
    assert some("bursty")[:5] == [[30] * 4, [], [], [], [30] * 4]
    assert max(map(len, some("poisson"))) > 3 and some("poisson") != some("poisson", seed=1)
    assert set(map(len, some("mixed"))) == {1}
    lengths = {length for frame in some("mixed") for length in frame}
    assert min(lengths) == 1 and max(lengths) == 59


@pytest.mark.parametrize("pattern", ARRIVALS)
def test_no_tokens_are_no_requests(pattern):
    assert some(pattern, frames=5, tokens=0) == [[]] * 5


def test_an_unknown_pattern():
    with pytest.raises(ValueError, match="'daily' is unknown"):
        next(arrivals("daily", 30, 0))


@pytest.mark.parametrize(("name", "cameras", "tokens"), [("libero", 2, 20), ("droid", 2, 36), ("aloha", 3, 48)])
def test_observations(name, cameras, tokens):
    one, two = (list(islice(WORKLOADS[name].observations(CONFIG, 5), 3)) for _ in range(2))
    for a, b in zip(one, two):
        assert a.images.shape == (cameras, 112, 112, 3) and a.tokens.shape == (tokens,) and a.noise.shape == (10, 32)
        assert torch.equal(a.images, b.images) and torch.equal(a.tokens, b.tokens) and torch.equal(a.noise, b.noise)
    assert not torch.equal(one[0].images, one[1].images)
