"""What an evaluation says of bags: the same of every copy, and one line of what cannot be evaluated (F52, F53, F55)."""

import json
from dataclasses import replace

import numpy as np
import pytest
from bags import BAG, COPIES, beginning, write_mcap, write_rosbag2
from evaluating import HIGH, SECONDS, STORE, TASK, TYPES, report, said, start, without

from oxygen_ros.embodiment.images import decode_compressed
from oxygen_ros.plain_cdr import header_stamp_ns, restamped
from oxygen_ros.replay.bag import BagError, Recorded, open_bag
from oxygen_ros.replay.evaluate import evaluate
from oxygen_ros.replay.many import Order, one
from oxygen_ros.replay.measures import timing
from oxygen_ros.replay.rollout import Part
from oxygen_ros.replay.sources import Names


@pytest.mark.parametrize("copy", COPIES)
def test_the_same_report_of_every_copy(tmp_path, side, plain, copy):
    assert said(report(COPIES[copy](tmp_path, beginning(SECONDS)), side)) == plain
    assert len(plain["frames"]) == 5 and all(f["chunk"] for f in plain["frames"])


# Bad bags


BAD = {
    "no images": (without(HIGH), TYPES, f"has no message on {HIGH}, the pictures of camera cam_high"),
    "no joints": (without("/joint_states"), {k: v for k, v in TYPES.items() if k != "/joint_states"},
                  "has no /joint_states, the robot's joints"),
    "wrong type": (beginning(SECONDS), {**TYPES, "/joint_states": "std_msgs/msg/String"},
                   "/joint_states is std_msgs/msg/String; expected sensor_msgs/msg/JointState"),
    "no commands": (without("/joint_commands"), TYPES,
                    "has no message on /joint_commands, the recorded commands to compare with"),
    "too short": (beginning(0.05), TYPES, "there is no control tick"),
    "other transport": (beginning(SECONDS), {**TYPES, HIGH: "sensor_msgs/msg/Image"},
                        f"{HIGH} is sensor_msgs/msg/Image; expected sensor_msgs/msg/CompressedImage .*transport"),
    "broken pictures": (beginning(SECONDS, lambda m: replace(m, data=m.data[:60]) if m.topic == HIGH else m), TYPES,
                        "gives no frame at all.*/cam_high/image_raw/compressed"),
}


@pytest.mark.parametrize("bad", BAD)
def test_one_line_of_what_cannot_be_evaluated(tmp_path, side, bad):
    messages, topics, text = BAD[bad]
    path = write_mcap(tmp_path / "x.mcap", messages, topics)
    with pytest.raises(BagError, match=text) as error:
        report(path, side, TASK)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_without_commands_it_is_evaluated_if_asked_to(tmp_path, side):
    path = write_mcap(tmp_path / "x.mcap", without("/joint_commands"), TYPES)
    found = report(path, side, names=Names(commands="none"))["sides"]["oxygen"]
    assert found["accuracy"] is None and found["timing"]["chunks"] == 5


def test_a_camera_that_starts_late(tmp_path, side):
    late = start() + 250_000_000
    messages = beginning(SECONDS, lambda m: None if m.topic == HIGH and m.received_ns < late else m)
    found = report(write_mcap(tmp_path / "x.mcap", messages, TYPES), side)["sides"]["oxygen"]
    assert [f["chunk"] for f in found["frames"]] == [False, False, True, True, True]
    assert found["timing"]["stale_input_rate"] == found["timing"]["skipped_frame_rate"] == pytest.approx(0.4)
    assert f"{HIGH}: no message yet" in found["frames"][0]["reasons"]


def test_messages_written_out_of_order_are_read_in_the_order_of_receipt(tmp_path, side, plain):
    messages = beginning(SECONDS)
    mixed = [messages[i] for i in np.random.default_rng(0).permutation(len(messages))]
    assert said(report(write_mcap(tmp_path / "x.mcap", mixed, TYPES), side)) == plain
    assert said(report(write_rosbag2(tmp_path / "x", mixed), side)) == plain


