"""Joints by name, in whatever order and parts they come (F11)."""

import re

import numpy as np
import pytest

from oxygen_ros.embodiment.errors import InputError
from oxygen_ros.embodiment.joints import JointBuffer, pair, read_state

WANTED = ["joint1", "joint2", "joint3", "joint4", "gripper"]
NAMES, POSITIONS = ["joint2", "joint3", "joint1", "joint4", "gripper", "extra"], [2, 3, 1, 4, 5, 9]


def test_order_is_by_name_and_extras_are_ignored():
    assert read_state(WANTED, pair(NAMES, POSITIONS)).tolist() == [1, 2, 3, 4, 5]


def test_missing_joints_are_listed_exactly():
    with pytest.raises(InputError) as error:
        read_state(WANTED, {"joint2": 1.0, "joint4": 1.0, "extra": 1.0})
    assert str(error.value).startswith("joint state: found no joint1, joint3, gripper, expected ")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_not_finite_is_named(bad):
    with pytest.raises(InputError, match=re.escape(f"joint3 = {bad}")):
        read_state(WANTED, pair(NAMES, [2, bad, 1, 4, 5, 9]))
    assert read_state(WANTED, pair(NAMES, [2, 3, 1, 4, 5, bad])).tolist() == [1, 2, 3, 4, 5]


def test_lengths_that_differ_and_names_given_twice_are_refused():
    with pytest.raises(InputError, match="6 names and 0 positions"):
        pair(NAMES, [])
    with pytest.raises(InputError, match="joint1 more than once"):
        pair(["joint1", "joint2", "joint1"], [1, 2, 3])


def test_parts_of_a_robot_add_up_each_with_its_own_stamps():
    buffer = JointBuffer(WANTED)
    buffer.update(["joint4", "joint2", "joint1", "joint3"], [4, 2, 1, 3], stamp_ns=100, receipt_ns=107, behind_ns=7)
    with pytest.raises(InputError) as error:
        buffer.read()
    assert str(error.value).startswith("joint state: found no gripper, expected ")

    buffer.update(["gripper"], [5], stamp_ns=90, receipt_ns=108, behind_ns=18)
    read = buffer.read()
    assert read.positions.tolist() == [1, 2, 3, 4, 5]
    assert (read.stamp_ns, read.oldest, read.behind_ns, read.receipt_ns) == (90, ("gripper",), 18, 107)

    buffer.update(["gripper", "wheel"], [6, 0], stamp_ns=300, receipt_ns=309, behind_ns=9)
    read = buffer.read()
    assert read.positions.tolist() == [1, 2, 3, 4, 6]
    assert (read.stamp_ns, read.oldest, read.behind_ns, read.receipt_ns) == (100, tuple(WANTED[:4]), 7, 107)


def test_the_same_stamp_again_is_the_same_news():
    buffer = JointBuffer(["a", "b"])
    buffer.update(["a", "b"], [1, 2], stamp_ns=100, receipt_ns=7)
    buffer.update(["a", "b"], [1, 3], stamp_ns=100, receipt_ns=50, behind_ns=40)
    read = buffer.read()
    assert (read.positions.tolist(), read.receipt_ns, read.behind_ns) == ([1, 3], 7, 0)
    buffer.update(["a"], [1], stamp_ns=101, receipt_ns=60)
    assert (buffer.read().oldest, buffer.read().receipt_ns) == (("b",), 7)
    buffer.update(["b"], [1], stamp_ns=101, receipt_ns=70)
    assert buffer.read().receipt_ns == 60


def test_a_bad_message_changes_nothing():
    buffer = JointBuffer(["a", "b"])
    buffer.update(["a", "b"], [1, 2], stamp_ns=1)
    for names, positions in ((["a", "b"], [9, np.nan]), (["a", "b"], [9])):
        with pytest.raises(InputError):
            buffer.update(names, positions, stamp_ns=2)
    read = buffer.read()
    assert (read.positions.tolist(), read.stamp_ns) == ([1, 2], 1)
    buffer.clear()
    with pytest.raises(InputError, match="no a, b"):
        buffer.read()


def test_thousands_of_repeated_names_are_refused_in_one_readable_line():
    names = [f"x{i}" for i in range(5000)] * 2
    with pytest.raises(InputError, match="x0, x1, x10, x100, x1000 and others more than once") as error:
        pair(names, [0.0] * len(names))
    assert len(str(error.value)) < 700


def test_what_others_chose_to_send_cannot_forge_a_line():
    with pytest.raises(InputError) as error:
        pair(["a\n[INFO] all is well\x1b[31m"] * 2, [0.0, 0.0])
    assert str(error.value).isprintable() and r"\n[INFO]" in str(error.value)
