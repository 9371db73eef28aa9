"""Messages judged without ROS: what overtakes, freezes, goes astray or begins again, and what is counted."""

import struct

import numpy as np
import pytest

from oxygen_ros.embodiment.errors import InputError
from oxygen_ros.inputs import CameraInput, Inputs, JointInput
from oxygen_ros.plain_cdr import header_stamp_ns, restamped
from oxygen_ros.source import NotReady, Now

S = 10**9
T = 1000 * S


def message(stamp_ns: int, body: bytes) -> bytes:
    return restamped(b"\0\1\0\0" + bytes(8) + body, stamp_ns)


def at(seconds: float, ros: float | None = None) -> Now:
    """Steady and ROS time so many seconds after the beginning; they differ where time is simulated."""
    return Now(round(seconds * S), T + round((seconds if ros is None else ros) * S))


def decode(serialized: bytes) -> np.ndarray:
    if serialized[12:] == b"bad":
        raise InputError("picture", "nothing", "something")
    return np.frombuffer(serialized[12:], np.uint8)


def camera(**options) -> CameraInput:
    return CameraInput("/cam", decode, 0.5, **options)


def send(source, seconds: float, body: bytes = b"x", stamp: float | None = None, ros: float | None = None) -> None:
    now = at(seconds, ros)
    source.receive(message(T + round((seconds if stamp is None else stamp) * S), body), now)


def sample(source, seconds: float, body: bytes, came: float, skipped: int, ros: float | None = None) -> None:
    """A message that came earlier than it is looked at, after others that nobody looked at."""
    source.receive(message(T + round(came * S), body), at(seconds, ros), round(came * S), skipped)


def why(call) -> str:
    with pytest.raises(NotReady) as error:
        call()
    return str(error.value)


def test_a_stamp_is_written_and_read_in_both_byte_orders():
    for order in (b"\0\1\0\0", b"\0\0\0\0"):
        data = restamped(order + bytes(8) + b"rest", 5 * S + 7)
        assert header_stamp_ns(data) == 5 * S + 7 and data[12:] == b"rest" and data[:4] == order
        assert struct.unpack_from("<I" if order[1] else ">I", data, 8)[0] == 7


def test_a_picture_that_was_overtaken_is_counted_and_left():
    source = camera()
    send(source, 1.0, b"a")
    send(source, 1.2, b"c")
    send(source, 1.3, b"b", stamp=1.1)
    assert source.picture(at(1.3)).pixels.tobytes() == b"c" and source.late == 1
    # Older than the limit is no picture that was overtaken, but a clock that was set back: it is judged by its age.
    send(source, 1.4, b"d", stamp=-100.0)
    assert "stamped 101.40 s before this node's clock" in why(lambda: source.picture(at(1.4))) and source.late == 1
    send(source, 1.5, b"e")
    assert source.picture(at(1.5)).pixels.tobytes() == b"e"


def test_a_stamp_from_the_future_overtakes_nothing():
    """One such message among good ones, or a second clock, must not hide the good ones until its time has come."""
    source = CameraInput("/cam", decode, 60.0)
    joints = JointInput("/joints", lambda data: (["a"], [float(data[12:])]), ["a"], 60.0)
    for moment in range(10):
        send(source, 1 + moment, b"ahead", stamp=31 + moment)
        send(joints, 1 + moment, b"9", stamp=31 + moment)
        assert "stamped 30.00 s after this node's clock" in why(lambda: source.picture(at(1 + moment)))
        assert "stamped 30.00 s after this node's clock" in why(lambda: joints.state(at(1 + moment)))
        send(source, 1.5 + moment, b"good")
        send(joints, 1.5 + moment, b"2")
        assert source.picture(at(1.6 + moment)).pixels.tobytes() == b"good"
        assert joints.state(at(1.6 + moment))[0].tolist() == [2.0]
    assert (source.late, joints.late) == (0, 0)
    send(source, 11.0, b"a little ahead", stamp=11.05)  # as a clock may be
    send(source, 11.0, b"good", stamp=11.0)
    assert source.late == 1 and source.picture(at(11.1)).pixels.tobytes() == b"a little ahead"


def test_a_picture_is_settled_when_the_next_one_is_expected_later_than_asked():
    source = camera()
    assert not source.settled(0.0)
    send(source, 1.0, b"a")
    assert not source.settled(1.1)  # one picture tells nothing of the next
    send(source, 1.1, b"b")
    assert source.settled(1.19) and not source.settled(1.21)
    send(source, 1.15, b"b", stamp=1.1)  # sent again
    assert source.settled(1.19) and not source.settled(1.21)
    send(source, 1.2, b"c")
    send(source, 1.25, b"bad")
    inputs = Inputs(JointInput("/joints", decode, ["j"], 0.5), {"cam": source})
    assert inputs.settled(1.31, at(1.25)) == {} and source.refused == 0  # not even looked at
    assert [p.tobytes() for p in inputs.settled(1.29, at(1.25)).values()] == [] and source.refused == 1
    send(source, 1.3, b"d")
    assert [p.tobytes() for p in inputs.settled(1.34, at(1.3)).values()] == [b"d"]


