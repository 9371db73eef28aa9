"""Every setting of a robot that runs a policy, declared once: name, type, default, range, meaning.

The node declares them as ROS parameters, the replay reads them from the same YAML. Nothing here knows ROS.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml


class SettingsError(ValueError):
    """Settings that cannot be used. `problems`: one line each, with the key, what was found and what was expected."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def parameter(default: Any, description: str, *, low: float | None = None, high: float | None = None,
              choices: Sequence[Any] = (), live: bool = False) -> Any:
    """A dataclass field that is a parameter. live: may change while the node is active; others need a cleanup."""
    return field(default=default, metadata={
        "description": description, "low": low, "high": high, "choices": tuple(choices), "live": live,
    })


@dataclass(frozen=True)
class CameraSettings:
    topic: str = parameter("", "Image topic; empty is <camera name>/image_raw, with /compressed where that is the transport.")
    transport: str = parameter("raw", "Message type: raw is sensor_msgs/Image, compressed is sensor_msgs/CompressedImage.",
                               choices=("raw", "compressed"))
    rotation: int = parameter(0, "Degrees clockwise that bring the picture upright, before it is scaled.",
                              choices=(0, 90, 180, 270))
    max_age: float = parameter(0.5, "Seconds after which the camera's last picture no longer counts.", low=0.0)


@dataclass(frozen=True)
class LanguageSettings:
    max_requests: int = parameter(8, "Language requests decoded together.", low=1, high=256)
    max_waiting: int = parameter(32, "Language requests that may wait to be decoded; more are rejected.", low=1)
    max_request_tokens: int = parameter(192, "Room for prompt and answer of one request, in tokens.", low=2)
    max_tokens: int = parameter(64, "Length of an answer in tokens where the request gives none.", low=1, live=True)
    temperature: float = parameter(0.0, "Sampling temperature; 0 is greedy.", low=0.0, live=True)
    steps_per_frame: int = parameter(0, "At most so many batched decode steps a frame; 0 leaves it to the deadline.", low=0)
    margin: float = parameter(0.005, "Seconds before the next control tick at which decoding stops.", low=0.0, live=True)


@dataclass(frozen=True)
class Settings:
    policy: str = parameter("", "Policy folder (openpi, LeRobot or oxygen_ros): a path, or package://<package>/<path>.")
    robot: str = parameter("", "Robot description by name (aloha, droid, libero); empty takes the one the policy names.")
    instruction: str = parameter("", "Task from activation on, until an Instruction changes it; empty waits for one.")
    control_rate: float = parameter(10.0, "Frames per second: how often an action chunk is inferred.", low=0.01, high=1000.0)
    cameras: tuple[str, ...] = parameter((), "Names of the cameras that are there, as in the robot description.")
    camera: Mapping[str, CameraSettings] = field(default_factory=dict)
    joint_state_max_age: float = parameter(0.5, "Seconds after which a joint's last position no longer counts.", low=0.0)
    device: str = parameter("cpu", "Where the network runs, as torch names it: cpu, cuda, cuda:0.")
    dtype: str = parameter("float32", "What the network computes in.", choices=("float32", "bfloat16"))
    threads: int = parameter(0, "CPU threads of the network; 0 is torch's own choice.", low=0)
    denoise_steps: int = parameter(10, "Euler steps from noise to actions.", low=1, high=1000)
    kv_slots: int = parameter(8, "Frames whose keys and values are kept at once; one of them is the actions' own.", low=2)
    seed: int = parameter(-1, "Seed of the noise that denoising starts from; -1 takes a new one at each start.", low=-1)
    fixed_noise: bool = parameter(False, "Start every frame from the same noise, so that equal observations give equal chunks.")
    joint_trajectory: bool = parameter(False, "Also publish each chunk as ~/joint_trajectory.")
    chunk_deadline: float = parameter(1.0, "QoS deadline in seconds that ~/action_chunk offers; 0 offers none.", low=0.0)
    chunk_lifespan: float = parameter(1.0, "QoS lifespan of a chunk in seconds; a later one is not sent. 0 is unlimited.", low=0.0)
    language: LanguageSettings = field(default_factory=LanguageSettings)

    def topic_of(self, camera: str) -> str:
        given = self.camera[camera]
        return given.topic or f"{camera}/image_raw" + ("/compressed" if given.transport == "compressed" else "")


@dataclass(frozen=True)
class Declaration:
    """One parameter under its full name, such as `camera.cam_high.max_age`."""

    name: str
    default: Any
    description: str
    low: float | None
    high: float | None
    choices: tuple
    live: bool


