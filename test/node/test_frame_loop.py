"""The frame thread: one frame at a time, errands in between, and what an errand raises reaches who asked for it."""

import math
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


def test_what_is_offered_is_done_ahead_between_two_ticks_and_told_the_next_one():
    order, ready = [], threading.Event()

    def ahead(next_tick):
        order.append(next_tick)
        ready.set()

    loop = FrameLoop(lambda tick: order.append("work"), pytest.fail, ahead)
    loop.start()
    ticks = []
    for _ in range(2):
        ready.clear()
        ticks.append(time.monotonic() + 60)
        loop.tick(Tick(ticks[-1], 60))
        loop.run(lambda: None)  # after the frame
        loop.offer()
        assert ready.wait(5)
        loop.run(lambda: None)
    loop.close()
    assert order == ["work", ticks[0], "work", ticks[1]]


def test_what_is_offered_during_a_frame_is_done_behind_it():
    order, go, ready = [], threading.Event(), threading.Event()

    def work(_):
        assert go.wait(5)
        order.append("work")

    loop = FrameLoop(work, pytest.fail, lambda _: (order.append("ahead"), ready.set()))
    loop.start()
    loop.tick(Tick(time.monotonic() + 60, 60))
    while loop.next_tick == math.inf:  # until it has begun
        time.sleep(0.001)
    loop.offer()
    go.set()
    assert ready.wait(5)
    loop.close()
    assert order == ["work", "ahead"]


def test_nothing_is_done_ahead_after_the_end():
    order = []
    loop = FrameLoop(lambda tick: None, pytest.fail, lambda _: order.append("ahead"))
    loop.start()
    loop.tick(Tick(time.monotonic() + 60, 60))
    loop.run(lambda: None)
    loop.stop()
    loop.offer()
    loop.run(lambda: None)
    loop.close()
    assert order == [] and loop.next_tick == math.inf


def test_the_next_tick_is_on_the_grid_of_those_that_came_while_they_come():
    loop = FrameLoop(lambda tick: None, pytest.fail)
    loop.start()
    assert loop.next_tick == math.inf
    due = time.monotonic() - 100.5  # a frame that has taken a hundred periods
    loop.tick(Tick(due, 1.0))
    loop.run(lambda: None)
    assert loop.next_tick == due + 101
    loop.tick(Tick(time.monotonic() - 1, 1e-3))
    loop.run(lambda: None)
    time.sleep(0.05)
    assert loop.next_tick == math.inf  # the clock stands still
    loop.close()
