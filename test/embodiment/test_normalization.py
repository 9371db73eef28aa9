import numpy as np
import pytest

from oxygen_ros.embodiment.errors import InputError
from oxygen_ros.embodiment.normalization import RULES, Normalizer, Statistics


def statistics(recorded, source, feature):
    if source == "openpi_quantile":
        return Statistics(**recorded["openpi_statistics"][feature])
    prefix = {"state": "observation.state", "actions": "action"}[feature]
    return Statistics(*(recorded["lerobot_statistics"][f"{prefix}.{m}"] for m in ("mean", "std", "q01", "q99")))


@pytest.mark.parametrize("rule, name", [("openpi_quantile", "openpi"), ("lerobot_quantiles", "lerobot")])
def test_recorded_state_and_actions(recorded, rule, name):
    tensors = recorded["tensors"]
    state = Normalizer(rule, statistics(recorded, rule, "state"), 5, "state").normalize(tensors["raw_state"])
    np.testing.assert_allclose(state, tensors[f"{name}_state_normalized"], rtol=0, atol=1e-6)
    actions = Normalizer(rule, statistics(recorded, rule, "actions"), 6, "actions").unnormalize(
        tensors["model_actions"]
    )
    np.testing.assert_allclose(actions, tensors[f"{name}_actions_unnormalized"], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "rule, expected, back",
    [
        ("openpi_quantile", 2 * 3 / (4 + 1e-6) - 1, (0.5 + 1) / 2 * (4 + 1e-6) + 1),
        ("openpi_zscore", (4 - 2) / (0.5 + 1e-6), 0.5 * (0.5 + 1e-6) + 2),
        ("lerobot_quantiles", 2 * 3 / 4 - 1, (0.5 + 1) * 4 / 2 + 1),
        ("lerobot_mean_std", (4 - 2) / (0.5 + 1e-8), 0.5 * 0.5 + 2),
        ("identity", 4, 0.5),
    ],
)
def test_the_rules(rule, expected, back):
    normalizer = Normalizer(rule, Statistics(mean=[2.0], std=[0.5], q01=[1.0], q99=[5.0]), 1, "state")
    assert normalizer.normalize(np.array([4.0]))[0] == pytest.approx(expected, abs=1e-13)
    assert normalizer.unnormalize(np.array([0.5]))[0] == pytest.approx(back, abs=1e-13)


@pytest.mark.parametrize("rule", RULES)
def test_there_and_back(rule):
    values = np.random.default_rng(0).normal(size=(10, 7))
    q01 = values.min(0) - 1
    normalizer = Normalizer(rule, Statistics(values.mean(0), values.std(0), q01, q01 + 3), 7, "actions")
    np.testing.assert_allclose(normalizer.unnormalize(normalizer.normalize(values)), values, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "rule, value", [("openpi_quantile", 2 * 0.5 / 1e-6 - 1), ("lerobot_quantiles", 2 * 0.5 / 1e-8 - 1)]
)
def test_a_dimension_that_never_moved_divides_by_the_epsilon(rule, value):
    normalizer = Normalizer(rule, Statistics(q01=[1.0], q99=[1.0]), 1, "state")
    assert normalizer.normalize(np.array([1.5]))[0] == pytest.approx(value)


def test_wider_statistics_are_cut_and_padded_values_pass_through():
    padded = Statistics(q01=[0.0] * 7 + [0.0] * 25, q99=[2.0] * 7 + [0.0] * 25)
    normalizer = Normalizer("lerobot_quantiles", padded, 7, "actions")
    assert normalizer.normalize(np.ones(7)).tolist() == [0.0] * 7
    assert normalizer.unnormalize(np.full((2, 32), 0.5)).tolist() == [[1.5] * 7 + [0.5] * 25] * 2


@pytest.mark.parametrize(
    "measures, words",
    [
        ({"q01": [0.0] * 6, "q99": [1.0] * 6}, ("actions", "6 dimensions", "expected 7")),
        ({"mean": [0.0] * 7, "std": [1.0] * 7}, ("actions", "no q01", "mean, std")),
        ({"q01": [[0.0], [1.0, 2.0]], "q99": [1.0] * 7}, ("ragged q01",)),
        ({"q01": [[0.0] * 7], "q99": [1.0] * 7}, ("[1, 7]",)),
        ({"q01": [0.0] * 6 + [np.nan], "q99": [1.0] * 7}, ("q01", "finite")),
        ({"q01": [0.0] * 6 + [1.5], "q99": [1.0] * 7}, ("actions", "q99 below its q01")),
    ],
)
def test_statistics_that_do_not_fit_are_refused_at_once(measures, words):
    with pytest.raises(InputError) as error:
        Normalizer("openpi_quantile", Statistics(**measures), 7, "actions")
    assert all(word in str(error.value) for word in words)


def test_unknown_rule_and_wrong_width():
    with pytest.raises(InputError, match="min_max"):
        Normalizer("min_max", Statistics(), 1, "state")
    with pytest.raises(InputError, match="state: found 8 dimensions, expected 7"):
        Normalizer("identity", Statistics(), 7, "state").normalize(np.zeros(8))


def test_a_lerobot_feature_is_as_wide_as_its_robot():
    measures = {"q01": [-1.0] * 7 + [0.0] * 25, "q99": [1.0] * 7 + [0.0] * 25}
    assert Normalizer("lerobot_quantiles", Statistics(**measures), 7, "state").width == 7  # zero-padded
    with pytest.raises(InputError, match="statistics of state: found 32 dimensions .q01., expected 6"):
        Normalizer("lerobot_quantiles", Statistics(**measures), 6, "state")
    assert Normalizer("openpi_quantile", Statistics(**measures), 6, "state").width == 6  # cut, as openpi does
