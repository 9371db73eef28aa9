"""How chunks join: what of the old one stays, what guides the new one, and how far apart they are at the seam."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from oxygen_ros.continuity import Continuity
from oxygen_ros.embodiment.generic import from_dict
from oxygen_ros.embodiment.normalization import Statistics
from oxygen_ros.embodiment.pipeline import Pipeline
from oxygen_ros.embodiment.tokenizer import Tokenizer
from oxygen_ros.policy import load_policy
from oxygen_ros.settings import read

DEFAULT = Path(__file__).resolve().parents[1] / "resource" / "pi05_aloha_tiny"
STEP = 100_000_000  # ns
H = 10
ARM = {"name": "arm", "joints": ["a", "claw"], "cameras": ["top"], "step_dt": 0.1,
       "grippers": {"claw": {"closed": 0, "open": 1}}}
SETTINGS = {"robot": "arm", "joints": ["a", "claw"], "cameras": ["top"], "step_dt": 0.1}


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.load(DEFAULT)


@pytest.fixture
def make(tokenizer):
    def pipeline_and_continuity(kind="none", description=(), **settings):
        measures = {f: Statistics(mean=np.array([0.5, 0.0]), std=np.array([2.0, 1.0])) for f in ("state", "actions")}
        pipeline = Pipeline(from_dict({**ARM, **dict(description)}), measures, "lerobot_mean_std", tokenizer,
                            action_dim=4)
        return Continuity(pipeline, read({**SETTINGS, "chunk_continuity": kind, **settings}))

    return pipeline_and_continuity


def chunk(offset=0.0):
    """Row i of `a` is i + offset, of the claw 0.5."""
    return np.stack([np.arange(H) + offset, np.full(H, 0.5)], 1).astype(np.float32)


def first_chunk(continuity, latency=2 * STEP, state=(0.0, 0.5)):
    """Observed at 0, sent after `latency`, when it starts."""
    seam = continuity.begin(0, np.array(state), np.array(state), 0, 0)
    assert len(seam.rows) == 0 and continuity.guidance(seam) is None
    return continuity.finish(chunk(), seam, latency)


def second_seam(continuity, stamp, began=None, state=(3.0, 0.5)):
    return continuity.begin(0, np.array(state), np.array(state), stamp, stamp if began is None else began)


def test_from_standstill_nothing_is_joined_and_the_jump_is_from_where_the_joints_are(make):
    command = first_chunk(make("rtc"), state=(-0.25, 0.5))
    assert command.start_ns == 2 * STEP and command.committed == 0
    np.testing.assert_array_equal(command.actions, chunk())
    assert command.boundary_jump == pytest.approx(0.25)


def test_what_is_left_is_due_together_with_the_new_rows(make):
    continuity = make()
    first_chunk(continuity)
    seam = second_seam(continuity, 5 * STEP + STEP // 4)  # 3.25 steps into the old chunk
    np.testing.assert_allclose(seam.rows[:, 0], np.arange(3.25, 9), atol=1e-6)
    assert len(seam.rows) == 6  # its last action is due 9 steps after its start; nothing is made up behind it
    before = second_seam(continuity, STEP, began=2 * STEP)  # seen while the robot still stood
    np.testing.assert_allclose(before.rows[:3, 0], [0, 0, 1], atol=1e-6)


def test_delay_is_what_inference_took_lately_and_how_old_the_observation_is(make):
    continuity = make("rtc")
    first_chunk(continuity, latency=2 * STEP)
    assert second_seam(continuity, 3 * STEP).delay == 2
    assert second_seam(continuity, 3 * STEP, began=3 * STEP + 1).delay == 3
    for i in range(16):  # one slow start is forgotten
        seam = second_seam(continuity, (4 + i) * STEP)
        continuity.finish(chunk(), seam, (4 + i) * STEP + STEP // 2)
    assert second_seam(continuity, 21 * STEP).delay == 1


def test_none_leaves_the_chunk_and_reports_the_jump(make):
    continuity = make()
    first_chunk(continuity)
    command = continuity.finish(chunk(4.0), second_seam(continuity, 4 * STEP), 5 * STEP)
    np.testing.assert_array_equal(command.actions, chunk(4.0))
    assert (command.start_ns, command.committed) == (4 * STEP, 0)
    assert command.boundary_jump == pytest.approx(2.0)  # at its row 1: 5 beside the old one's 3


def test_rtc_executes_the_old_rows_up_to_the_seam(make):
    continuity = make("rtc")
    first_chunk(continuity)
    seam = second_seam(continuity, 4 * STEP)
    command = continuity.finish(chunk(4.0), seam, 5 * STEP)  # one row is overtaken, two were expected to be
    assert (seam.delay, command.committed) == (2, 2)
    np.testing.assert_allclose(command.actions[:4, 0], [2, 3, 6, 7], atol=1e-6)
    assert command.boundary_jump == pytest.approx(2.0)  # 6 beside 4
    slow = continuity.finish(chunk(5.0), second_seam(continuity, 6 * STEP), 10 * STEP)
    assert slow.committed == 4  # more than expected: what was executed meanwhile is the old one's all the same


def test_a_short_leftover_guides_only_the_rows_it_has(make):
    continuity = make("rtc", continuity_rows=8)
    first_chunk(continuity)
    seam = second_seam(continuity, 10 * STEP)  # two rows are left
    guidance = continuity.guidance(seam)
    assert guidance.leftover.shape == (2, 4) and guidance.delay == 2 and guidance.end == 8
    np.testing.assert_allclose(guidance.leftover[:, 0], [(8 - 0.5) / 2, (9 - 0.5) / 2], atol=1e-6)
    assert (guidance.leftover[:, 2:] == 0).all()


def test_guidance_is_as_the_settings_say(make):
    continuity = make("rtc", continuity_rows=5, continuity_schedule="exp", guidance_weight=4.0)
    first_chunk(continuity)
    guidance = continuity.guidance(second_seam(continuity, 4 * STEP))
    assert (guidance.delay, guidance.end, guidance.schedule, guidance.max_weight) == (2, 5, "exp", 4.0)
    plain = read({**SETTINGS, "chunk_continuity": "rtc", "denoise_steps": 7})
    continuity.use(plain)
    guidance = continuity.guidance(second_seam(continuity, 4 * STEP))
    assert (guidance.end, guidance.schedule, guidance.max_weight) == (8, "linear", 7)
    for kind in ("none", "blend"):
        continuity.use(replace(plain, chunk_continuity=kind))
        assert continuity.guidance(second_seam(continuity, 4 * STEP)) is None


def test_delta_actions_are_told_relative_to_the_new_state(make):
    continuity = make("rtc", {"delta": ["a"]})
    first_chunk(continuity)
    leftover = continuity.guidance(second_seam(continuity, 4 * STEP, state=(7.0, 0.5))).leftover
    np.testing.assert_allclose(leftover[:3, 0], (np.array([2, 3, 4]) - 7.0 - 0.5) / 2, atol=1e-6)


def test_displacements_are_told_relative_to_where_the_robot_is_now(make):
    continuity = make("rtc", {"representation": "delta_position"})
    first_chunk(continuity, state=(1.0, 0.5))  # it wants 1 + i
    seam = second_seam(continuity, 4 * STEP, state=(3.5, 0.5))
    np.testing.assert_allclose(seam.rows[:3], [[-0.5, 0.5], [0.5, 0.5], [1.5, 0.5]], atol=1e-6)


def test_blend_fades_from_the_old_chunk_and_has_no_zeros_behind_it(make):
    """F35"""
    continuity = make("blend", continuity_rows=4)
    first_chunk(continuity)
    command = continuity.finish(chunk(5.0), second_seam(continuity, 4 * STEP), 5 * STEP)
    # 3 apart: one row overtaken, then 3/4, 2/4 and 1/4 of the old one, then none of it.
    expected = np.arange(H) + 5.0 - 3.0 * np.array([1, 0.75, 0.5, 0.25, 0, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(command.actions[:, 0], expected, atol=1e-5)
    assert command.boundary_jump == pytest.approx(0.75, abs=1e-5)
    continuity = make("blend")
    first_chunk(continuity)
    command = continuity.finish(chunk(10.0), second_seam(continuity, 10 * STEP), 11 * STEP)  # two rows are left
    np.testing.assert_allclose(command.actions[2:, 0], np.arange(2, H) + 10.0, atol=1e-5)


def test_after_a_gap_or_another_run_nothing_is_left(make):
    continuity = make("rtc")
    first_chunk(continuity)
    assert len(second_seam(continuity, 13 * STEP).rows) == 0
    other = continuity.begin(1, np.zeros(2), np.zeros(2), 4 * STEP, 4 * STEP)
    assert len(other.rows) == 0 and continuity.finish(chunk(), other, 5 * STEP).start_ns == 5 * STEP
    # The old one ended while the new one was computed: a standstill.
    seam = second_seam(continuity, 13 * STEP)
    command = continuity.finish(chunk(2.0), seam, 40 * STEP)
    assert command.start_ns == 40 * STEP and command.committed == 0


def test_rates_hold_over_the_seam(make):
    continuity = make("none", **{"rate_limits.a": 12.0})  # 1.2 a step
    first_chunk(continuity)
    command = continuity.finish(chunk(9.0), second_seam(continuity, 4 * STEP), 5 * STEP)
    # Row 0 is history (2); from row 1 on it follows the old chunk, at 1.2 a step, until it has caught up.
    np.testing.assert_allclose(command.actions[1:5, 0], 2 + 1.2 * np.arange(1, 5), atol=1e-5)
    assert command.slowed == 9


def test_from_outside_its_limits_a_robot_returns_at_its_rate(make):
    command = first_chunk(make(**{"rate_limits.a": 10.0, "action_limits.a": [-1.0, 2.0]}), state=(5.0, 0.5))
    np.testing.assert_allclose(command.actions[:5, 0], [4, 3, 2, 2, 2], atol=1e-6)


def test_a_chunk_that_comes_when_the_old_one_has_ended_follows_where_that_has_led_to(make):
    """Inference took longer than the chunk lasts: the joints were seen on the way, the robot has gone on to 9 since."""
    for kind in ("none", "blend", "rtc"):
        continuity = make(kind, **{"rate_limits.a": 10.0})  # 1 a step
        first_chunk(continuity)
        command = continuity.finish(chunk(4.0), second_seam(continuity, 4 * STEP), 20 * STEP)
        assert (command.start_ns, command.committed) == (20 * STEP, 0)
        np.testing.assert_allclose(command.actions[:5, 0], [8, 7, 6, 7, 8], atol=1e-5)
        assert command.boundary_jump == pytest.approx(1.0)
    continuity = make()
    first_chunk(continuity)
    command = continuity.finish(chunk(4.0), second_seam(continuity, 4 * STEP), 20 * STEP)
    assert command.boundary_jump == pytest.approx(5.0)


@pytest.mark.parametrize("kind", ["none", "blend", "rtc"])
def test_a_chunk_that_is_all_past_leaves_the_old_one_to_be_executed(make, kind):
    """The old one is due from 5 to 15, because it came late; the new one, seen at 4, would have been from 4 to 14."""
    continuity = make(kind)
    first_chunk(continuity, latency=5 * STEP)
    assert continuity.finish(chunk(50.0), second_seam(continuity, 4 * STEP), 13 * STEP + 1) is None
    assert continuity.hold(14 * STEP, None, H).actions[0, 0] == 9  # where the old one has led to
    first_chunk(continuity, latency=5 * STEP)
    assert continuity.finish(chunk(50.0), second_seam(continuity, 4 * STEP), 13 * STEP) is not None
    first_chunk(continuity, latency=5 * STEP)
    late = continuity.finish(chunk(50.0), second_seam(continuity, 4 * STEP), 15 * STEP + 1)
    assert late.start_ns == 15 * STEP + 1  # the old one has ended: from standstill


@pytest.mark.parametrize("representation, expected, jump", [
    ("delta_position", [6, 5, 4, 5], 1), ("velocity", [1, 2, 3, 4], 1), ("end_effector_delta", [1, 2, 3, 4], 1)])
def test_what_ended_meanwhile_leaves_speeds_at_rest(make, representation, expected, jump):
    continuity = make("none", {"representation": representation}, **{"rate_limits.a": 10.0})
    first_chunk(continuity)  # displacements lead to 9, which is 7 from where the joints were seen since
    seam = second_seam(continuity, 4 * STEP, state=(2.0, 0.5))
    command = continuity.finish(chunk(2.0), seam, 20 * STEP)
    np.testing.assert_allclose(command.actions[:4, 0], expected, atol=1e-5)
    assert command.boundary_jump == pytest.approx(jump)


def test_a_chunk_that_is_not_due_yet_follows_what_is_executed_until_then(make):
    """Seen by a clock that runs ahead a little: at row 0 the old chunk has led to 2, the step before to 1."""
    continuity = make()
    first_chunk(continuity)
    continuity.use(read({**SETTINGS, "rate_limits.a": 5.0}))  # 0.5 a step
    command = continuity.finish(chunk(9.0), second_seam(continuity, 4 * STEP), 4 * STEP - STEP // 2)
    assert command.start_ns == 4 * STEP
    np.testing.assert_allclose(command.actions[:3, 0], [1.5, 2, 2.5], atol=1e-5)
    assert command.boundary_jump == pytest.approx(0.5)


def test_behind_all_that_is_left_the_seam_is_from_the_old_chunk_s_last_action(make):
    continuity = make("rtc")
    first_chunk(continuity)
    seam = second_seam(continuity, 9 * STEP + STEP // 2)  # 7.5 and 8.5 are left, it ends with 9
    command = continuity.finish(chunk(8.0), seam, 11 * STEP)
    np.testing.assert_allclose(command.actions[:3, 0], [7.5, 8.5, 10], atol=1e-5)
    assert command.committed == 2 and command.boundary_jump == pytest.approx(1.0)


def test_blend_leaves_what_was_executed_as_it_was(make):
    """It fades over fewer rows than inference took: nothing is left to fade, yet those rows were executed."""
    continuity = make("blend", continuity_rows=1)
    first_chunk(continuity)
    command = continuity.finish(chunk(5.0), second_seam(continuity, 4 * STEP), 7 * STEP)
    np.testing.assert_allclose(command.actions[:5, 0], [2, 3, 4, 8, 9], atol=1e-5)
    assert command.committed == 3 and command.boundary_jump == pytest.approx(3.0)


@pytest.mark.parametrize("representation, expected", [
    ("absolute_position", [4.5, 5.5, 6.5]), ("delta_position", [1, 2, 3]), ("velocity", [1, 2, 3])])
def test_after_a_stop_a_chunk_follows_the_hold(make, representation, expected):
    """Not the joints, which lag behind what was commanded: they would step back. Once the hold has ended, it does."""
    settings = {"description": {"representation": representation}, "rate_limits.a": 10.0}
    continuity = make("none", **settings)
    first_chunk(continuity)
    continuity.hold(5 * STEP + STEP // 2, np.array([1.0, 0.5]), H)  # at 3.5
    seam = continuity.begin(1, np.array([1.0, 0.5]), np.array([1.0, 0.5]), 6 * STEP, 6 * STEP)
    command = continuity.finish(chunk(9.0), seam, 7 * STEP)
    assert (command.start_ns, command.committed) == (7 * STEP, 0)
    np.testing.assert_allclose(command.actions[:3, 0], expected, atol=1e-5)
    assert command.boundary_jump == pytest.approx(1.0)
    again = make("none", **settings)
    first_chunk(again)
    again.hold(5 * STEP, np.array([1.0, 0.5]), H)
    seam = again.begin(1, np.array([1.0, 0.5]), np.array([1.0, 0.5]), 16 * STEP, 16 * STEP)
    command = again.finish(chunk(9.0), seam, 17 * STEP)
    assert command.actions[0, 0] == pytest.approx(2.0 if representation == "absolute_position" else 1.0)


def test_a_hold_that_is_repeated_stays_where_the_first_one_did(make):
    """Also when the chunk before them would have ended meanwhile: the arm does not sink from STOP to STOP."""
    continuity = make()
    first_chunk(continuity)  # to 12
    for at, there in ((10, 8), (15, 8), (24, 8), (35, 1)):
        held = continuity.hold(at * STEP, np.array([1.0, 0.5]), H)
        np.testing.assert_allclose(held.actions, [[there, 0.5]] * H, atol=1e-6)


@pytest.mark.parametrize("kind", ["none", "blend", "rtc"])
def test_rates_hold_when_limits_move(make, kind):
    """Also of rows that are the old chunk's; what has been executed is told as it was."""
    continuity = make(kind, **{"rate_limits.a": 10.0})  # 1 a step, as the chunk changes
    first_chunk(continuity)
    continuity.use(read({**SETTINGS, "chunk_continuity": kind, "rate_limits.a": 10.0, "action_limits.a": [-9.0, -5.0]}))
    command = continuity.finish(chunk(4.0), second_seam(continuity, 4 * STEP), 7 * STEP)
    # Row 3 is the first one that is not yet due; the old chunk has led to 4 by row 2.
    np.testing.assert_allclose(command.actions[3:, 0], [3, 2, 1, 0, -1, -2, -3], atol=1e-5)
    assert command.slowed == 7
    if kind != "none":
        np.testing.assert_allclose(command.actions[:3, 0], [2, 3, 4], atol=1e-5)


