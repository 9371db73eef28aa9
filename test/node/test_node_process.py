"""The node as a process: what it says of bad settings, and how it ends when it is told to."""

import signal
import time

import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import GetState
from rcl_interfaces.msg import Parameter as ParameterMessage
from rcl_interfaces.msg import ParameterValue
from rcl_interfaces.srv import DescribeParameters, SetParameters, SetParametersAtomically
from rclpy.parameter import Parameter
from robot import CAMERAS, POLICY, Robot, node_process

from oxygen_ros.children import claim_domain
from oxygen_ros.msg import Instruction, LanguageToken
from oxygen_ros.node.lifecycle_client import wait_until


ERROR, WARN = DiagnosticStatus.ERROR, DiagnosticStatus.WARN


@pytest.fixture
def domain():
    return claim_domain()


@pytest.fixture
def robot(domain):
    robot = Robot(domain)
    yield robot
    robot.close()


def set_parameter(robot: Robot, name: str, value) -> None:
    kind = Parameter.Type.NOT_SET if value is None else None
    parameter = Parameter(name, kind, value).to_parameter_msg()
    result = robot.call(SetParameters, "set_parameters", SetParameters.Request(parameters=[parameter])).results[0]
    assert result.successful, result.reason


def folder_without_weights(tmp_path):
    folder = tmp_path / "policy"
    folder.mkdir()
    for name in ("config.json", "norm_stats.json", "tokenizer.model"):
        (folder / name).write_bytes((POLICY / name).read_bytes())
    return folder


def broken_weights(tmp_path):
    folder = folder_without_weights(tmp_path)
    (folder / "model.safetensors").write_bytes((POLICY / "model.safetensors").read_bytes()[:1_000_000])
    return folder


BAD_FILE = {
    "control_rate": ("fast", 5.0, ["'fast'", "expected a number"]),
    "language.max_tokens": (0, 8, ["is 0", "expected at least 1"]),
    "contorl_rate": (10.0, None, ["not known", "did you mean control_rate"]),
    "camera.cam_low.max_age": (1.0, None, ["none of the cameras", "cam_high"]),
    "qos_overrides": (1, None, ["not known"]),
}
BAD_OVERRIDES = {
    "/joint_states.subscription.reliabilty": ["/joint_states.subscription.reliability"],
    "/oxygen/utterance.subscription.depth": ["/oxygen/utterance.publisher.depth"],
    "/somewhere/else.publisher.depth": ["is about nothing of this node"],
    "/oxygen/action_chunk.publisher.dpeth": ["/oxygen/action_chunk.publisher.depth"],
    "/oxygen/action_chunk.publisher.lifespan": ["is about nothing of this node"],  # there is a parameter
}


@pytest.fixture(scope="module")
def unconfigured(tmp_path_factory):
    """A node that was started on a file with some mistakes, and its operator."""
    domain = claim_domain()
    wrong = {name: value for name, (value, _, _) in BAD_FILE.items()}
    node, robot = node_process(domain, tmp_path_factory.mktemp("unconfigured") / "log", settings=wrong), Robot(domain)
    yield robot, node
    robot.close()
    node.close()


def errors_of(node, since: int = 0) -> list[str]:
    return [line for line in node.log.splitlines()[since:] if "ERROR" in line]


def test_mistakes_in_the_file_are_all_named_and_can_be_mended(unconfigured):
    robot, node = unconfigured
    assert not robot.lifecycle.change("configure")
    assert robot.lifecycle.state() == "unconfigured"
    errors = errors_of(node)
    assert len(errors) == len(BAD_FILE), node.log
    for name, (_, _, said) in BAD_FILE.items():
        assert sum(all(part in line for part in (f"parameter {name} ", *said)) for line in errors) == 1, errors
    robot.wait_for(lambda: robot.heard.reported("engine", "configure failed", "contorl_rate", level=ERROR), "a status")
    for name, (_, right, _) in BAD_FILE.items():
        set_parameter(robot, name, right)
    assert robot.lifecycle.change("configure"), node.log
    assert robot.lifecycle.change("cleanup")
    assert "Traceback" not in node.log, node.log


