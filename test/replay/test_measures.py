"""Numbers of small rollouts that can be worked out by hand."""

import numpy as np
import pytest

from oxygen_ros.embodiment.generic import from_dict
from oxygen_ros.embodiment.robot import Robot
from oxygen_ros.frames import Stats
from oxygen_ros.replay.commands import Commands
from oxygen_ros.replay.evaluate import difference, unequal
from oxygen_ros.replay.measures import accuracy, executed, motion, percentiles, plain, timing
from oxygen_ros.replay.overall import overall
from oxygen_ros.replay.rollout import Moment, Rollout
from oxygen_ros.replay.texts import alike, edit_distance

MS = 1_000_000
STEP = 100 * MS


def robot(**changes) -> Robot:
    return from_dict({"name": "two", "cameras": ["eye"], "joints": ["a", "b"], "step_dt": 0.1, **changes})


def moment(tick_ms: int, actions, state=(0.0, 0.0), start_ms: int | None = None, **stats) -> Moment:
    actions = None if actions is None else np.array(actions, np.float32)
    start_ns = (tick_ms if start_ms is None else start_ms) * MS
    used, tick_ns = {"/eye": (tick_ms - 30) * MS}, tick_ms * MS
    return Moment(tick_ns, actions, start_ns, start_ns, np.array(state), used, Stats(**stats), sent_ns=tick_ns)


def rollout(*moments: Moment) -> Rollout:
    return Rollout(0, 200 * MS, list(moments), received={"/eye": 10})


def commands(values, step_ms: int = 100) -> Commands:
    values = np.array(values, float)
    return Commands("/told", np.arange(len(values)) * step_ms * MS, values)


def test_errors_by_step_and_dimension_beside_those_who_see_nothing():
    told = commands([[0, 10], [1, 10], [2, 10], [3, 10]])
    found = accuracy(rollout(moment(0, [[0, 10], [1, 12], [5, 10]], state=(1, 10))), robot(), told)
    assert found["policy"]["per_step"]["mae"].tolist() == [0, 1, 1.5]  # (0, 2) and (3, 0) over two dimensions
    assert found["policy"]["per_dimension"]["mae"].tolist() == [1, pytest.approx(2 / 3)]
    assert found["policy"]["mae"] == pytest.approx(5 / 6) and found["policy"]["rmse"] == pytest.approx((13 / 6) ** 0.5)
    # The range of a is 3; b never changed, so there is nothing to normalise it by.
    assert found["policy"]["normalised_mae"] == pytest.approx(1 / 3)
    assert found["hold_position"]["per_dimension"]["mae"].tolist() == [pytest.approx(2 / 3), 0]
    assert found["mean_action"]["per_step"]["mae"].tolist() == [0.75, 0.25, 0.25]  # the mean of a is 1.5


def test_declared_limits_are_the_range():
    told = commands([[0, 0], [1, 0]])
    found = accuracy(rollout(moment(0, [[1, 1]])), robot(limits={"a": [0, 4], "b": [-1, 1]}), told)
    assert found["policy"]["per_dimension"]["normalised_mae"].tolist() == [0.25, 0.5]


def test_what_was_not_commanded_is_not_compared():
    told = commands([[0, np.nan], [1, np.nan]])
    found = accuracy(rollout(moment(-100, [[9, 9], [0, 9], [1, 9], [1, 9], [1, 9], [1, 9], [1, 9]])), robot(), told)
    # Before the first command, and more than three distances after the last one, there is nothing to compare with.
    assert found["policy"]["per_step"]["count"].tolist() == [0, 1, 1, 1, 1, 1, 0]
    assert found["policy"]["mae"] == 0 and np.isnan(found["policy"]["per_dimension"]["mae"][1])


def test_displacements_are_compared_where_they_lead_to():
    told = commands([[5, 0]])
    found = accuracy(rollout(moment(0, [[2, 0]], state=(3, 0))), robot(representation="delta_position"), told)
    assert found["policy"]["mae"] == 0


