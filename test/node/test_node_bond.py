"""The bond that Nav2's lifecycle manager holds a node by."""

import ctypes
import importlib
import os
import signal
import time
from pathlib import Path

import pytest
from nav2 import Manager, build_bond
from robot import InProcess, Robot, node_process

from oxygen_ros.children import claim_domain

BOND = {"bond_heartbeat_period": 0.1}
PUBLISHED = "RIHS01_87eaccffa254ffffadc0b61600452e8251740f06c25659a2dbda4927fdb1f70a"  # of ros/bond_core's Status


@pytest.fixture(scope="module")
def bond_package(tmp_path_factory):
    """bond/msg/Status in this process, and in those that are started from now on."""
    paths = build_bond(tmp_path_factory.mktemp("bond"))
    with pytest.MonkeyPatch.context() as patched:
        for name, path in paths.items():
            patched.setenv(name, path, prepend=os.pathsep)
        patched.syspath_prepend(paths["PYTHONPATH"])
        importlib.invalidate_caches()
        # A process is asked for its search path of libraries once, when it starts: here they are found because they
        # are in.
        for file in sorted(Path(paths["LD_LIBRARY_PATH"]).glob("*.so")):
            ctypes.CDLL(str(file))
        yield paths


@pytest.fixture
def managed(tmp_path, request):
    """A robot, the node in a process of its own, and a manager that asks for a heartbeat a second."""
    domain = claim_domain()
    settings = {**BOND, **getattr(request, "param", {})}
    robot, node = Robot(domain), node_process(domain, tmp_path / "log", settings=settings)
    yield robot, node, Manager(robot, "oxygen", bond_timeout=1.0)
    robot.close()
    node.close()


def test_without_the_package_configure_says_what_is_missing(tmp_path):
    domain = claim_domain()
    robot, node = Robot(domain), node_process(domain, tmp_path / "log", settings=BOND)
    assert not robot.lifecycle.change("configure")
    robot.wait_for(lambda: robot.heard.said("bond_heartbeat_period", "apt install ros-", "-bond"), "the reason")
    robot.set_parameter("bond_heartbeat_period", 0.0)
    robot.bring_up()
    assert not robot.node.count_publishers("/bond")
    robot.close()
    node.close()


def test_the_message_is_the_published_one(bond_package):
    from bond.msg import Status

    assert list(Status.get_fields_and_field_types().items()) == [
        ("header", "std_msgs/Header"), ("id", "string"), ("instance_id", "string"), ("active", "boolean"),
        ("heartbeat_timeout", "float"), ("heartbeat_period", "float"),
    ]
    assert PUBLISHED in Path(bond_package["AMENT_PREFIX_PATH"], "share/bond/msg/Status.json").read_text()


@pytest.mark.parametrize("managed", [{"use_sim_time": True}], indirect=True)
def test_each_activation_is_a_bond_of_its_own(bond_package, managed):
    robot, node, manager = managed
    assert manager.startup()  # though simulated time stands still
    first = manager.bond
    robot.wait_for(lambda: len(first.heard) > 5, "heartbeats")
    told = first.heard[-1]
    assert (told.id, told.active) == ("oxygen", True)
    assert (told.heartbeat_period, told.heartbeat_timeout) == pytest.approx((0.1, 4.0))
    for stranger in ("oxygen2", "2oxygen", "controller_server"):
        first.say(False, name=stranger)
    time.sleep(1.5)
    assert first.state == "alive" and len({status.instance_id for status in first.heard}) == 1

    assert robot.lifecycle.change("deactivate")
    robot.wait_for(lambda: first.state == "dead", "word of the end")
    assert first.left_by_other
    count = len(first.heard)
    time.sleep(0.5)
    assert len(first.heard) == count and not first.heard[-1].active  # it has been answered, and is not repeated
    manager.let_go()

    for _ in range(3):
        assert manager.resume()
        robot.wait_for(lambda: len(manager.bond.heard) > 3, "heartbeats")
        assert manager.bond.heard[-1].instance_id != told.instance_id
        assert not manager.node_is_down()
        told = manager.bond.heard[-1]
        assert manager.pause()

    assert manager.resume()
    robot.wait_for(lambda: len(manager.bond.heard) > 3, "heartbeats")
    node.signal(signal.SIGINT)
    robot.wait_for(manager.node_is_down, "word of the end")
    assert manager.bond.left_by_other
    assert node.wait() == 0


def test_a_killed_node_is_missed(bond_package, managed):
    robot, node, manager = managed
    assert manager.startup()
    time.sleep(1.5)
    assert not manager.node_is_down()
    node.signal(signal.SIGKILL)
    robot.wait_for(manager.node_is_down, "the end of the bond")
    assert not manager.bond.left_by_other


def test_an_end_that_leaves_is_answered_and_the_node_goes_on(bond_package, managed):
    robot, _, manager = managed
    assert manager.startup()
    robot.wait_for(lambda: len(manager.bond.heard) > 3, "heartbeats")
    manager.bond.leave()
    robot.wait_for(lambda: manager.bond.heard[-1].active is False, "an answer")
    robot.wait_for(lambda: robot.heard.said("bond broken by the other end"), "a line")
    count = len(manager.bond.heard)
    time.sleep(0.5)
    assert len(manager.bond.heard) == count
    robot.wait_for_topics()
    robot.tell("transfer the cube")
    with robot.running():
        robot.wait_for_chunks(2)
    assert manager.pause() and manager.resume()
    robot.wait_for(lambda: manager.bond.state == "alive", "the next bond")


def test_slow_inference_keeps_the_bond_and_a_broken_node_does_not(bond_package, monkeypatch):
    domain = claim_domain()
    robot, node = Robot(domain, "/bonded"), InProcess(domain, "bonded", BOND)
    manager = Manager(robot, "bonded", bond_timeout=1.0)
    assert manager.startup()
    engine, slow = node.engine, []
    frame = engine.frame

    def slowed(*arguments):
        slow.append(time.monotonic())
        time.sleep(2.0)
        return frame(*arguments)

    monkeypatch.setattr(engine, "frame", slowed)
    robot.wait_for_topics()
    robot.tell("transfer the cube")
    with robot.running():
        robot.wait_for(lambda: len(slow) >= 2, "slow frames")
        assert manager.bond.state == "alive"
        monkeypatch.setattr(node.node.session.frames, "make", lambda tick: 1 / 0)
        robot.wait_for(manager.node_is_down, "word of the end")
    assert manager.bond.left_by_other
    robot.wait_for(lambda: robot.lifecycle.state() == "unconfigured", "unconfigured")
    robot.close()
    node.close()