def test_joints_that_were_overtaken_keep_their_newer_value():
    table = {b"a1": (["a"], [1.0]), b"a2": (["a"], [2.0]), b"b": (["b"], [5.0])}
    source = JointInput("/joints", lambda data: table[data[12:]], ["a", "b"], 0.5)
    send(source, 1.0, b"a2")
    send(source, 1.1, b"a1", stamp=0.9)
    send(source, 1.2, b"b", stamp=0.8)  # older, but the first word about b
    values, _ = source.state(at(1.2))
    assert values.tolist() == [2.0, 5.0] and source.late == 1


@pytest.mark.parametrize("frozen_after, refused", [(3, True), (4, False), (0, False)])
@pytest.mark.parametrize("size", [1, 10_000])
def test_a_frozen_camera_is_told_by_its_bytes(frozen_after, refused, size):
    source = camera(frozen_after=frozen_after)
    for i in range(4):  # the first one differs in one byte, far from the end
        send(source, 1 + i / 10, (b"f" if i == 0 else b"s") + b"ame" * size)
    assert (source.received, source.refused) == (4, 0)
    if refused:
        assert "frozen: its last 3 pictures are the same, byte for byte, frozen_after is 3" in why(
            lambda: source.picture(at(1.3)))
        send(source, 1.4, b"another")
    assert source.picture(at(1.4)).pixels.tobytes() == (b"another" if refused else b"s" + b"ame" * size)


def test_stamps_that_are_missing_are_counted():
    source = camera()
    source.receive(message(0, b"a"), at(1.0))
    send(source, 1.1, b"b")
    assert (source.received, source.stampless) == (2, 1)


def test_time_that_begins_again_begins_with_nothing():
    """A bag played in a loop: what was seen in the last round is no picture of this one."""
    source = camera()
    send(source, 50.0, b"old")
    send(source, 51.0, b"new", stamp=10.0, ros=10.0)
    assert source.picture(at(51.1, ros=10.1)).pixels.tobytes() == b"new" and source.late == 0
    joints = JointInput("/joints", lambda data: ([data[12:].decode()], [1.0]), ["a", "b"], 0.5)
    send(joints, 50.0, b"a")
    send(joints, 51.0, b"b", stamp=10.0, ros=10.0)
    assert "no a" in why(lambda: joints.state(at(51.1, ros=10.1)))


def test_what_has_not_come_again_since_time_was_set_back_is_told_so():
    """Not that it is ahead of a clock that was set back itself."""
    source, joints = camera(), JointInput("/joints", lambda data: (["a"], [1.0]), ["a"], 0.5)
    for each in (source, joints):
        send(each, 50.0)
    for call in (lambda: source.picture(at(51.0, ros=-3549.0)), lambda: joints.state(at(51.0, ros=-3549.0))):
        assert "no message since this node's clock was set back by more than 3599.00 s" in why(call)


def test_joints_whose_stamp_has_not_changed_are_no_news():
    """F40: sent again and again, they get old; others of another time do not make them younger."""
    table = {b"a": (["a"], [1.0]), b"b": (["b"], [5.0])}
    source = JointInput("/joints", lambda data: table[data[12:]], ["a", "b"], 0.5)
    for i in range(10):
        send(source, 1 + i / 10, b"a", stamp=1.0)
        send(source, 1 + i / 10, b"b", stamp=1.0)  # one loop of a controller, in two messages
        if i < 5:
            assert source.state(at(1 + i / 10))[0].tolist() == [1.0, 5.0]
    assert "messages come, but their stamp has not changed for 0.90 s" in why(lambda: source.state(at(1.9)))
    send(source, 2.0, b"b")
    assert "messages come, but none with a for 1.00 s" in why(lambda: source.state(at(2.0)))
    send(source, 2.1, b"a")
    assert source.state(at(2.1))[0].tolist() == [1.0, 5.0]


def test_time_that_begins_again_while_joints_are_read_does_not_end_the_frame(monkeypatch):
    source = JointInput("/joints", lambda data: (["a"], [1.0]), ["a"], 0.5)
    send(source, 1.0, b"a")
    read = source._buffer.read
    monkeypatch.setattr(source._buffer, "read", lambda: (read(), source.clear())[0])  # as the thread that hears would
    assert source.state(at(1.1))[0].tolist() == [1.0]
    assert "no message yet" in why(lambda: source.state(at(1.1)))


