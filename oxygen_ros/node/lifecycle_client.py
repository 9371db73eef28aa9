"""Drives a lifecycle node from outside, as a lifecycle manager does.

Where ros2cli is not at hand: python -m oxygen_ros.node.lifecycle_client configure activate
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Callable

import rclpy
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.client import Client
from rclpy.node import Node
from rclpy.task import Future

from ..command_line import CommandLine
from .spinner import spinning

TRANSITIONS = {
    "configure": (Transition.TRANSITION_CONFIGURE, "inactive"),
    "activate": (Transition.TRANSITION_ACTIVATE, "active"),
    "deactivate": (Transition.TRANSITION_DEACTIVATE, "inactive"),
    "cleanup": (Transition.TRANSITION_CLEANUP, "unconfigured"),
}
"""name -> id, and the state it leads to"""

_ASK_AGAIN = 3.0  # s


class LifecycleClient:
    """For one node. The caller's node must be spun by somebody else, in another thread.

    On a busy machine an answer can be sent before the two sides have discovered each other's end, and is lost. So
    silence is no answer: the state tells what became of the request.
    """

    def __init__(self, node: Node, target: str, alive: Callable[[], bool] = lambda: True) -> None:
        """alive: whether the target's process still runs, where the caller knows; nobody waits for a dead one."""
        self._target, self._alive = target, alive
        self._change = node.create_client(ChangeState, f"{target}/change_state")
        self._get = node.create_client(GetState, f"{target}/get_state")

    def change(self, transition: str, timeout: float = 60.0) -> bool:
        """Ask for a transition by name; whether it succeeded.

        Raises TimeoutError if the node does not answer, or has ended.
        """
        number, goal = TRANSITIONS[transition]
        request = ChangeState.Request()
        request.transition.id = number
        end = time.monotonic() + timeout
        future = self._send(self._change, request, timeout)
        while not wait_until(future.done, _ASK_AGAIN):
            state = self.state(max(0.1, end - time.monotonic()))
            if future.done():
                break
            if state == goal:
                return True
            if not state.endswith("ing"):  # not under way: the request was lost, or its failure was
                future = self._send(self._change, request, timeout)
        return future.result().success

    def state(self, timeout: float = 20.0) -> str:
        """The label of the present state: unconfigured, inactive, active, or one in between such as configuring."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            future = self._send(self._get, GetState.Request(), timeout)
            if wait_until(future.done, min(_ASK_AGAIN, timeout)):
                return future.result().current_state.label
        raise TimeoutError(f"{self._target} did not answer within {timeout:g} s")

    def _send(self, client: Client, request: object, timeout: float) -> Future:
        ready = wait_until(lambda: client.service_is_ready() or not self._alive(), timeout, step=0.05)
        if not self._alive():
            raise TimeoutError(f"the process of {self._target} has ended")
        if not ready:
            raise TimeoutError(f"{self._target} has no service {client.srv_name} after {timeout:g} s; is it running?")
        return client.call_async(request)


def wait_until(condition: Callable[[], bool], timeout: float, step: float = 0.01) -> bool:
    """Whether the condition came true within `timeout` seconds."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(step)
    return True


def _transition(name: str) -> str:
    if name not in TRANSITIONS:
        raise ArgumentTypeError(f"expected some of {', '.join(TRANSITIONS)}, found {name!r}")
    return name


def main() -> int:
    parser = CommandLine(prog="python -m oxygen_ros.node.lifecycle_client",
                         description="Take a lifecycle node through transitions, and print its state.")
    parser.add_argument("transitions", nargs="*", type=_transition, metavar="TRANSITION", help=", ".join(TRANSITIONS))
    parser.add_argument("--node", default="/oxygen", help="full name of the node (default: %(default)s)")
    options = parser.parse_args()
    try:
        with spinning(lambda: rclpy.create_node("lifecycle_client")) as node:
            client = LifecycleClient(node, options.node)
            failed = [name for name in options.transitions if not client.change(name)]
            remark = f"; {', '.join(failed)} failed, its log says why" if failed else ""
            print(f"{options.node} is {client.state()}{remark}")
            return 1 if failed else 0
    except TimeoutError as error:
        print(f"lifecycle_client: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