def test_a_parameter_that_there_is_not_is_named_and_those_of_a_new_camera_are_there(unconfigured):
    """rclpy says that there is one, not which. A camera that was listed just now has parameters before configure."""
    robot, _ = unconfigured

    def refused(name, value) -> str:
        request = SetParameters.Request(parameters=[Parameter(name, value=value).to_parameter_msg()])
        result = robot.call(SetParameters, "set_parameters", request).results[0]
        assert not result.successful
        return result.reason

    assert "parameter contorl_rate is not known; did you mean control_rate?" in refused("contorl_rate", 5.0)
    assert "parameter camera.cam_low.topic is about what is none of the cameras" in refused("camera.cam_low.topic", "x")
    both = [Parameter(name, value=5.0).to_parameter_msg() for name in ("control_rate", "step")]
    answer = robot.call(SetParametersAtomically, "set_parameters_atomically", SetParametersAtomically.Request(
        parameters=both)).result
    assert not answer.successful and "parameter step is not known" in answer.reason
    set_parameter(robot, "cameras", [*CAMERAS, "cam_low"])
    set_parameter(robot, "camera.cam_low.max_age", 1)
    set_parameter(robot, "camera.cam_low.max_age", 1.5)  # of another type than before
    set_parameter(robot, "cameras", list(CAMERAS))
    set_parameter(robot, "camera.cam_low.max_age", None)


def test_ros_tools_are_told_the_range_of_a_number(unconfigured):
    robot, _ = unconfigured
    for name, value in (("control_rate", 5.0), ("language.max_tokens", 8), ("contorl_rate", None),
                        ("camera.cam_low.max_age", None), ("qos_overrides", None)):
        request = SetParameters.Request(parameters=[Parameter(
            name, Parameter.Type.NOT_SET if value is None else None, value).to_parameter_msg()])
        robot.call(SetParameters, "set_parameters", request)  # where the test before has not mended it
    assert robot.lifecycle.change("configure") and robot.lifecycle.change("cleanup")
    names = ["control_rate", "language.max_tokens", "seed", "camera.cam_high.max_age", "policy", "joints"]
    rate, tokens, seed, age, policy, joints = robot.call(
        DescribeParameters, "describe_parameters", DescribeParameters.Request(names=names)).descriptors
    assert [(r.from_value, r.to_value) for r in rate.floating_point_range] == [(0.01, 1000.0)]
    assert [(r.from_value, r.to_value) for r in tokens.integer_range] == [(1, 8192)]
    assert [(r.from_value, r.to_value) for r in seed.integer_range] == [(-1, 2**63 - 1)]
    assert [(r.from_value, r.to_value) for r in age.floating_point_range] == [(0.0, 1e6)]
    assert not any(d.integer_range or d.floating_point_range for d in (policy, joints))
    assert all(d.description for d in (rate, tokens, seed, age, policy, joints))


def test_simulated_time_that_is_neither_true_nor_false_is_named(domain, robot, tmp_path):
    node = node_process(domain, tmp_path / "log", settings={"use_sim_time": "sometimes"})
    try:
        assert not robot.lifecycle.change("configure")
        assert "parameter use_sim_time is 'sometimes', expected true or false" in errors_of(node)[-1]
        set_parameter(robot, "use_sim_time", False)
        assert robot.lifecycle.change("configure"), node.log
    finally:
        node.close()


def test_qos_overrides_of_nothing_are_named_and_can_be_deleted(domain, robot, tmp_path):
    given = {f"qos_overrides.{name}": "reliable" if "reliab" in name else 3 for name in BAD_OVERRIDES}
    fine = {"qos_overrides./diagnostics.publisher.depth": 3, "qos_overrides./joint_states.subscription.depth": 3,
            "qos_overrides./oxygen/joint_trajectory.publisher.depth": 3,
            "qos_overrides./cam_high/y.subscription.depth": "many"}
    node = node_process(domain, tmp_path / "log", settings={**given, **fine, "camera.cam_high.topic": "cam_high/y"})
    try:
        assert not robot.lifecycle.change("configure")
        assert "qos_overrides of 'cam_high/y' cannot be used: a value of another type" in errors_of(node)[0]
        set_parameter(robot, "qos_overrides./cam_high/y.subscription.depth", 3)
        assert not robot.lifecycle.change("configure")
        errors = errors_of(node)[1:]
        assert len(errors) == len(BAD_OVERRIDES), node.log
        for name, said in BAD_OVERRIDES.items():
            line = next(line for line in errors if f"parameter qos_overrides.{name} is about nothing" in line)
            assert all(part in line for part in said)
            set_parameter(robot, f"qos_overrides.{name}", None)
        assert robot.lifecycle.change("configure"), node.log
        assert "Traceback" not in node.log, node.log
    finally:
        node.close()