def test_the_next_chunk_takes_over_where_it_was_sent():
    first = moment(0, [[0, 0], [1, 0], [2, 0], [3, 0]])
    second = moment(200, [[9, 0], [2.5, 1], [3, 1], [4, 1]], start_ms=150)
    done = executed(rollout(first, second), robot())
    # The second was sent at 200 ms; its row 0 was due at 150 ms, before that, so it begins with row 1, due at 250 ms.
    assert (done.times_ns // MS).tolist() == [0, 100, 200, 250, 350, 450]
    assert done.values[:, 0].tolist() == [0, 1, 2, 2.5, 3, 4]
    assert done.first.tolist() == [True, False, False, True, False, False]
    assert done.jumps.tolist() == [[0.5, 1]]
    found = motion(done, robot(), None)
    assert found["chunk_boundary_jump"]["mean"] == 0.75 and found["chunk_boundary_jump"]["max"] == 1
    assert found["chunk_boundary_jump"]["per_dimension"] == {"mean": [0.5, 1], "max": [0.5, 1]}


def test_a_chunk_that_comes_after_the_one_before_has_ended_is_no_seam():
    done = executed(rollout(moment(0, [[0, 0]]), moment(500, [[9, 9]])), robot())
    assert np.isnan(done.jumps).all()
    assert plain(motion(done, robot(), None)["chunk_boundary_jump"])["count"] == 0


def test_acceleration():
    values = [[i * i, 0] for i in range(5)]  # second difference 2 over 0.1 s squared
    found = motion(executed(rollout(moment(0, values)), robot()), robot(), commands(values))
    assert found["smoothness"]["acceleration"] == [pytest.approx(200), 0]
    assert found["smoothness"]["recorded"] == [pytest.approx(200), 0]


def test_rates():
    moments = [
        moment(200, [[0, 0]], first_chunk_latency=0.02, total=0.03),
        moment(400, None, stale_inputs=1), moment(600, None, stale_inputs=2),
        Moment(800 * MS, None), moment(1000, [[0, 0]], first_chunk_latency=0.04, total=0.05, stale_inputs=2),
    ]
    found = timing(rollout(*moments))
    assert (found["ticks"], found["chunks"]) == (5, 2)
    assert found["skipped_frame_rate"] == 0.6 and found["stale_input_rate"] == 0.4 and found["failed_frame_rate"] == 0.2
    assert found["first_chunk_latency_s"]["p50"] == pytest.approx(0.03)
    assert found["observation_age_s"]["max"] == pytest.approx(0.03)
    assert found["messages"] == {"/eye": {"received": 10, "used": 2}}
    assert percentiles([]) is None


def test_more_ticks_missed_than_met_are_a_share_of_both():
    slow = rollout(moment(200, [[0, 0]]), moment(400, [[0, 0]]))  # time stood still while each took three ticks more
    slow.misses = 6
    assert timing(slow)["deadline_miss_rate"] == 0.75


def test_difference_of_two_sides():
    a = rollout(moment(0, [[0, 0]]), moment(200, [[1, 1]]), moment(400, None))
    b = rollout(moment(0, [[0, 0]]), moment(200, [[1, 1.5]]), moment(400, [[1, 1]]))
    found = difference(a, b)
    assert (found["frames"], found["max"], found["mean"], found["frames_in_one_only"]) == (2, 0.5, 0.125, 1)
    assert unequal(found, 1.0) == "1 frames were made by one of the two only"
    same = difference(a, a)
    assert unequal(same, 0.0) is None
    moved = difference(rollout(moment(0, [[0, 0]])), rollout(moment(0, [[0, 0.25]])))
    assert "differ by up to 0.25, the limit is 0.2" in unequal(moved, 0.2) and unequal(moved, 0.25) is None


def test_texts():
    assert [edit_distance(*pair) for pair in (("kitten", "sitting"), ("", "abc"), ("same", "same"))] == [3, 3, 0]
    found = alike(["yes", "a cube"], ["yes", "a tube", "more"])
    assert found == {"ours": 2, "theirs": 3, "pairs": 2, "exact": 0.5, "edit_distance": pytest.approx(1 / 12)}


def test_nothing_is_overall_of_nothing():
    assert overall([]) is None
