"""Time (F41): simulated, that is not told, jumps, begins again and stands still; the system's, that is set anew.

What is said, and that frames go on.
"""

import itertools
import signal
import subprocess
import threading
import time

import pytest
import rclpy
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticStatus
from robot import InProcess, Robot, node_process
from rosgraph_msgs.msg import Clock

from oxygen_ros.children import claim_domain
from oxygen_ros.msg import Instruction
from oxygen_ros.stamps import nanoseconds

# What `date -s` does to a process, without doing it to all others: what it reads, and until when it waits.
SET_ANEW = r"""
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static long ahead() {
    long seconds = 0;
    if (FILE *file = std::fopen(std::getenv("SECONDS_AHEAD"), "r")) {
        if (std::fscanf(file, "%ld", &seconds) != 1) seconds = 0;
        std::fclose(file);
    }
    return seconds;
}
extern "C" int clock_gettime(clockid_t clock, timespec *now) {
    long result = syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += ahead();
    return static_cast<int>(result);
}
extern "C" int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const timespec *until) {
    static void *of_x86 = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    static auto wait = reinterpret_cast<decltype(&pthread_cond_timedwait)>(
        of_x86 ? of_x86 : dlsym(RTLD_NEXT, "pthread_cond_timedwait"));
    timespec told = *until;
    if (told.tv_sec > 1000000000) told.tv_sec -= ahead();  // by the time of day, not since the start of the machine
    return wait(condition, mutex, &told);
}
"""
S = 10**9
WARN = DiagnosticStatus.WARN


