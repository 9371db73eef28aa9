"""What an evaluation says of bags: the same of every copy, and one line of what cannot be evaluated (F52 to F56)."""

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ament_index_python.packages import get_package_share_directory
from bags import BAG, COPIES, beginning, typestore, write_mcap, write_ros1, write_rosbag2

from oxygen_ros.embodiment.images import decode_compressed
from oxygen_ros.plain_cdr import header_stamp_ns, restamped
from oxygen_ros.replay.bag import BagError, Recorded, open_bag
from oxygen_ros.replay.evaluate import evaluate
from oxygen_ros.replay.many import Order, one
from oxygen_ros.replay.measures import timing
from oxygen_ros.replay.rollout import Part
from oxygen_ros.replay.sources import Names

SECONDS = 0.6
HIGH = "/cam_high/image_raw/compressed"
TYPES = {name: topic.type for name, topic in open_bag(BAG).topics.items()}
TASK = Part(instruction="transfer the cube")
STORE = typestore()


def report(path, side, part=Part(), names=Names()) -> dict:
    return evaluate(str(path), [side], names, part).result


def said(result: dict) -> dict:
    """What does not depend on the machine."""
    side = result["sides"]["oxygen"]
    frames = [{k: f[k] for k in ("tick_ns", "used", "chunk", "normalised_mae", "start_ns")} for f in side["frames"]]
    return {key: side[key] for key in ("accuracy", "motion", "instructions")} | {"frames": frames}


def instruction(text: str, received_ns: int, kind: str = "oxygen_ros/msg/Instruction", topic: str = "/instruction",
                task: int = 0) -> Recorded:
    if kind == "std_msgs/msg/String":
        message = STORE.types[kind](data=text)
    else:
        message = STORE.types[kind](id=0, task=task, text=text, max_tokens=4, priority=0)
    return Recorded(topic, received_ns, bytes(STORE.serialize_cdr(message, kind)))


def without(*topics: str):
    return beginning(SECONDS, lambda m: None if m.topic in topics else m)


def start() -> int:
    return open_bag(BAG).start_ns


@pytest.fixture(scope="module")
def plain(side, tmp_path_factory):
    """Of a copy by mcap's own writer; what a bag's last message is decides where its last tick is."""
    return said(report(write_mcap(tmp_path_factory.mktemp("plain") / "x.mcap", beginning(SECONDS)), side))


# F52


@pytest.mark.parametrize("copy", COPIES)
def test_the_same_report_of_every_copy(tmp_path, side, plain, copy):
    assert said(report(COPIES[copy](tmp_path, beginning(SECONDS)), side)) == plain
    assert len(plain["frames"]) == 5 and all(f["chunk"] for f in plain["frames"])


# F54


def test_standard_and_our_types_decode_without_definitions_and_strangers_are_listed_once(tmp_path, side, plain):
    path = write_rosbag2(tmp_path / "x", beginning(SECONDS)) / "x.db3"
    with sqlite3.connect(path) as bag:
        bag.execute("DROP TABLE message_definitions")
        bag.execute("UPDATE topics SET type_description_hash = ''")
        bag.execute("INSERT INTO topics VALUES (99, '/bar', 'foo_msgs/msg/Bar', 'cdr', '', '')")
        bag.execute("INSERT INTO topics VALUES (98, '/empty', 'std_msgs/msg/Empty', 'cdr', '', '')")
        bag.executemany("INSERT INTO messages(topic_id, timestamp, data) VALUES (?, ?, ?)",
                        [(n, start() + 1000, b"\0\1\0\0\0") for n in (98, 99, 99)])
    result = report(path, side)
    assert said(result) == plain
    strangers = ["/bar (foo_msgs/msg/Bar)", "/empty (std_msgs/msg/Empty)", "/phase (std_msgs/msg/String)"]
    assert sorted(result["not_used"]) == strangers


INSIDE = {kind: ("std_msgs/msg/Header", "builtin_interfaces/msg/Time")
          for kind in ("sensor_msgs/msg/JointState", "sensor_msgs/msg/CompressedImage")}