def test_a_parameter_file_for_somebody_else_is_an_error_once(domain, tmp_path):
    """F49: what the command line says is not all that the operator gave; who configures again has been told."""
    file = tmp_path / "arm.yaml"
    file.write_text("oxygen:\n  ros__parameters:\n    control_rate: 3.0\n")
    robot = Robot(domain, "/left/oxygen")
    node = node_process(domain, tmp_path / "log", "--params-file", file, "-r", "__ns:=/left",
                        "-r", "~/action_chunk:=chunks")
    try:
        robot.begin(Transition.TRANSITION_CONFIGURE)  # once: `change` would ask again where the answer is lost
        robot.wait_for(lambda: robot.heard.reported("engine", "configure failed", str(file), level=ERROR), "a status")
        assert [f"parameter file {file} holds nothing for /left/oxygen, its keys are /oxygen; make one of them "
                "/left/oxygen or /**" in line for line in errors_of(node)] == [True], node.log
        assert robot.lifecycle.change("configure"), node.log
        robot.wait_for(lambda: robot.node.count_publishers("/left/chunks"), "the remapped topic")
        assert not robot.node.count_publishers("/left/oxygen/action_chunk")
    finally:
        robot.close()
        node.close()


def test_pictures_need_no_cv_bridge(domain, robot, tmp_path):
    """F57: one that was built for another NumPy comes first on the path, and would end whoever imports it."""
    broken = tmp_path / "first" / "cv_bridge"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('numpy.core.multiarray failed to import')")
    node = node_process(domain, tmp_path / "log", first=broken.parent)
    try:
        robot.bring_up()
        assert "cv_bridge" not in node.log and "multiarray" not in node.log, node.log
    finally:
        node.close()


@pytest.mark.parametrize("name, wrong, right, said", [
    ("policy", lambda folder: "/nowhere/at/all", str(POLICY), ["/nowhere/at/all"]),
    ("policy", folder_without_weights, str(POLICY), ["/policy"]),
    ("policy", broken_weights, str(POLICY), ["model.safetensors"]),
    ("policy", lambda folder: "", str(POLICY), ["policy is empty", "/oxygen"]),
    ("camera.cam_high.topic", lambda folder: "not a topic!", "/cam", ["'not a topic!'", "no valid topic name"]),
], ids=["no folder", "no weights", "cut weights", "no policy", "topic name"])
def test_configure_fails_in_one_line_and_can_be_tried_again(unconfigured, tmp_path, name, wrong, right, said):
    robot, node = unconfigured
    lines = len(node.log.splitlines())
    threads = thread_count(node)
    set_parameter(robot, name, str(wrong(tmp_path)))
    assert not robot.lifecycle.change("configure")
    assert robot.lifecycle.state() == "unconfigured"
    errors = errors_of(node, lines)
    assert len(errors) == 1 and all(part in errors[0] for part in said), node.log
    robot.wait_for(lambda: robot.heard.reported("engine", "configure failed", said[0], level=ERROR), "a status")
    # Nothing is left of what had been made before it failed.
    assert not robot.node.count_publishers("/oxygen/action_chunk")
    assert thread_count(node) <= threads
    set_parameter(robot, name, right)
    assert robot.lifecycle.change("configure"), node.log
    assert robot.lifecycle.change("cleanup")
    assert "Traceback" not in node.log, node.log


@pytest.mark.parametrize("state", ["unconfigured", "active"])
def test_no_request_for_a_parameter_ends_the_node(domain, robot, tmp_path, state):
    """A type that there is not, on which rclpy raises, and no name, which it takes for declared."""
    node = node_process(domain, tmp_path / "log")
    try:
        if state == "active":
            robot.bring_up(None)
        strange = SetParameters.Request(parameters=[ParameterMessage(name="seed", value=ParameterValue(type=99))])
        assert robot.call(SetParameters, "set_parameters", strange).results == []
        assert "SetParameters_Request not answered as asked" in errors_of(node)[-1]
        nameless = SetParameters.Request(parameters=[ParameterMessage(value=ParameterValue(type=2, integer_value=3))])
        refused = robot.call(SetParameters, "set_parameters", nameless).results[0]
        assert not refused.successful and refused.reason == "a parameter without a name"
        assert robot.lifecycle.state() == state
        set_parameter(robot, "control_rate", 4.0)
        assert "Traceback" not in node.log, node.log
    finally:
        node.close()


def thread_count(node) -> int:
    with open(f"/proc/{node.child.pid}/status") as status:
        return int(next(line for line in status if line.startswith("Threads")).split()[1])


UNREADABLE = {
    "/nowhere.yaml": ["--params-file", "/nowhere.yaml"],
    "cameras": ["-p", "cameras:=[a, 1]"],
    "nonsense": ["-r", "nonsense"],
    "ROS does not start: error creating node: invalid node namespace": ["-r", "__ns:=/left/"],
    "banana": ["-p", "qos_overrides./diagnostics.publisher.reliability:=banana"],
}