def declarations(cameras: Sequence[str]) -> list[Declaration]:
    """All parameters of a node with these cameras, whose own parameters are named camera.<name>.*."""
    found = list(_declared(Settings, ""))
    for camera in cameras:
        found += _declared(CameraSettings, f"camera.{camera}.")
    return found


def read(values: Mapping[str, Any]) -> Settings:
    """Settings from full names to values; what is not given has its default.

    Raises SettingsError with every unknown key, wrong type and value out of range.
    """
    cameras = values.get("cameras", ())
    cameras = tuple(cameras) if _type_problem(cameras, ()) is None else ()
    known = {d.name: d for d in declarations(cameras)}
    problems = [_unknown(name, known, cameras) for name in values if name not in known]
    checked: dict[str, Any] = {}
    for name, declaration in known.items():
        value = values.get(name, declaration.default)
        problem = problem_with(declaration, value)
        if problem:
            problems.append(problem)
        else:
            checked[name] = type(declaration.default)(value)
    if problems:
        raise SettingsError(problems)
    camera = {name: _build(CameraSettings, checked, f"camera.{name}.") for name in cameras}
    language = _build(LanguageSettings, checked, "language.")
    return Settings(camera=camera, language=language, **{
        f.name: checked[f.name] for f in fields(Settings) if f.name in checked
    })


def from_yaml(path: str | Path) -> Settings:
    """Settings from a ROS 2 parameter file whose values are under a `/**` (or any single node's) `ros__parameters`.

    Raises SettingsError.
    """
    try:
        content = yaml.safe_load(Path(path).read_text())
    except (OSError, yaml.YAMLError) as error:
        raise SettingsError([f"{path} cannot be read: {error}"]) from error
    nodes = content if isinstance(content, dict) else {}
    found = [node["ros__parameters"] for node in nodes.values() if isinstance(node, dict) and "ros__parameters" in node]
    if len(found) != 1 or not isinstance(found[0], dict):
        raise SettingsError([f"{path} needs one node name with ros__parameters under it, such as /**; found {len(found)}"])
    return read(dict(_flatten(found[0])))


def problem_with(declaration: Declaration, value: Any) -> str | None:
    """One line that says what is wrong with a value, or None."""
    problem = _type_problem(value, declaration.default)
    if problem is None and declaration.choices and value not in declaration.choices:
        problem = f"expected one of {', '.join(map(str, declaration.choices))}"
    if problem is None and isinstance(value, (int, float)) and not isinstance(value, bool):
        low, high = declaration.low, declaration.high
        if not math.isfinite(value) or (low is not None and value < low) or (high is not None and value > high):
            bounds = [f"at least {low:g}"] if low is not None else []
            bounds += [f"at most {high:g}"] if high is not None else []
            problem = "expected " + " and ".join(bounds or ["a finite number"])
    return problem and f"parameter {declaration.name} is {value!r}, {problem}"


def _declared(owner: type, prefix: str) -> Iterator[Declaration]:
    for f in fields(owner):
        if f.metadata:
            yield Declaration(prefix + f.name, f.default, **f.metadata)
        elif is_dataclass(f.default_factory):
            yield from _declared(f.default_factory, f"{prefix}{f.name}.")


def _build(owner: type, checked: Mapping[str, Any], prefix: str) -> Any:
    return owner(**{f.name: checked[prefix + f.name] for f in fields(owner)})


def _type_problem(value: Any, default: Any) -> str | None:
    if isinstance(default, tuple):
        if isinstance(value, (list, tuple)) and all(isinstance(v, str) for v in value):
            return None if len(set(value)) == len(value) else "expected each name once"
        return "expected a list of names"
    if isinstance(default, bool):
        return None if isinstance(value, bool) else "expected true or false"
    if isinstance(default, float):  # YAML writes 10.0 as 10 just as well
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
        return None if fits else "expected a number"
    if isinstance(default, int):
        return None if isinstance(value, int) and not isinstance(value, bool) else "expected a whole number"
    return None if isinstance(value, str) else "expected a text"


def _unknown(name: str, known: Mapping[str, Declaration], cameras: Sequence[str]) -> str:
    if name.startswith("camera.") and name.split(".")[1] not in cameras:
        return f"parameter {name} is about a camera that `cameras` does not list ({', '.join(cameras) or 'it is empty'})"
    close = [k for k in known if k.rpartition(".")[2] == name.rpartition(".")[2]] or get_close_matches(name, known, n=1)
    return f"parameter {name} is not known" + (f"; did you mean {close[0]}?" if close else "")


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