def test_a_part_whose_stamps_are_behind_is_told_so_whichever_part_came_last():
    table = {b"a": (["a"], [1.0]), b"b": (["b"], [2.0])}
    source = JointInput("/joints", lambda data: table[data[12:]], ["a", "b"], 0.5)
    for tenth in range(10, 20):
        send(source, tenth / 10, b"b", stamp=tenth / 10 - 0.7)
        assert "stamped 0.70 s before this node's clock though it had just come" in why(
            lambda: source.state(at(tenth / 10))) or tenth == 10  # a was not heard yet
        send(source, tenth / 10 + 0.01, b"a")
        assert "stamped 0.70 s before this node's clock though it had just come" in why(
            lambda: source.state(at(tenth / 10 + 0.02)))
    for hundredth in range(200, 260):
        send(source, hundredth / 100, b"b")
    assert why(lambda: source.state(at(2.6))) == (
        "/joints: messages come, but none with a for 0.69 s, the limit is 0.5 s")


def test_a_refusal_among_good_messages_is_told_once_and_reported_for_a_while():
    def joint(data: bytes):
        return (["a"], [1.0]) if data[12:] == b"good" else (["a"], [])

    def decoded(data: bytes):
        names, positions = joint(data)
        if not positions:
            raise InputError("joint state", "1 names and 0 positions", "as many as names")
        return names, positions

    source = JointInput("/joints", decoded, ["a"], 0.5)
    send(source, 1.0, b"bad")
    send(source, 1.01, b"good")
    assert source.state(at(1.1))[0].tolist() == [1.0] and source.problem is None
    assert ["1 names and 0 positions" in str(reason) for reason in source.news()] == [True]
    assert source.news() == []
    assert ["1 names and 0 positions" in str(reason) for reason in source.complaints(at(2.5))] == [True]
    assert source.complaints(at(3.5)) == []


def test_after_a_jump_of_the_clock_ahead_the_age_that_is_told_is_above_the_limit():
    source = camera()
    send(source, 1.0)
    told = why(lambda: source.picture(at(1.1, ros=3601)))
    assert "the last good message came 3600.00 s ago, the limit is 0.5 s" in told


def robot(skew: float = 0.0, **of_second) -> Inputs:
    cameras = {"one": CameraInput("/one", decode, 0.5), "two": CameraInput("/two", decode, 0.5, **of_second)}
    return Inputs(JointInput("/joints", lambda data: (["a"], [1.0]), ["a"], 0.5), cameras, skew)


def hear(inputs: Inputs, **stamps: float) -> None:
    for name, source in (*inputs.cameras.items(), ("joints", inputs.joints)):
        if name in stamps:
            send(source, 2.0, name.encode(), stamp=stamps[name])


def test_pictures_that_lie_too_far_apart_make_no_frame():
    apart = {"one": 2.0, "two": 1.75, "joints": 2.0}
    inputs = robot(skew=0.2)
    hear(inputs, **apart)
    assert why(lambda: inputs.snapshot(at(2.0))) == "/two: stamped 0.250 s before /one, camera_skew is 0.2 s"
    assert [source.unusable for source in inputs] == [0, 1, 0]
    for skew in (0.3, 0.0):
        inputs = robot(skew=skew)
        hear(inputs, **apart)
        assert sorted(inputs.snapshot(at(2.0)).images) == ["one", "two"]


def test_an_optional_camera_is_left_out_while_it_is_of_no_use():
    inputs = robot(optional=True)
    hear(inputs, one=2.0, joints=2.0)
    snapshot = inputs.snapshot(at(2.0))
    assert list(snapshot.images) == ["one"] and [str(r) for r in snapshot.masked] == ["/two: no message yet"]
    assert snapshot.stamps == {"/one": T + 2 * S, "/joints": T + 2 * S}
    hear(inputs, two=2.0)
    snapshot = inputs.snapshot(at(2.0))
    assert sorted(snapshot.images) == ["one", "two"] and snapshot.masked == ()
    astray = robot(skew=0.1, optional=True)
    hear(astray, one=2.0, two=1.8, joints=2.0)
    assert list(astray.snapshot(at(2.0)).images) == ["one"]
    ahead = robot(skew=0.1, optional=True)
    hear(ahead, one=1.8, two=2.0, joints=2.0)
    snapshot = ahead.snapshot(at(2.0))
    assert list(snapshot.images) == ["one"]
    assert [str(r) for r in snapshot.masked] == ["/two: stamped 0.200 s after /one, camera_skew is 0.1 s"]
    assert [source.unusable for source in ahead] == [0, 1, 0]
    # One that is not optional is still needed.
    inputs = robot(optional=True)
    hear(inputs, two=2.0, joints=2.0)
    assert why(lambda: inputs.snapshot(at(2.0))) == "/one: no message yet"
    assert [source.unusable for source in inputs] == [1, 0, 0]