@pytest.mark.parametrize("representation, expected", [
    ("absolute_position", [3.5, 0.5]), ("delta_position", [0, 0.5]), ("velocity", [0, 0.5]),
    ("end_effector_delta", [0, 0.5]),
])
def test_hold_stays_where_the_chunk_has_led_to(make, representation, expected):
    continuity = make("rtc", {"representation": representation})
    assert continuity.hold(0, None, H) is None
    first_chunk(continuity)
    command = continuity.hold(5 * STEP + STEP // 2, np.array([7.0, 0.25]), H)  # 3.5 steps into it
    assert command.start_ns == 5 * STEP + STEP // 2
    np.testing.assert_allclose(command.actions, [expected] * H, atol=1e-6)
    after = continuity.begin(1, np.zeros(2), np.zeros(2), 6 * STEP, 6 * STEP)
    assert len(after.rows) == 0


@pytest.mark.parametrize("representation, seen, told", [
    ("absolute_position", [7, 0.5], [9, 0.5]), ("delta_position", [0, 0.5], [0, 0.5]), ("velocity", [0, 0.5], [0, 0.5]),
])
def test_hold_after_the_end_stays_where_the_joints_are(make, representation, seen, told):
    """Chunks end at 12. The arm may have been moved by hand since; the gripper still closes on what it holds."""
    continuity, state = make(description={"representation": representation}), np.array([7.0, 0.25])
    before = continuity.hold(0, state, H)  # there was no chunk yet
    np.testing.assert_allclose(before.actions, [[seen[0], 0.25]] * H)
    first_chunk(continuity)
    np.testing.assert_allclose(continuity.hold(13 * STEP, state, H).actions, [seen] * H, atol=1e-6)
    continuity.forget()
    assert continuity.hold(14 * STEP, None, H) is None
    first_chunk(continuity)
    command = continuity.hold(13 * STEP, None, H)  # no joint is heard: it can but be there
    assert command.start_ns == 13 * STEP
    np.testing.assert_allclose(command.actions, [told] * H, atol=1e-6)


def test_a_robot_of_displacements_is_held_where_they_have_led_to(make):
    """For who tells them as positions: not where its lagging joints are, nor nowhere because they are not heard."""
    continuity = make(description={"representation": "delta_position"})
    assert continuity.led_to(0, None) is None
    first_chunk(continuity, state=(2.0, 0.5))
    for state, gripper in ((np.array([7.0, 0.25]), 0.25), (None, np.nan)):
        np.testing.assert_allclose(continuity.led_to(5 * STEP, state), [2 + 3, gripper])
    np.testing.assert_allclose(continuity.led_to(13 * STEP, np.array([7.0, 0.25])), [7, 0.25])  # it has ended
    np.testing.assert_allclose(continuity.led_to(13 * STEP, None), [2 + 9, np.nan])
    continuity.hold(5 * STEP, None, H)
    for later in (6, 14, 20):  # and stays there, however often it is stopped
        np.testing.assert_allclose(continuity.led_to(later * STEP, None), [5, np.nan])
        continuity.hold(later * STEP, None, H)
    absolute = make()
    first_chunk(absolute)
    assert absolute.led_to(5 * STEP, None) is None


def test_a_guided_network_joins_the_chunk_under_way():
    """The whole way, with relative actions: rows that are held come out where the old chunk is."""
    policy = load_policy(read({"policy": str(DEFAULT), "robot": "aloha", "cameras": ["cam_high"], "threads": 1}))
    step, settings = 20_000_000, read({"robot": "aloha", "cameras": ["cam_high"], "chunk_continuity": "rtc"})
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (48, 64, 3), np.uint8) for _ in range(2)]
    states = [np.where(np.arange(14) % 7 == 6, 0.03, s) for s in (0.1, 0.3)]

    def run(continuity, guided):
        jumps = []
        for frame, (picture, state) in enumerate(zip(pictures, states)):
            seen = policy.pipeline.observe({"cam_high": picture}, state, "wave")
            now = frame * 5 * step
            seam = continuity.begin(0, state, seen.state, now, now)
            noise = torch.randn(policy.engine.model.config.action_horizon, policy.engine.model.config.action_dim,
                                generator=torch.Generator().manual_seed(frame))
            guidance = continuity.guidance(seam) if guided else None
            observation = replace(policy.observation(seen, now), noise=noise, guidance=guidance)
            actions = policy.robot_actions(next(policy.engine.frame(observation)).actions, seen)
            command = continuity.finish(actions, seam, now + 2 * step)
            jumps.append(command.boundary_jump)
        if guided:
            assert guidance.delay == command.committed == 2
            np.testing.assert_allclose(policy.pipeline.act(guidance.leftover.numpy(), seen.state), seam.rows, atol=1e-4)
        return jumps[1]

    plain = run(Continuity(policy.pipeline, replace(settings, chunk_continuity="none")), guided=False)
    assert run(Continuity(policy.pipeline, settings), guided=True) < 0.5 * plain