class Simulated(Robot):
    """A simulation that tells its time a hundred times a second, and whose sensors stamp by it."""

    def __init__(self, domain: int, node: str = "/oxygen") -> None:
        self.ns, self.stands, self.ended = 1000 * S, False, False
        self.by_the_wall = False  # what sensors stamp by
        super().__init__(domain, node)
        self._clock = self.node.create_publisher(Clock, "/clock", 10)
        self._run = threading.Thread(target=self._simulate)

    def begin_time(self) -> None:
        self._run.start()

    def now(self) -> int:
        return time.time_ns() if self.by_the_wall else self.ns

    def _simulate(self) -> None:
        for index in itertools.count():
            if self.ended:
                return
            self.ns += 0 if self.stands or self.ns < 0 else S // 100
            self._clock.publish(Clock(clock=Time(sec=self.ns // S, nanosec=self.ns % S)))
            if index % 4 == 0:
                self.publish(index // 4)
            time.sleep(0.01)

    def close(self) -> None:
        self.ended = True
        self._run.join()
        super().close()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    domain = claim_domain()
    robot = Simulated(domain)
    node = node_process(domain, tmp_path_factory.mktemp("sim") / "log", settings={
        "use_sim_time": True, "chunk_continuity": "rtc"})
    assert robot.lifecycle.change("configure"), node.log
    assert robot.lifecycle.change("activate")
    robot.wait_for(lambda: robot.heard.reported("inputs", "waiting for /clock: use_sim_time is true", level=WARN),
                   "a status that does not wait for the clock itself")
    robot.begin_time()
    robot.wait_for_topics()
    robot.tell("transfer the cube")
    robot.wait_for_chunks(2)
    yield robot
    robot.close()
    node.signal(signal.SIGTERM)  # while no clock ticks
    assert node.wait() == 0, node.log
    assert "Traceback" not in node.log, node.log


@pytest.fixture
def robot(made):
    robot = made
    robot.reset()
    robot.tell("transfer the cube")
    robot.wait_for_chunks(2)
    return robot


def fine(robot: Simulated) -> None:
    """Frames at their rate, of the present, each joining the one before."""
    def joined(chunk) -> bool:
        return chunk.start == chunk.header.stamp and 0 <= robot.ns - nanoseconds(chunk.header.stamp) < 2 * S

    robot.wait_for(lambda: len(robot.heard.chunks) >= 4 and all(map(joined, robot.heard.chunks[-3:])), "joined chunks")
    robot.heard.diagnostics.clear()
    robot.wait_for(lambda: robot.heard.reported("inputs", "all inputs are used"), "a good status")


@pytest.mark.parametrize("jump", [3600, -900, 2, -2, -0.3, -0.05, None], ids=str)
def test_time_that_jumps_is_gone_along_with(robot, jump):
    """None: to the beginning of all time."""
    robot.ns = 0 if jump is None else robot.ns + int(jump * S)
    robot.heard.chunks.clear()
    fine(robot)


def test_a_bag_played_in_a_loop(robot):
    for _ in range(4):
        robot.ns = 50 * S
        robot.wait_for_chunks(3)
    robot.heard.chunks.clear()
    fine(robot)


def test_a_time_that_there_is_not_is_dropped_and_the_next_one_counts(robot):
    robot.ns, told = -5 * S, robot.ns
    robot.wait_for(lambda: robot.heard.said("a message or request was dropped", "Seconds value must not be negative",
                                            "clock_callback"), "a line")
    robot.ns = told
    robot.heard.chunks.clear()
    fine(robot)


def test_two_clocks_are_named(robot):
    other = rclpy.create_node("bag_player", context=robot.context)
    other.create_publisher(Clock, "/clock", 10)
    robot.wait_for(lambda: robot.heard.reported("inputs", "/clock: 2 publishers, /bag_player and /robot; time jumps",
                                                level=WARN), "a status")
    other.destroy_node()
    fine(robot)


def test_time_that_stands_still_is_told_and_stop_is_obeyed_meanwhile(robot):
    robot.stands = True
    robot.wait_for(lambda: robot.heard.reported("inputs", "/clock stands still, or is slow", level=WARN), "a status")
    count = len(robot.heard.chunks)
    robot.tell(task=Instruction.STOP, id=99)
    assert robot.wait_for_chunks(since=count)[0].instruction_id == 99
    robot.stands = False
    robot.tell("transfer the cube")
    robot.heard.chunks.clear()
    fine(robot)


def test_sensors_of_the_wall_s_time_are_told_what_to_set(robot):
    robot.by_the_wall = True
    robot.wait_for(lambda: robot.heard.said("no chunk: /joint_states", "after /clock; let who publishes it set "
                                            "use_sim_time too"), "a line")
    robot.by_the_wall = False
    robot.heard.chunks.clear()
    fine(robot)


@pytest.mark.parametrize("back", [None, -300, -1], ids=str)
def test_time_that_begins_again_while_a_frame_is_computed(back):
    """What was seen then is of a time that has not come yet. None: to the beginning of all time."""
    domain, name = claim_domain(), f"reset{-(back or 0)}"
    robot = Simulated(domain, f"/{name}")
    node = InProcess(domain, name, {"use_sim_time": True, "instruction": "transfer the cube"})
    reached, going_on = threading.Event(), threading.Event()
    try:
        assert robot.lifecycle.change("configure")
        robot.begin_time()
        robot.wait_for_topics()
        assert robot.lifecycle.change("activate")
        robot.wait_for_chunks(2)
        frame = node.engine.frame

        def held_up(*arguments, **options):
            reached.set()
            going_on.wait(10)
            return frame(*arguments, **options)

        node.engine.frame = held_up
        assert reached.wait(10)
        robot.heard.chunks.clear()
        robot.ns = 0 if back is None else robot.ns + back * S
        began = robot.ns
        robot.wait_for(lambda: node.node.get_clock().now().nanoseconds < began + S, "the new time at the node")
        node.engine.frame = frame
        going_on.set()
        robot.wait_for(lambda: robot.heard.said("chunk not sent: the time was set back by more than"), "a line")
        chunks = robot.wait_for_chunks(3, since=0)
        assert all(nanoseconds(chunk.header.stamp) <= robot.ns for chunk in chunks), began
        assert node.node.session.frames.health.late_chunks == 1
    finally:
        going_on.set()
        robot.close()
        node.close()


class SetAnew(Robot):
    """Sensors on the machine whose time is set anew."""

    ahead = 0  # s

    def now(self) -> int:
        return super().now() + self.ahead * S


def test_frames_go_on_when_the_system_s_time_is_set_back_or_ahead(tmp_path, monkeypatch):
    source, library, ahead = tmp_path / "shift.cpp", tmp_path / "shift.so", tmp_path / "ahead"
    source.write_text(SET_ANEW)
    ahead.write_text("0")
    subprocess.run(["c++", "-shared", "-fPIC", "-o", library, source], check=True)
    domain = claim_domain()
    robot = SetAnew(domain)
    with monkeypatch.context() as environment:
        environment.setenv("LD_PRELOAD", str(library))
        environment.setenv("SECONDS_AHEAD", str(ahead))
        node = node_process(domain, tmp_path / "log")
    try:
        robot.bring_up()
        with robot.running():
            for robot.ahead in (3600, 0, -3600):
                ahead.write_text(str(robot.ahead))
                robot.heard.chunks.clear()
                robot.wait_for(lambda: len(robot.heard.chunks) >= 5 and abs(
                    nanoseconds(robot.heard.chunks[-1].header.stamp) - robot.now()) < 2 * S, "chunks of the present")
    finally:
        robot.close()
        node.close()