def idl(kind: str) -> tuple[str, str, bytes]:
    """As rosbag2 has it where a package has no .msg: the type's IDL file, and after it those of what it is made of."""
    sections = []
    for name in (kind, *INSIDE.get(kind, ())):
        package, _, base = name.split("/")
        text = Path(get_package_share_directory(package), "msg", f"{base}.idl").read_text()
        sections.append("=" * 80 + f"\nIDL: {name}\n{text}")
    return kind, "ros2idl", "".join(sections).encode()


SHORTER = "uint64 id\nuint8 task\nstring text\nuint32 max_tokens\n"


def schemas(**ours):
    def schema(kind: str):
        if kind.rpartition("/")[2] in ours:
            return ours[kind.rpartition("/")[2]]
        return kind, "ros2msg", STORE.generate_msgdef(kind, ros_version=2)[0].encode()

    return schema


def test_idl_definitions(tmp_path, side, plain):
    result = report(write_mcap(tmp_path / "x.mcap", beginning(SECONDS), TYPES, schema=idl), side)
    assert said(result) == plain and not result["notes"]


def test_an_older_definition_is_noticed_and_decoded_by_itself(tmp_path, side):
    def older(m):
        return replace(m, data=m.data[:-1]) if m.topic == "/instruction" else m  # priority was its last byte

    definition = ("oxygen_ros/msg/Instruction", "ros2msg", SHORTER.encode())
    path = write_mcap(tmp_path / "x.mcap", beginning(SECONDS, older), TYPES, schema=schemas(Instruction=definition))
    result = report(path, side)
    assert result["sides"]["oxygen"]["instructions"]["1"]["text"] == "transfer the cube"
    said = "/instruction: the bag has another definition of oxygen_ros/msg/Instruction (without priority)"
    assert said in result["notes"][0]


def test_another_definition_that_the_bag_does_not_hold_is_refused(tmp_path, side):
    path = write_rosbag2(tmp_path / "x", beginning(SECONDS)) / "x.db3"
    with sqlite3.connect(path) as bag:
        bag.execute("DROP TABLE message_definitions")
        bag.execute("UPDATE topics SET type_description_hash = 'RIHS01_0123' WHERE name = '/instruction'")
    text = r"/instruction \(oxygen_ros/msg/Instruction\) cannot be decoded: .*another definition"
    with pytest.raises(BagError, match=text):
        report(path, side)


@pytest.mark.parametrize("ours, needed", [
    ({"JointState": None}, "/joint_states has no type, its channel has no schema; expected sensor_msgs/msg/JointState"),
    ({"CompressedImage": ("sensor_msgs/msg/CompressedImage", "ros2msg", b"std_msgs/Header header\nwhat is this")},
     "/cam_high/image_raw/compressed .*cannot be decoded: its definition does not parse"),
    ({"String": None, "CompressedImage": ("foo_msgs/msg/Bar", "ros2msg", b"int8 x")},
     "/cam_high/image_raw/compressed is foo_msgs/msg/Bar; expected sensor_msgs/msg/CompressedImage"),
])
def test_what_is_needed_and_cannot_be_decoded_is_named(tmp_path, side, ours, needed):
    path = write_mcap(tmp_path / "x.mcap", beginning(SECONDS), TYPES, schema=schemas(**ours))
    with pytest.raises(BagError, match=needed):
        report(path, side)


def test_a_channel_without_schema_that_nobody_needs_is_skipped(tmp_path, side, plain):
    path = write_mcap(tmp_path / "x.mcap", beginning(SECONDS), TYPES, schema=schemas(String=None))
    assert said(report(path, side)) == plain


# F56


def test_the_newest_instruction_before_the_start_is_obeyed_and_said(tmp_path, side):
    told = [instruction("first task", start() + 50_000_000), instruction("second task", start() + 150_000_000),
            instruction("a question?", start() + 160_000_000, task=1), instruction("third task", start() + 450_000_000)]
    messages = sorted(without("/instruction") + told, key=lambda m: m.received_ns)
    result = report(write_mcap(tmp_path / "x.mcap", messages, TYPES), side, Part(start=0.2))
    found = result["sides"]["oxygen"]
    assert [i["text"] for i in found["instructions"].values()] == ["second task", "third task"]
    assert found["language"]["requests"] == 0  # what was asked before the start is not asked again
    assert any("before the start: second task" in note for note in found["notes"])
    assert [f["instruction_id"] for f in found["frames"]] == [2, 2, 3]