UNREADABLE_FILES = {
    "Error parsing a event near line 1": "/**:\n\tros__parameters:\n\t\tcontrol_rate: 5.0\n",
    "Cannot have a value before ros__parameters at line 3": "/**:\n  ros_parameters:\n    control_rate: 5.0\n",
    "There are no node names before ros__parameters": "ros__parameters:\n  control_rate: 5.0\n",
    "Will not support aliasing": "/**:\n  ros__parameters:\n    control_rate: &r 5.0\n    step_dt: *r\n",
    "Sequence should be of same type": "/**:\n  ros__parameters:\n    limits: {left_waist: [-1, 1.5]}\n",
}


def test_unreadable_ros_arguments_are_one_line(tmp_path):
    domain = claim_domain()
    arguments = dict(UNREADABLE)
    for number, (said, text) in enumerate(UNREADABLE_FILES.items()):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text)
        arguments[said] = ["--params-file", file]
    for number, (said, given) in enumerate(arguments.items()):  # one by one: each imports torch, which takes a core
        node = node_process(domain, tmp_path / str(number), *given)
        try:
            assert node.wait() == 1, node.log
        finally:
            node.close()
        lines = [line for line in node.log.splitlines() if line.startswith("oxygen-node: ")]
        assert len(lines) == 1 and said in lines[0], node.log
        assert "Traceback" not in node.log, node.log


def end(node, number: int, times: int = 1) -> float:
    """Send the signal; returns how long the process took to be gone."""
    began = time.monotonic()
    for _ in range(times):
        node.signal(number)
        time.sleep(0.1 if times > 1 else 0)
    assert node.wait() == 0, node.log
    return time.monotonic() - began


@pytest.mark.parametrize("moment", ["importing", "unconfigured", "loading", "idle", "inference", "twice"])
def test_signal_ends_it_cleanly(tmp_path, moment):
    """F47"""
    numbers = (signal.SIGINT, signal.SIGTERM)
    domains = [claim_domain() for _ in numbers]
    nodes = [node_process(d, tmp_path / str(d), settings={"language.steps_per_frame": 2}) for d in domains]
    robots = []
    try:
        assert all(wait_until(lambda: masked(node.child.pid), 10.0) for node in nodes)
        for domain, node, number in zip(domains, nodes, numbers):
            if moment != "importing":
                robots.append(Robot(domain))
                robots[-1].wait_for(lambda: robots[-1].heard.diagnostics, "the node")
            took = signalled(moment, node, number, *robots[-1:])
            assert took < (15.0 if moment == "importing" else 6.0)  # on an idle machine 2 s; tests may have company
            assert "Traceback" not in node.log and "Exception" not in node.log, node.log
    finally:
        for thing in (*nodes, *robots):
            thing.close()


def signalled(moment: str, node, number: int, robot: Robot | None = None) -> float:
    """Bring the node to the moment and end it; returns how long that took."""
    if moment == "loading":
        robot.begin(Transition.TRANSITION_CONFIGURE)
        robot.wait_for(lambda: "computing in" in node.log, "the load")
    if moment == "idle":
        robot.bring_up(None)
    if moment not in ("inference", "twice"):
        return end(node, number)
    robot.bring_up()
    with robot.running():
        robot.tell("tell me everything", Instruction.ASK, id=5, max_tokens=150)
        robot.wait_for(lambda: robot.heard.text(5), "the beginning of an answer")
        took = end(node, number, 2 if moment == "twice" else 1)
    robot.wait_for(lambda: robot.heard.last(5), "the end of the answer")
    assert robot.heard.last(5).finish_reason == LanguageToken.CANCELLED
    return took


def masked(pid: int) -> bool:
    """Whether the process blocks SIGINT, as it does before its long imports."""
    with open(f"/proc/{pid}/status") as status:
        line = next(line for line in status if line.startswith("SigBlk"))
    return bool(int(line.split()[1], 16) & 1 << (signal.SIGINT - 1))


def test_shutdown_by_service_then_signal(domain, robot, tmp_path):
    node = node_process(domain, tmp_path / "log")
    try:
        assert robot.lifecycle.change("configure")
        future = robot.begin(Transition.TRANSITION_INACTIVE_SHUTDOWN)
        robot.wait_for(future.done, "the answer")
        assert future.result().success
        answer = robot.call(GetState, "get_state", GetState.Request())
        assert answer.current_state.id == State.PRIMARY_STATE_FINALIZED
        end(node, signal.SIGINT)
        assert "Traceback" not in node.log, node.log
    finally:
        node.close()
