"""Every transition from every state, again and again (F46): nothing grows. OXYGEN_ROUNDS=50 for the long run."""

import os
from pathlib import Path

import pytest
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import GetAvailableTransitions
from robot import InProcess, Robot, node_process

from oxygen_ros.children import claim_domain

ROUNDS = int(os.environ.get("OXYGEN_ROUNDS", "6"))
WARM = 3  # rounds in which caches fill
ALLOWED = {
    "unconfigured": {"configure", "shutdown"},
    "inactive": {"activate", "cleanup", "shutdown"},
    "active": {"deactivate", "shutdown"},
}
NUMBERS = {
    "configure": Transition.TRANSITION_CONFIGURE, "cleanup": Transition.TRANSITION_CLEANUP,
    "activate": Transition.TRANSITION_ACTIVATE, "deactivate": Transition.TRANSITION_DEACTIVATE,
}
SHUTDOWN = {
    "unconfigured": Transition.TRANSITION_UNCONFIGURED_SHUTDOWN, "inactive": Transition.TRANSITION_INACTIVE_SHUTDOWN,
    "active": Transition.TRANSITION_ACTIVE_SHUTDOWN,
}


def answer(robot: Robot, number: int) -> bool:
    future = robot.begin(number)
    robot.wait_for(future.done, "an answer")
    return future.result().success


def state_of(robot: Robot) -> str:
    return robot.lifecycle.state()


def held(robot: Robot, pid: int) -> dict[str, int]:
    """What the process and the node hold now."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    endpoints = {
        "publishers": robot.node.get_publisher_names_and_types_by_node,
        "subscriptions": robot.node.get_subscriber_names_and_types_by_node,
        "services": robot.node.get_service_names_and_types_by_node,
    }
    return {
        "memory (MiB)": int(status["VmRSS"].split()[0]) // 1024,
        "threads": int(status["Threads"]),
        "files": len(os.listdir(f"/proc/{pid}/fd")),
        **{kind: len(names("oxygen", "/")) for kind, names in endpoints.items()},
    }


def refused_here(robot: Robot) -> None:
    """What this state does not allow changes nothing."""
    state = state_of(robot)
    told = robot.call(GetAvailableTransitions, "get_available_transitions", GetAvailableTransitions.Request())
    assert {t.transition.label for t in told.available_transitions} == ALLOWED[state]
    for name, number in NUMBERS.items():
        if name not in ALLOWED[state]:
            assert not answer(robot, number), f"{name} from {state}"
    assert state_of(robot) == state


@pytest.mark.timeout(120 + 10 * ROUNDS)
def test_round_after_round_leaves_nothing_behind(tmp_path):
    domain = claim_domain()
    node, robot = node_process(domain, tmp_path / "log"), Robot(domain)
    seen = []
    try:
        with robot.running():
            for _ in range(ROUNDS):
                if len(seen) == 0:
                    refused_here(robot)
                robot.set_parameter("policy", "/nowhere")
                assert not robot.lifecycle.change("configure") and state_of(robot) == "unconfigured"
                robot.set_parameter("policy", str(Path(__file__).parents[2] / "resource" / "pi05_aloha_tiny"))
                for path in (("configure", "cleanup"), ("configure", "activate", "deactivate", "activate")):
                    for transition in path:
                        assert robot.lifecycle.change(transition), transition
                        if not seen:
                            refused_here(robot)
                robot.wait_for_topics()
                robot.tell("transfer the cube")
                robot.tell("why?", 1, id=len(seen) + 1000, max_tokens=100)
                robot.wait_for_chunks(2)
                for transition in ("deactivate", "cleanup"):
                    assert robot.lifecycle.change(transition), transition
                robot.wait_for(lambda: robot.heard.last(len(seen) + 1000), "the end of the request")
                robot.reset()
                seen.append(held(robot, node.child.pid))
    finally:
        robot.close()
        node.close()
    first, last = seen[min(WARM, len(seen) - 2)], seen[-1]
    print(seen[0], first, last, sep="\n")
    for name in first:
        if name == "memory (MiB)":
            assert last[name] <= first[name] + 12, seen
        else:
            assert last[name] <= first[name] + (2 if name in ("threads", "files") else 0), (name, seen)


@pytest.mark.parametrize("state", SHUTDOWN)
def test_shutdown_from_every_state(state):
    domain = claim_domain()
    robot, node = Robot(domain, f"/end_{state}"), InProcess(domain, f"end_{state}")
    try:
        for transition in {"unconfigured": (), "inactive": ("configure",), "active": ("configure", "activate")}[state]:
            assert robot.lifecycle.change(transition)
        assert answer(robot, SHUTDOWN[state])
        assert state_of(robot) == "finalized"
        assert node.node.session is None
    finally:
        robot.close()
        node.close()