def test_the_instruction_of_the_command_line_wins(side):
    found = report(BAG, side, Part(start=0.2, seconds=0.3, instruction="fold the towel"))["sides"]["oxygen"]
    assert [i["text"] for i in found["instructions"].values()] == ["fold the towel"]
    assert "instruction of the command line: fold the towel" in found["notes"]
    assert len(found["frames"]) == 3 and all(f["chunk"] for f in found["frames"])


def test_an_instruction_as_a_string(tmp_path, side):
    told = instruction("wave", start() + 1, "std_msgs/msg/String", "/task")
    messages = sorted([*without("/instruction"), told], key=lambda m: m.received_ns)
    path = write_mcap(tmp_path / "x.mcap", messages, {**TYPES, "/task": "std_msgs/msg/String"})
    found = report(path, side, names=Names(instruction="task"))["sides"]["oxygen"]
    assert [i["text"] for i in found["instructions"].values()] == ["wave"]


def test_without_any_instruction_it_is_refused_before_inference(tmp_path, side):
    path = write_mcap(tmp_path / "x.mcap", without("/instruction"), TYPES)
    with pytest.raises(BagError, match="has no instruction.*give one with --instruction TEXT"):
        report(path, side)


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
    assert rollout.misses >= 4 and timing(rollout)["deadline_miss_rate"] == pytest.approx(rollout.misses / 9)


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


# Other messages


def changed(kind: str, topics: set[str], make) -> tuple[list[Recorded], dict[str, str]]:
    """The beginning of the sample with messages of another type on these topics; make(types, message) -> object."""
    def change(m: Recorded) -> Recorded:
        if m.topic not in topics:
            return m
        old = STORE.deserialize_cdr(m.data, TYPES[m.topic])
        return replace(m, data=bytes(STORE.serialize_cdr(make(STORE.types, old), kind)))

    return beginning(SECONDS, change), {**TYPES, **dict.fromkeys(topics, kind)}


def test_raw_pictures_are_the_same_pictures(tmp_path, side, plain):
    kind, topics = "sensor_msgs/msg/Image", {name for name in TYPES if "image_raw" in name}

    def raw(types, old):
        pixels = decode_compressed(old.format, old.data)
        return types[kind](header=old.header, height=480, width=640, encoding="bgr8", is_bigendian=0, step=1920,
                           data=np.ascontiguousarray(pixels[..., ::-1]).ravel())

    path = write_mcap(tmp_path / "x.mcap", *changed(kind, topics, raw))
    cameras = {name: replace(camera, transport="raw") for name, camera in side.settings.camera.items()}
    assert said(report(path, replace(side, settings=replace(side.settings, camera=cameras)))) == plain


def test_commands_as_trajectories(tmp_path, side, plain):
    kind = "trajectory_msgs/msg/JointTrajectory"

    def trajectory(types, old):
        """Half a second that goes on as the recording did is more than the next message leaves of it."""
        none, zero = np.zeros(0), types["builtin_interfaces/msg/Duration"](sec=0, nanosec=0)
        later = types["builtin_interfaces/msg/Duration"](sec=0, nanosec=500_000_000)
        points = [types["trajectory_msgs/msg/JointTrajectoryPoint"](
            positions=p, velocities=none, accelerations=none, effort=none, time_from_start=t)
            for p, t in ((old.position, zero), (old.position + 9, later))]
        return types[kind](header=old.header, joint_names=old.name[::-1], points=[
            replace(p, positions=p.positions[::-1].copy()) for p in points])

    def bounded(result: dict) -> float:
        return result["sides"]["oxygen"]["accuracy"]["policy"]["per_step"]["mae"][0]

    result = report(write_mcap(tmp_path / "x.mcap", *changed(kind, {"/joint_commands"}, trajectory)), side)
    assert bounded(result) == pytest.approx(plain["accuracy"]["policy"]["per_step"]["mae"][0])


