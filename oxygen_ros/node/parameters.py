"""The settings as ROS parameters: declared once, wrong ones named at configure instead of ending the process."""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rclpy.exceptions import ParameterNotDeclaredException
from rclpy.node import Node
from rclpy.parameter import Parameter

from .. import settings
from ..declaration import Declaration
from ..embodiment.robot import Robot
from ..limits import Limits
from ..settings import Settings

# Declared by rclpy itself, in every node.
_ROS_OWN = ("use_sim_time", "start_type_description_service")


class EmptyListsAllowed(Node):
    """A node that starts on a file with an empty list: ROS has no type for one, and rclpy would end the process."""

    def declare_parameters(self, namespace: str, parameters: Iterable[tuple], ignore_override: bool = False) -> list:
        parameters = list(parameters)
        for _, *value_and_descriptor in parameters:
            if len(value_and_descriptor) == 2 and value_and_descriptor[0] is None:
                value_and_descriptor[1].dynamic_typing = True
        return super().declare_parameters(namespace, parameters, ignore_override)


class Parameters:
    """Declares every setting on a node and reads them back, checked.

    Types are left open to ROS on purpose: a YAML with a wrong type would otherwise end the process before anybody
    could be told which key it is. `read` names it, and configure fails.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._robot: Robot | None = None
        self._held = False
        self._declaring = threading.RLock()  # whoever is told of what is declared reads anew
        self._declared: dict[str, Any] = {}  # name -> default, of those that no file or command line gave
        self._qos_overrides = list(node.get_parameters_by_prefix("qos_overrides"))
        self._declare()
        self._let_go_of_strangers()
        node.add_pre_set_parameters_callback(self._know)
        node.add_on_set_parameters_callback(self._judge)

    def read(self) -> Settings:
        """Raises SettingsError with every unknown key, wrong type and value out of range."""
        self._declare()
        if not isinstance(simulated := self._node.get_parameter("use_sim_time").value, bool):
            raise settings.SettingsError([f"parameter use_sim_time is {simulated!r}, expected true or false"])
        return settings.read(self._values())

    @contextmanager
    def held(self) -> Iterator[None]:
        """While the node is being configured with what was read, nothing can be set that it would not hear of."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def lock(self, robot: Robot | None) -> None:
        """While there is a robot, only settings that may change on a running node, and fit it, can be set."""
        self._robot = robot

    def qos_overrides(self) -> list[str]:
        """Those that a file or the command line gave, full names."""
        names = [f"qos_overrides.{name}" for name in self._qos_overrides]
        return [name for name in names if self._node.has_parameter(name)]

    def _declare(self) -> None:
        with self._declaring:
            declarations = settings.declarations(self._values())
            self._forget(self._declared.keys() - {d.name for d in declarations})
            for declaration in declarations:
                name, default = declaration.name, _to_ros(declaration.default)
                if self._node.has_parameter(name):
                    value = self._node.get_parameter(name).value
                    self._node.set_descriptor(name, _descriptor(declaration, value))
                else:
                    self._node.declare_parameter(name, default, _descriptor(declaration, default))
                    self._declared[name] = default

    def _forget(self, names: Iterable[str]) -> None:
        """Of cameras, grippers and joints that are listed no more, what nobody has set; the rest are strangers."""
        for name in names:
            default = self._declared.pop(name)
            # Compared as text, since a number that is not set is NaN.
            if self._node.has_parameter(name) and repr(self._node.get_parameter(name).value) == repr(default):
                self._node.undeclare_parameter(name)

    def _let_go_of_strangers(self) -> None:
        """Keys of a file can be deleted, and take another type, so that configure need not be refused until the process
        ends."""
        for name in [*self._values(), *self.qos_overrides(), "use_sim_time"]:
            if not self._node.describe_parameter(name).dynamic_typing:
                self._node.set_descriptor(name, ParameterDescriptor(name=name, dynamic_typing=True))

    def _values(self) -> dict[str, Any]:
        parameters = self._node.get_parameters_by_prefix("")
        return {
            name: _from_ros(parameter.value) for name, parameter in parameters.items()
            if name not in _ROS_OWN and not name.startswith("qos_overrides.")
        }

    def _know(self, changes: list[Parameter]) -> list[Parameter]:
        """What was listed since the last declaration has its parameters; which one there is not, rclpy does not say."""
        if any(not self._node.has_parameter(change.name) for change in changes):
            self._declare()
        for change in changes:
            if change.name and not self._node.has_parameter(change.name):
                raise ParameterNotDeclaredException(settings.unknown(change.name, self._values()))
        return changes

    def _judge(self, changes: Sequence[Parameter]) -> SetParametersResult:
        known = {d.name: d for d in settings.declarations(self._values())}
        for change in changes:
            declaration = known.get(change.name)
            if not change.name:  # rclpy takes it for declared
                return SetParametersResult(successful=False, reason="a parameter without a name")
            if declaration is None:
                continue
            problem = declaration.problem_with(_from_ros(change.value))
            if problem is None and self._held:
                problem = f"parameter {change.name} cannot change while the node is being configured; set it afterwards"
            if problem is None and self._robot and not declaration.live:
                problem = f"parameter {change.name} cannot change while the node is configured; clean up first"
            if problem:
                return SetParametersResult(successful=False, reason=problem)
        if self._robot:  # all values were fine, and are to stay so together
            try:
                changed = {change.name: _from_ros(change.value) for change in changes if change.name in known}
                Limits(self._robot, settings.read({**self._values(), **changed}))
            except settings.SettingsError as error:
                return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)


def _descriptor(declaration: Declaration, value: Any) -> ParameterDescriptor:
    """value: what the parameter has now. One that is out of range has none, or rclpy would raise before anybody could
    be told; what is no number has its constraints in words."""
    descriptor = ParameterDescriptor(name=declaration.name, description=declaration.description, dynamic_typing=True)
    constraints = declaration.bounds
    if not declaration.live:
        constraints.append("takes effect at configure")
    descriptor.additional_constraints = "; ".join(constraints)
    low, high = declaration.low, declaration.high
    if (low, high) != (None, None) and declaration.problem_with(_from_ros(value)) is None:
        if isinstance(declaration.default, int):
            lowest, highest = -(2**63) if low is None else int(low), 2**63 - 1 if high is None else int(high)
            descriptor.integer_range = [IntegerRange(from_value=lowest, to_value=highest)]
        else:
            lowest, highest = -math.inf if low is None else float(low), math.inf if high is None else float(high)
            descriptor.floating_point_range = [FloatingPointRange(from_value=lowest, to_value=highest)]
    return descriptor


def _to_ros(value: Any) -> Any:
    # ROS has no type for an empty list.
    return [""] if value == () else value


def _from_ros(value: Any) -> Any:
    if value is None:
        return ()
    if isinstance(value, (list, tuple, array)):
        return () if all(v == "" for v in value) else tuple(value)
    return value
