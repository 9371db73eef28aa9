"""The same pictures, commands and time in other messages, and commands that are of no use."""

from dataclasses import replace

import numpy as np
import pytest
from bags import beginning, write_mcap, write_ros1
from evaluating import SECONDS, STORE, TASK, TYPES, report, said

from oxygen_ros.embodiment.images import decode_compressed
from oxygen_ros.replay.bag import BagError, Recorded


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
