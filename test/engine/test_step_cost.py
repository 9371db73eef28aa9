"""The estimate that keeps decoding from missing a deadline errs on the slow side."""

import pytest

from oxygen_ros.engine.step_cost import StepCost


def test_nothing_known_costs_nothing():
    assert StepCost().estimate(3) == 0.0


def test_slow_is_believed_at_once_and_fast_slowly():
    cost = StepCost(forget=0.1)
    cost.learn(1, 0.010)
    cost.learn(1, 0.030)
    assert cost.estimate(1) == 0.030
    cost.learn(1, 0.010)
    assert cost.estimate(1) == pytest.approx(0.028)


def test_unknown_sizes_take_the_next_larger_or_grow_with_the_rows():
    cost = StepCost()
    cost.learn(2, 0.010)
    cost.learn(8, 0.020)
    assert cost.estimate(1) == 0.010
    assert cost.estimate(3) == 0.020
    assert cost.estimate(16) == pytest.approx(0.040)


def test_a_cost_that_is_never_tried_is_believed_less_and_less():
    cost = StepCost(forget=0.1)
    cost.learn(1, 0.010)
    cost.learn(8, 0.100)
    for _ in range(50):
        cost.doubt()
    assert cost.estimate(8) == pytest.approx(0.100 * 0.95**50) and cost.estimate(1) == pytest.approx(0.010 * 0.95**50)
    cost.learn(8, 0.050)
    assert cost.estimate(8) == 0.050