def test_unsorted_stamps_are_said(tmp_path, side):
    count = iter(range(1000))

    def late(m):  # every tenth command is stamped half a second early
        if m.topic != "/joint_commands" or next(count) % 10 != 5:
            return m
        sec, nano = np.frombuffer(m.data[4:12], "<i4")
        total = int(sec) * 10**9 + int(nano) - 500_000_000
        return replace(m, data=m.data[:4] + np.array([total // 10**9, total % 10**9], "<i4").tobytes() + m.data[12:])

    result = report(write_mcap(tmp_path / "x.mcap", beginning(SECONDS, late), TYPES), side)
    assert any("/joint_commands: 3 stamps are older than the one before" in note for note in result["notes"])


# What a frame saw


def test_each_frame_used_the_newest_message_received_by_its_tick(side):
    bag = open_bag(BAG)
    result = report(BAG, side, Part(seconds=1.0))["sides"]["oxygen"]
    newest: dict[str, dict[int, int]] = {}
    for frame in result["frames"]:
        for m in bag.messages([*frame["used"]]):
            if bag.start_ns < m.received_ns <= frame["tick_ns"]:
                sec, nano = (int(v) for v in np.frombuffer(m.data[4:12], "<i4"))
                newest.setdefault(m.topic, {})[frame["tick_ns"]] = sec * 10**9 + nano
    assert all(newest[topic][f["tick_ns"]] == stamp for f in result["frames"] for topic, stamp in f["used"].items())
    assert {len(f["used"]) for f in result["frames"]} == {4}


def test_the_pictures_are_those_of_the_bag(side):
    bag = open_bag(BAG)
    done = evaluate(str(BAG), [side], Names(), Part(seconds=0.2))
    message = next(bag.messages([HIGH]))
    picture = STORE.deserialize_cdr(message.data, TYPES[HIGH])
    seen = done.sources[0].cameras["cam_high"].decode(message.data)
    assert (seen == decode_compressed(picture.format, picture.data)).all()


def test_the_result_is_json(side):
    json.dumps(report(BAG, side, Part(seconds=0.3)), allow_nan=False)


def test_asked_twice_it_says_the_same(side):
    assert said(report(BAG, side, Part(seconds=0.5))) == said(report(BAG, side, Part(seconds=0.5)))


def test_latency_moves_what_is_executed_not_what_is_seen(side):
    at_once = evaluate(str(BAG), [side], Names(), Part(seconds=0.55)).rollouts[0]
    later = evaluate(str(BAG), [side], Names(), Part(seconds=0.55, latency=0.04)).rollouts[0]
    assert [m.used for m in later.moments] == [m.used for m in at_once.moments]
    assert [m.sent_ns - m.tick_ns for m in later.moments] == [40_000_000] * 5
    # The first begins when it is out; later ones skip what latency has overtaken.
    assert [m.start_ns - m.tick_ns for m in later.moments[:1]] == [40_000_000]
    assert [m.start_ns for m in later.moments[1:]] == [m.stamp_ns for m in later.moments[1:]]


def test_ticks_within_the_latency_are_missed(side):
    rollout = evaluate(str(BAG), [side], Names(), Part(seconds=0.95, latency=0.15)).rollouts[0]
    assert [round((m.tick_ns - rollout.start_ns) / 1e8) for m in rollout.moments] == [1, 3, 5, 7, 9]
    assert rollout.misses >= 4
    assert timing(rollout)["deadline_miss_rate"] == pytest.approx(rollout.misses / (5 + rollout.misses))


def test_noise_is_the_tick_s_own(side):
    policy, seen = side.policy, side.policy.pipeline.rehearse(side.settings.cameras)
    noise = {}
    for tick in (1, 2, 1):
        policy.draw.tick = tick
        drawn = policy.observation(seen, 0).noise
        assert noise.setdefault(tick, drawn).equal(drawn)
    assert not noise[1].equal(noise[2]) and abs(noise[1].std() - 1) < 0.1


# Time


@pytest.mark.parametrize("late", [6 * 3600, 30 * 24 * 3600])
def test_a_message_long_after_the_others_costs_nothing_but_a_remark(tmp_path, side, plain, late):
    messages = beginning(SECONDS)
    stray = replace(messages[-1], received_ns=messages[-1].received_ns + late * 10**9)
    result = report(write_mcap(tmp_path / "x.mcap", [*messages, stray]), side)
    found = result["sides"]["oxygen"]
    assert said(result)["frames"][:5] == plain["frames"] and found["accuracy"]["policy"]["count"] > 0
    # Ticks go on for 10 s, until it is clear that nothing comes.
    assert found["timing"]["ticks"] + found["timing"]["left_out_ticks"] == int((result["duration_s"]) / 0.1)
    assert 100 <= found["timing"]["ticks"] <= 107
    assert [n for n in found["notes"] if n.startswith(f"a gap of {late}.0 s, no message for the robot's inputs after")]


def test_a_long_silence_amid_a_recording_is_stepped_over(tmp_path, side):
    """The grid of ticks stays, and what comes after the silence is used."""
    messages, hour = beginning(1.2), 3600 * 10**9

    def later(m: Recorded) -> Recorded:
        stamped = m.topic not in ("/instruction", "/phase")
        data = restamped(m.data, header_stamp_ns(m.data) + hour) if stamped else m.data
        return replace(m, received_ns=m.received_ns + hour, data=data)

    middle = start() + 600_000_000
    moved = [later(m) if m.received_ns > middle else m for m in messages]
    found = report(write_mcap(tmp_path / "x.mcap", moved), side)["sides"]["oxygen"]
    after = [f for f in found["frames"] if f["tick_ns"] > middle + hour]
    assert len(after) in (5, 6) and all(f["chunk"] for f in after[1:])
    assert {(f["tick_ns"] - start()) % 100_000_000 for f in found["frames"]} == {0}


# Stopping


def stopped_at(side, folder, share: float):
    """What is left of the sample's evaluation if it is stopped when so much is done."""
    order = Order(side.settings, "oxygen", Names(), Part(seconds=0.5))
    return one(str(BAG), "x", [side], order, folder, lambda done: done < share)


def test_a_stop_is_obeyed_while_a_bag_is_read_computed_or_written(tmp_path, side):
    assert stopped_at(side, tmp_path, 0.0) is None  # while commands and instructions are read
    computed = stopped_at(side, tmp_path, 0.5).result
    assert computed["partial"] and 1 <= len(computed["sides"]["oxygen"]["frames"]) < 5
    written = stopped_at(side, tmp_path, 1.0)
    assert len(written.result["sides"]["oxygen"]["frames"]) >= 4 and "<h2" in written.section
    assert not list(tmp_path.iterdir())
    assert stopped_at(side, tmp_path, 2.0).result["partial"] is False and (tmp_path / "x.mcap").is_file()


def test_the_report_holds_the_actions_that_its_errors_are_of(tmp_path, side):
    """Sent and told at the same moment, so that errors can be computed by hand from the report alone."""
    done = evaluate(str(BAG), [side], Names(), Part(seconds=0.5))
    found = json.loads(json.dumps(done.result))["sides"]["oxygen"]
    step = round(done.result["step_dt"] * 1e9)
    errors = []
    for frame, moment in zip(found["frames"], done.rollouts[0].moments):
        actions = np.array(frame["actions"])
        assert (actions.astype(np.float32) == moment.actions).all()
        errors.append(abs(actions - done.commands.at(frame["start_ns"] + step * np.arange(len(actions)), step)))
    assert np.nanmean(errors) == pytest.approx(found["accuracy"]["policy"]["mae"], rel=1e-6)
    assert max(len(repr(x)) for x in sum(found["frames"][0]["actions"], [])) <= 15  # float32 has nine digits
