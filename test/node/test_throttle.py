"""One line per topic, kind and period."""

import pytest

from oxygen_ros.node.throttle import Throttle


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("oxygen_ros.node.throttle.time.monotonic", lambda: now[0])
    return now


def test_numbers_do_not_make_another_kind(clock):
    throttle = Throttle(period=5.0)
    assert throttle("/cam", "0.51 s old, step 7 of 1919") == "0.51 s old, step 7 of 1919"
    assert throttle("/cam", "0.61 s old, step 8 of 1920") is None
    assert throttle("/cam", "no message yet") == "no message yet"
    assert throttle("/other", "0.61 s old, step 8 of 1920") is not None
    clock[0] += 4.9
    assert throttle("/cam", "5.4 s old, step 0 of 1") is None
    clock[0] += 0.2
    assert throttle("/cam", "5.6 s old, step 0 of 1") == "5.6 s old, step 0 of 1 (2 more like this since)"
    clock[0] += 6
    assert throttle("/cam", "12 s old, step 0 of 1") == "12 s old, step 0 of 1"


def test_what_it_remembers_has_a_bound(clock):
    throttle = Throttle()
    for number in range(1000):
        throttle("/cam " + chr(0x4E00 + number), "no message yet")
    assert len(throttle._said) <= 64


def test_a_topic_that_is_wrong_in_another_way_each_time_says_a_few_of_them(clock):
    throttle = Throttle(period=5.0)

    def said() -> int:
        return sum(throttle("/cam", "encoding " + chr(0x4E00 + number)) is not None for number in range(100))

    assert said() == 8
    assert throttle("/other", "no message yet") is not None
    clock[0] += 5.1
    assert said() == 8