def test_commands_as_bare_numbers_are_in_the_order_of_the_actions(tmp_path, side, plain):
    kind = "std_msgs/msg/Float64MultiArray"

    def numbers(types, old):
        layout = types["std_msgs/msg/MultiArrayLayout"](dim=[], data_offset=0)
        return types[kind](layout=layout, data=np.asarray(old.position))

    result = report(write_mcap(tmp_path / "x.mcap", *changed(kind, {"/joint_commands"}, numbers)), side)
    found = result["sides"]["oxygen"]["accuracy"]["policy"]
    # They have no stamp, so they count from their receipt, some hundred microseconds later.
    assert found["per_dimension"]["mae"] == pytest.approx(plain["accuracy"]["policy"]["per_dimension"]["mae"], abs=0.01)


def test_a_ros1_bag(tmp_path, side, plain):
    result = report(write_ros1(tmp_path / "x.bag", beginning(SECONDS)), side, TASK)
    assert said(result)["accuracy"] == plain["accuracy"] and said(result)["frames"] == plain["frames"]


def test_a_simulation_s_recording_whose_stamps_are_not_in_the_recorder_s_time(tmp_path, side, plain):
    """Received a year after what is stamped; its /clock tells the time of the stamps."""
    year, kind = 365 * 24 * 3600 * 10**9, "rosgraph_msgs/msg/Clock"
    messages = beginning(SECONDS)

    def clock(ns: int) -> Recorded:
        time = STORE.types["builtin_interfaces/msg/Time"](sec=ns // 10**9, nanosec=ns % 10**9)
        return Recorded("/clock", ns + year, bytes(STORE.serialize_cdr(STORE.types[kind](clock=time), kind)))

    moved = [replace(m, received_ns=m.received_ns + year) for m in messages]
    with pytest.raises(BagError, match="gives no frame at all.*receipt and header stamps lie that far apart") as error:
        report(write_mcap(tmp_path / "x.mcap", moved), side)
    assert "stamped 31536000." in str(error.value)
    assert not any(word in str(error.value) for word in ("use_sim_time", "--clock", "this node"))
    clocks = [clock(ns) for ns in range(messages[0].received_ns + 5, messages[-1].received_ns, 10_000_000)]
    told = sorted(moved + clocks, key=lambda m: m.received_ns)
    result = report(write_mcap(tmp_path / "y.mcap", told, {**TYPES, "/clock": kind}), side)
    assert said(result) == plain and "time is told by the bag's own /clock" in result["notes"]


# Words


def test_answers_beside_recorded_ones(tmp_path, side):
    """What it said once, recorded: the second time it says exactly that."""
    asked = [instruction("where is the cube?", start() + 120_000_000, task=1),
             instruction("and the arm?", start() + 130_000_000, task=1)]
    messages = sorted(beginning(SECONDS) + asked, key=lambda m: m.received_ns)
    language = report(write_mcap(tmp_path / "x.mcap", messages), side)["sides"]["oxygen"]["language"]
    assert language["requests"] == language["finished"] == 2 and language["tokens"] == 8
    texts = [a["text"] for a in language["answers"]]
    assert language["against_recorded"] is None and language["time_to_first_token_s"]["max"] < 1

    said_once = [instruction(texts[0], start() + 500_000_000, "std_msgs/msg/String", "/said"),
                 instruction(texts[1] + "!", start() + 510_000_000, "std_msgs/msg/String", "/said")]
    again = sorted(messages + said_once, key=lambda m: m.received_ns)
    path = write_mcap(tmp_path / "y.mcap", again, {**TYPES, "/said": "std_msgs/msg/String"})
    found = report(path, side, names=Names(text="/said"))["sides"]["oxygen"]["language"]
    assert [a["text"] for a in found["answers"]] == texts  # sampled, but from a seed
    assert found["against_recorded"]["exact"] == 0.5 and found["against_recorded"]["pairs"] == 2
    assert found["against_recorded"]["edit_distance"] == pytest.approx(0.5 / (len(texts[1]) + 1))


def test_what_comes_unasked_comes_by_the_time_of_the_recording(side):
    often = replace(side, settings=replace(side.settings, language=replace(
        side.settings.language, memory_period=0.5, max_tokens=2)))
    found = report(BAG, often, Part(seconds=2.05))["sides"]["oxygen"]["language"]
    assert [a["task"] for a in found["answers"]] == ["remember"] * 4
    asked = [a["asked_ns"] for a in found["answers"]]
    assert np.diff(asked).tolist() == [500_000_000] * 3


# Recorded commands and instructions that are of no use


def commanded(**changes):
    """The sample with its commands' fields changed; change(old value) -> new value."""
    def make(types, old):
        return replace(old, **{name: change(getattr(old, name)) for name, change in changes.items()})

    return changed("sensor_msgs/msg/JointState", {"/joint_commands"}, make)


@pytest.mark.parametrize("changes, said", [
    ({"position": lambda p: np.full(len(p), np.inf)}, r"/joint_commands: no finite value in \d+ commands;"),
    ({"position": lambda p: np.full(len(p), 1e300)}, r"/joint_commands: no finite value in \d+ commands;"),
    ({"name": lambda n: [n[0]] * len(n)}, "/joint_commands: refused: command: found .* more than once, expected each"),
    ({"name": lambda n: n[:3]}, "/joint_commands: refused: command: found 3 names and 14 values"),
    ({"name": lambda n: ["x" + name for name in n]}, "/joint_commands: names none of left_waist, .*but xleft"),
])
def test_commands_that_say_nothing_are_refused_with_the_reason(tmp_path, side, changes, said):
    with pytest.raises(BagError, match=said):
        report(write_mcap(tmp_path / "x.mcap", *commanded(**changes)), side)


def test_trajectories_without_points_are_called_that(tmp_path, side):
    kind = "trajectory_msgs/msg/JointTrajectory"
    bag = changed(kind, {"/joint_commands"}, lambda types, old: types[kind](
        header=old.header, joint_names=old.name, points=[]))
    with pytest.raises(BagError, match=r"/joint_commands: \d+ trajectories without points"):
        report(write_mcap(tmp_path / "x.mcap", *bag), side)


@pytest.mark.filterwarnings("error")
def test_an_absurd_command_is_remarked_and_not_compared(tmp_path, side):
    def absurd(positions):
        return np.where(np.arange(len(positions)) == 2, 1e300, positions)

    result = report(write_mcap(tmp_path / "x.mcap", *commanded(position=absurd)), side)
    found = result["sides"]["oxygen"]["accuracy"]["policy"]
    assert "/joint_commands has values up to 1e+300, which no robot takes; they are not compared" in result["notes"]
    assert found["per_dimension"]["count"][2] == 0 and found["per_dimension"]["count"][3] > 0 and found["mae"] < 10


def broken(data: bytes) -> Recorded:
    return Recorded("/instruction", start() + 50_000_000, data)


def not_utf8() -> Recorded:
    data = bytearray(instruction("abcdef", 0, "std_msgs/msg/String").data)
    data[8:10] = b"\x80\x81"
    return broken(bytes(data))


@pytest.mark.parametrize("told, kind, said", [
    (instruction("  ", start() + 50_000_000), "oxygen_ros/msg/Instruction", "found an empty or blank text"),
    (instruction("  ", start() + 250_000_000), "oxygen_ros/msg/Instruction", "found an empty or blank text"),
    (instruction("x", start() + 50_000_000, task=77), "oxygen_ros/msg/Instruction", "task is 77, expected one of 0, 1"),
    (not_utf8(), "std_msgs/msg/String", "found 15 bytes that do not deserialise .*utf-8"),
    (broken(instruction("abcdef", 0, "std_msgs/msg/String").data[:9]), "std_msgs/msg/String", "found 9 bytes that do"),
    (broken(b""), "std_msgs/msg/String", "found 0 bytes that do not deserialise"),
])
def test_a_refused_instruction_is_not_called_absent(tmp_path, side, told, kind, said):
    messages = sorted([*without("/instruction"), told], key=lambda m: m.received_ns)
    with pytest.raises(BagError, match=f"has no instruction that can be obeyed: /instruction: .*{said}"):
        report(write_mcap(tmp_path / "x.mcap", messages, {**TYPES, "/instruction": kind}), side)


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