def test_optional_cameras_lie_no_farther_apart_than_others():
    cameras = {name: CameraInput(f"/{name}", decode, 0.5, optional=name != "one") for name in ("one", "two", "three")}
    inputs = Inputs(JointInput("/joints", lambda data: (["a"], [1.0]), ["a"], 0.5), cameras, 0.1)
    hear(inputs, one=1.9, two=1.82, three=1.98, joints=2.0)
    snapshot = inputs.snapshot(at(2.0))
    assert sorted(snapshot.images) == ["one", "three"]
    assert [str(r) for r in snapshot.masked] == ["/two: stamped 0.160 s before /three, camera_skew is 0.1 s"]


def test_pictures_that_nobody_looked_at_count_as_received_and_as_frozen_between_two_that_are_alike():
    source = camera(frozen_after=6)
    send(source, 1.0, b"a")
    sample(source, 1.20, b"a", came=1.19, skipped=3)  # the fifth
    assert source.received == 5 and source.picture(at(1.2)).pixels.tobytes() == b"a"
    sample(source, 1.30, b"a", came=1.29, skipped=1)  # the seventh
    assert source.received == 7
    assert "frozen: its last 7 pictures are the same" in why(lambda: source.picture(at(1.3)))
    sample(source, 1.40, b"b", came=1.39, skipped=1)
    assert source.picture(at(1.4)).pixels.tobytes() == b"b"


def test_the_age_of_a_picture_counts_from_when_it_came_not_from_when_it_was_looked_at():
    source = camera()
    sample(source, 1.4, b"a", came=1.0, skipped=0)
    assert source.age(at(1.4)) == pytest.approx(0.4) and source.picture(at(1.45)).pixels.tobytes() == b"a"
    assert "0.60 s ago" in why(lambda: source.picture(at(1.6)))


def test_a_stamp_of_zero_is_replaced_by_when_the_picture_came():
    source = camera()
    source.receive(message(0, b"a"), at(1.3), round(1.1 * S), 0)
    assert source.good_stamp_ns is None and source.picture(at(1.3)).arrival.stamp_ns == T + round(1.1 * S)


def test_the_next_picture_is_expected_after_the_mean_gap_of_those_that_were_skipped():
    source = camera()
    send(source, 1.0, b"a")
    sample(source, 1.3, b"b", came=1.3, skipped=2)
    assert source.settled(1.39) and not source.settled(1.41)


def test_joints_are_settled_as_pictures_are():
    source = JointInput("/joints", lambda data: (("a",), [0.0]), ("a",), 0.5)
    for came in (1.0, 1.02, 1.04):
        send(source, came)
    assert source.settled(1.055) and not source.settled(1.065)


def test_a_simulated_time_that_stood_still_while_a_picture_waited_has_not_begun_again():
    source = camera()
    send(source, 1.0, b"a", stamp=0.0, ros=0.0)
    source.receive(message(T, b"b"), at(3.0, ros=0.0), round(2.0 * S), 0)  # one second ago the simulation stood too
    assert source.received == 2 and "has not changed for 2.00 s" in why(lambda: source.picture(at(3.0, ros=0.0)))
    source.receive(message(T + S // 2, b"c"), at(3.5, ros=0.5), round(3.4 * S), 0)
    assert source.picture(at(3.5, ros=0.5)).arrival.receipt == Now(round(3.4 * S), T + round(0.4 * S))
    source.receive(message(T - 9 * S, b"d"), at(4.0, ros=-9.0), round(3.9 * S), 0)  # now it has
    assert source.picture(at(4.0, ros=-9.0)).pixels.tobytes() == b"d"


@pytest.mark.parametrize(("names", "whole"), [
    ((("a", "b"), ("b", "c", "a")), True), ((("a", "b"), ("a",)), False), ((("b",), ("a", "b")), False)])
def test_joint_states_are_whole_while_each_has_all_joints(names, whole):
    source = JointInput("/joints", lambda data: (names[data[12]], [0.0] * len(names[data[12]])), ("a", "b"), 0.5)
    for number in range(len(names)):
        send(source, 1.0 + number / 10, bytes([number]))
    source.clear()  # it is the robot that has such drivers, not the moment
    assert source.whole is whole and source.needs_all() is not whole


def test_for_ten_seconds_after_a_picture_that_came_late_all_are_needed():
    source = camera()
    for came, stamp in ((1.0, 1.0), (1.1, 1.2)):
        send(source, came, stamp=stamp)
    assert not source.needs_all()
    send(source, 1.2, stamp=1.1)
    assert source.late == 1 and source.needs_all()
    send(source, 11.1)
    assert source.needs_all()
    send(source, 11.3)
    assert not source.needs_all()
