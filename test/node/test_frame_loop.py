"""The frame thread: one frame at a time, errands in between, and what an errand raises reaches who asked for it."""

import threading

import pytest

from oxygen_ros.node.frame_loop import FrameLoop, Tick


def test_an_errand_runs_in_the_thread_that_makes_frames():
    threads, made = [], threading.Event()

    def work(_):
        threads.append(threading.current_thread())
        made.set()

    loop = FrameLoop(work)
    loop.run(lambda: threads.append(threading.current_thread()))
    loop.start()
    loop.tick(Tick(0.0, 0.1))
    assert made.wait(5)
    loop.stop()
    loop.close()
    assert threads[0] is threads[1] is not threading.current_thread()


def test_what_an_errand_raises_is_raised_and_the_loop_goes_on():
    made = threading.Event()
    loop = FrameLoop(lambda _: made.set())
    with pytest.raises(ZeroDivisionError):
        loop.run(lambda: 1 / 0)
    loop.start()
    loop.tick(Tick(0.0, 0.1))
    assert made.wait(5)
    loop.close()
