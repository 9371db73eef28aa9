"""The frame thread: one frame at a time, errands in between, and what an errand raises reaches who asked for it."""

import threading
import time

import pytest

from oxygen_ros.frames import Tick
from oxygen_ros.node.frame_loop import FrameLoop


def test_an_errand_runs_in_the_thread_that_makes_frames():
    threads, made = [], threading.Event()

    def work(_):
        threads.append(threading.current_thread())
        made.set()

    loop = FrameLoop(work, pytest.fail)
    loop.run(lambda: threads.append(threading.current_thread()))
    loop.start()
    loop.tick(Tick(0.0, 0.1))
    assert made.wait(5)
    loop.stop()
    loop.close()
    assert threads[0] is threads[1] is not threading.current_thread()


def test_what_an_errand_raises_is_raised_and_the_loop_goes_on():
    made = threading.Event()
    loop = FrameLoop(lambda _: made.set(), pytest.fail)
    with pytest.raises(ZeroDivisionError):
        loop.run(lambda: 1 / 0)
    loop.start()
    loop.tick(Tick(0.0, 0.1))
    assert made.wait(5)
    loop.close()


def test_what_work_raises_ends_all_ticks_and_is_told_once():
    told, count = [], []
    broken = threading.Event()

    def work(_):
        count.append(1)
        raise KeyError("nobody foresaw this")

    loop = FrameLoop(work, lambda error: (told.append(error), broken.set()))
    loop.start()
    loop.tick(Tick(0.0, 0.1))
    assert broken.wait(5)
    loop.tick(Tick(0.0, 0.1))
    loop.run(lambda: None)  # the thread is still there
    loop.close()
    assert len(count) == len(told) == 1 and isinstance(told[0], KeyError)


def test_what_can_be_done_ahead_is_done_once_between_two_ticks():
    order, ready = [], threading.Event()
    loop = FrameLoop(lambda tick: order.append("work"), pytest.fail, lambda: (order.append("ahead"), ready.set()))
    loop.start()
    for _ in range(2):
        ready.clear()
        loop.tick(Tick(time.monotonic() + 0.2, 0.2))
        assert ready.wait(5)
        loop.run(lambda: None)
    time.sleep(0.3)
    loop.close()
    assert order == ["work", "ahead"] * 2


def test_no_preparation_after_the_end():
    order, worked = [], threading.Event()
    loop = FrameLoop(lambda tick: worked.set(), pytest.fail, lambda: order.append("ahead"))
    loop.start()
    loop.tick(Tick(time.monotonic() + 0.2, 0.2))
    assert worked.wait(5)
    loop.stop()
    time.sleep(0.3)
    loop.close()
    assert order == []
