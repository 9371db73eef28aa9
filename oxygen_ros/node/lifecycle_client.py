"""Drives a lifecycle node from outside, as a lifecycle manager does."""

from __future__ import annotations

import time
from collections.abc import Callable

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.node import Node

TRANSITIONS = {
    "configure": Transition.TRANSITION_CONFIGURE,
    "activate": Transition.TRANSITION_ACTIVATE,
    "deactivate": Transition.TRANSITION_DEACTIVATE,
    "cleanup": Transition.TRANSITION_CLEANUP,
}


class LifecycleClient:
    """For one node. The caller's node must be spun by somebody else, in another thread."""

    def __init__(self, node: Node, target: str) -> None:
        self._target = target
        self._change = node.create_client(ChangeState, f"{target}/change_state")
        self._get = node.create_client(GetState, f"{target}/get_state")

    def change(self, transition: str, timeout: float = 60.0) -> bool:
        """Ask for a transition by name. Raises TimeoutError if the node does not answer."""
        request = ChangeState.Request()
        request.transition.id = TRANSITIONS[transition]
        return self._call(self._change, request, timeout, transition).success

    def state(self, timeout: float = 5.0) -> str:
        """The label of the present state: unconfigured, inactive, active, or one in between."""
        return self._call(self._get, GetState.Request(), timeout, "get_state").current_state.label

    def _call(self, client, request, timeout: float, what: str):
        end = time.monotonic() + timeout
        if not client.wait_for_service(timeout_sec=timeout):
            raise TimeoutError(f"{what}: {self._target} has no service {client.srv_name} after {timeout:g} s")
        future = client.call_async(request)
        if not wait_until(future.done, end - time.monotonic()):
            raise TimeoutError(f"{what}: {self._target} did not answer within {timeout:g} s")
        return future.result()


def wait_until(condition: Callable[[], bool], timeout: float, step: float = 0.01) -> bool:
    """Whether the condition came true within `timeout` seconds."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(step)
    return True
