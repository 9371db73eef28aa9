"""Every setting of a robot that runs a policy, declared once: name, type, default, range, meaning.

The node declares them as ROS parameters, the replay reads them from the same YAML. Nothing here knows ROS.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any

from .declaration import UNSET, Declaration, declared, parameter
from .embodiment.camera_order import SLOTS
from .embodiment.errors import InputError
from .embodiment.generic import CONVENTIONS, LONGEST_STEP
from .embodiment.prompt import FORMS, LANGUAGE_TASKS, clean_text
from .embodiment.registry import ROBOTS
from .embodiment.robot import REPRESENTATIONS

NONE = ("none",)
"""A list that is empty on purpose. ROS has no type for an empty list, and [] leaves it to the robot description."""


class SettingsError(ValueError):
    """Settings that cannot be used. `problems`: one line each, with the key, what was found and what was expected."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True)
class CameraSettings:
    """camera.<name>.*, as each is described here."""

    topic: str = parameter(
        "", "Image topic; empty is <camera name>/image_raw, with /compressed where that is the transport."
    )
    transport: str = parameter(
        "raw",
        "Message type: raw is sensor_msgs/Image, compressed is sensor_msgs/CompressedImage.",
        choices=("raw", "compressed"),
    )
    rotation: int = parameter(
        0, "Degrees clockwise that bring the picture upright, before it is scaled.", choices=(0, 90, 180, 270)
    )
    slot: str = parameter(
        "",
        f"The policy's name of this camera: {', '.join(SLOTS)}, or a feature of a LeRobot policy. Empty is the robot "
        "description's, else the camera's own name.",
    )
    max_age: float = parameter(
        0.5, "Seconds after which the camera's last picture no longer counts.", low=0.0, high=1e6, live=True
    )
    frozen_after: int = parameter(
        0, "This many pictures in a row without one changed byte count as a frozen camera, though their stamps go on; "
        "0: none do. A simulated camera may well send them.", low=0, high=10**6, live=True
    )
    optional: bool = parameter(
        False,
        "While it has no usable picture go on without it, masked, as the policy was trained to; otherwise no chunk."
    )


@dataclass(frozen=True)
class GripperSettings:
    """gripper.<name>.*

    What is UNSET or empty is the robot description's, and as in embodiment.generic.Gripper where that has none.
    """

    closed: float = parameter(UNSET, "Position when closed, in the robot's own units.")
    open: float = parameter(UNSET, "Position when open, in the robot's own units; may be the smaller number.")
    model_closed: float = parameter(
        UNSET, "The same position in the training data; 0 unless the robot description says."
    )
    model_open: float = parameter(UNSET, "The same position in the training data; 1 unless the robot description says.")
    convention: str = parameter(
        "",
        "How the training data counts from closed to open: linear in proportion; the others as openpi's for ALOHA, "
        "aloha_finger for a robot that speaks of finger positions, aloha_motor for one whose actions are motor angles.",
        choices=("", *CONVENTIONS),
    )


@dataclass(frozen=True)
class LanguageSettings:
    """language.*, as each is described here."""

    max_requests: int = parameter(8, "Language requests decoded together.", low=1, high=256)
    max_waiting: int = parameter(
        32, "Language requests that may wait to be decoded; more are rejected.", low=1, high=4096
    )
    max_request_tokens: int = parameter(192, "Room for prompt and answer of one request, in tokens.", low=2, high=8192)
    max_tokens: int = parameter(
        64, "Length of an answer in tokens where the request gives none.", low=1, high=8192, live=True
    )
    temperature: float = parameter(0.0, "Sampling temperature; 0 is greedy.", low=0.0, high=100.0, live=True)
    top_p: float = parameter(
        1.0, "Sampling draws from the likeliest tokens that together have this probability.", low=1e-6, high=1.0,
        live=True,
    )
    stop: tuple[str, ...] = parameter((), "Texts at which an answer ends; they are not part of it.", live=True)
    ask_prompt: str = parameter(
        "\nQuestion: {text}\nAnswer: ",
        "What follows the shared prefix for ASK; {text} is the question, which it needs, {instruction} the task being "
        "obeyed."
    )
    remember_prompt: str = parameter("\nDescribe the scene: ", "The same for REMEMBER and periodic memories.")
    subtask_prompt: str = parameter("\nSubtask: ", "The same for periodic subtasks.")
    own_prefix: tuple[str, ...] = parameter(
        (), "Tasks whose prompt is the whole text beside the pictures, in place of a continuation of the action "
        "prompt: one more prefill for each request.", choices=LANGUAGE_TASKS
    )
    shared_text: str = parameter(
        "prompt", "What language continues: the whole action prompt, or the part up to the end of the task text, which "
        "takes text_attention causal.", choices=("prompt", "task")
    )
    memory_period: float = parameter(
        0.0, "Seconds between captions of the scene that are made unasked; 0 makes none.", low=0.0, high=1e6, live=True
    )
    subtask_period: float = parameter(
        0.0, "Seconds between subtask texts of the policy; 0 makes none.", low=0.0, high=1e6, live=True
    )
    patience: int = parameter(
        20, "Frames in a row without time for language after which it gets one step all the same.", low=1
    )
    ageing: float = parameter(
        10.0, "Urgency that a waiting request gains per second. 100 of it make a memory as urgent as a new question, "
        "or a question as a new subtask; a request's own priority is added.", low=0.0, high=1e6
    )
    steps_per_frame: int = parameter(
        0, "At most so many batched decode steps a frame; 0 leaves it to the deadline.", low=0, high=8192, live=True
    )
    margin: float = parameter(
        0.005, "Seconds before the next control tick at which decoding stops.", low=0.0, high=100.0, live=True
    )


@dataclass(frozen=True)
class Settings:
    """All parameters of a node. camera, gripper and the limits: by name of a camera, gripper, joint or action."""

    policy: str = parameter("", "Policy folder (openpi, LeRobot or oxygen_ros): a path, or package://<package>/<path>.")
    tokenizer: str = parameter("", "Tokenizer file, or a folder with one; empty looks in the policy folder.")
    asset_id: str = parameter(
        "", "Which statistics of an openpi folder, where it has several; empty takes the only ones."
    )
    identity_statistics: bool = parameter(
        False, "Feed a policy that has no statistics with raw numbers; only for one that was trained on them."
    )
    prompt: str = parameter(
        "",
        "Form of the text that the policy reads; empty is the policy's, else the robot description's.",
        choices=("", *FORMS),
    )
    text_attention: str = parameter(
        "bidirectional",
        "What the prompt's positions see of each other: all, as pi0.5 was trained, or only what precedes them, as "
        "OxyGen computes it.", choices=("bidirectional", "causal")
    )
    robot: str = parameter(
        "",
        f"A known robot ({', '.join(ROBOTS)}), or any other name for your own, with joints and step_dt; empty is the "
        "one that the policy names.",
    )
    cameras: tuple[str, ...] = parameter(
        (), "Names of the cameras that are there; each frame needs all that are not optional."
    )
    camera: Mapping[str, CameraSettings] = field(default_factory=dict)
    joints: tuple[str, ...] = parameter(
        (),
        "Names of the state's dimensions, as in joint_states. Of a known robot: your names of them, in its order.",
    )
    actions: tuple[str, ...] = parameter((), "Names of the actions, where they are not the joints.")
    delta: tuple[str, ...] = parameter(
        (), "Actions that the policy gives relative to the joint of the same name; [none] takes the known robot's away."
    )
    flip: tuple[str, ...] = parameter(
        (), "Joints and actions that count the other way in the training data; [none] takes the known robot's away."
    )
    grippers: tuple[str, ...] = parameter(
        (), "Joints and actions that have a gripper.<name>; [none] takes the known robot's away."
    )
    gripper: Mapping[str, GripperSettings] = field(default_factory=dict)
    limits: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    action_limits: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    rate_limits: Mapping[str, float] = field(default_factory=dict)
    step_dt: float = parameter(
        0.0, "Seconds between two actions, as in the training data; 0 is the known robot's.", low=0.0,
        high=LONGEST_STEP,
    )
    representation: str = parameter(
        "", "What the actions are; empty is the known robot's, else absolute_position.", choices=("", *REPRESENTATIONS)
    )
    frame_id: str = parameter("", "Frame of the robot's base; empty is the known robot's, else base_link.")
    instruction: str = parameter("", "Task from activation on, until an Instruction changes it; empty waits for one.")
    stop_policy: str = parameter(
        "hold",
        "What STOP, and CANCEL of the task, publish at once: hold is a chunk that stays where the last one has led to, "
        "or, once that has ended, where the joints are; nothing leaves it to the robot to end the last chunk.",
        choices=("hold", "nothing"), live=True,
    )
    dry_run: bool = parameter(
        False, "Compute and publish everything but commands: there is no ~/action_chunk and no ~/joint_trajectory."
    )
    control_rate: float = parameter(
        10.0, "Frames per second: how often an action chunk is inferred.", low=0.01, high=1000.0, live=True
    )
    chunk_continuity: str = parameter(
        "none",
        "How a chunk joins the one that is being executed. none: not at all. blend: it fades in from the old one. rtc: "
        "real-time chunking, the old one guides its denoising, and what inference has overtaken is the old one's.",
        choices=("none", "blend", "rtc"), live=True,
    )
    continuity_rows: int = parameter(
        0, "Actions of the new chunk over which the old one's pull fades; 0 is as many as the old one has left.", low=0,
        high=1000, live=True,
    )
    continuity_schedule: str = parameter(
        "linear", "How it fades.", choices=("linear", "exp", "ones", "zeros"), live=True
    )
    guidance_weight: float = parameter(
        0.0, "Bound of rtc's guidance weight; 0 is the number of denoise_steps, and more than that overshoots.",
        low=0.0, high=1000.0, live=True,
    )
    joint_state_max_age: float = parameter(
        0.5, "Seconds after which a joint's last position no longer counts.", low=0.0, high=1e6, live=True
    )
    camera_skew: float = parameter(
        0.0, "Seconds that the pictures of one frame may lie apart; 0 leaves it to their ages.", low=0.0, high=1e6,
        live=True,
    )
    device: str = parameter("cpu", "Where the network runs, as torch names it: cpu, cuda, cuda:0.")
    dtype: str = parameter("float32", "What the network computes in.", choices=("float32", "bfloat16"))
    cuda_graphs: bool = parameter(
        True, "On a GPU, record what a frame computes when configured, and replay it; false launches each operation."
    )
    threads: int = parameter(0, "CPU threads of the network; 0 is torch's own choice.", low=0, high=1024)
    denoise_steps: int = parameter(10, "Euler steps from noise to actions.", low=1, high=1000)
    kv_slots: int = parameter(
        8, "Frames whose keys and values are kept at once; one of them is the actions' own.", low=2, high=4096
    )
    seed: int = parameter(
        -1, "Seed of the noise that denoising starts from, and of sampled answers; -1 takes a new one at each start.",
        low=-1,
    )
    fixed_noise: bool = parameter(
        False, "Start every frame from the same noise, so that equal observations give equal chunks."
    )
    joint_trajectory: bool = parameter(False, "Also publish each chunk as ~/joint_trajectory.")
    trajectory_velocities: bool = parameter(
        False, "Give the points of ~/joint_trajectory velocities beside their positions; the last one's are 0."
    )
    chunk_deadline: float = parameter(
        1.0, "QoS deadline in seconds that ~/action_chunk offers; 0 offers none.", low=0.0, high=1e6
    )
    chunk_lifespan: float = parameter(
        1.0, "QoS lifespan of a chunk in seconds; a later one is not sent. 0 is unlimited.", low=0.0, high=1e6
    )
    bond_heartbeat_period: float = parameter(
        0.0, "Seconds between the heartbeats of a bond with Nav2's lifecycle manager, held while the node is active; "
        "Nav2's nodes have 0.1. 0 holds none, and needs no package bond.", low=0.0, high=100.0,
    )
    language: LanguageSettings = field(default_factory=LanguageSettings)

    def topic_of(self, camera: str) -> str:
        given = self.camera[camera]
        return given.topic or f"{camera}/image_raw" + ("/compressed" if given.transport == "compressed" else "")


_GROUPS = {"camera": CameraSettings, "gripper": GripperSettings}
_LIMITS = {
    "limits": Declaration("", (), "[lowest, highest] position of this joint, in the robot's own units.", numbers=2),
    "action_limits": Declaration(
        "", (), "[lowest, highest] of this action. Where it is a joint's position, or a displacement of it, that "
        "joint's limits hold too.", numbers=2, live=True,
    ),
    "rate_limits": Declaration(
        "", 0.0, "Most that this action may change in a second, in its own units; 0 is no limit.", low=0.0,
        high=1e9, live=True,
    ),
}
_NAMED_BY = {
    "camera": "cameras", "gripper": "grippers", "limits": "joints", "action_limits": "actions",
    "rate_limits": "actions",
}


def declarations(values: Mapping[str, Any]) -> list[Declaration]:
    """All parameters of a node with these values, some of which name what has parameters of its own.

    `cameras` names camera.<name>.*, `grippers` gripper.<name>.*, the joints limits.<name>, the actions
    action_limits.<name> and rate_limits.<name>. Values of a wrong type name nothing.
    """
    found, named = list(declared(Settings)), _named(values)
    for group, owner in _GROUPS.items():
        found += [d for name in named[group] for d in declared(owner, f"{group}.{name}.")]
    for group, declaration in _LIMITS.items():
        found += [replace(declaration, name=f"{group}.{name}") for name in named[group]]
    return found


def read(values: Mapping[str, Any]) -> Settings:
    """Settings from full names to values; what is not given has its default.

    Raises SettingsError with every unknown key, wrong type and value out of range.
    """
    named = _named(values)
    known = {d.name: d for d in declarations(values)}
    given = {name: values.get(name, d.default) for name, d in known.items()}
    problems = [_unknown(name, known, named) for name in values if name not in known]
    problems += [problem for name, d in known.items() if (problem := d.problem_with(given[name]))]
    if problems:
        raise SettingsError(problems)
    checked = {name: d.checked(given[name]) for name, d in known.items()}
    groups = {
        group: {name: _build(owner, checked, f"{group}.{name}.") for name in named[group]}
        for group, owner in _GROUPS.items()
    }
    limits = {
        group: {name: given for name in named[group] if (given := checked[f"{group}.{name}"])} for group in _LIMITS
    }
    own = {f.name: checked[f.name] for f in fields(Settings) if f.metadata}
    settings = Settings(language=_build(LanguageSettings, checked, "language."), **groups, **limits, **own)
    if problems := list(_contradictions(settings)):
        raise SettingsError(problems)
    return settings


def _contradictions(settings: Settings) -> Iterator[str]:
    """A line for each value that does not do what it is for, and for each pair of values that are fine alone."""
    language = settings.language
    for text in language.stop:
        if text.isspace() and "\n" not in text or not text:
            yield f"parameter language.stop holds {text!r}, expected texts that are not blank, or a newline"
    if "{text}" not in language.ask_prompt:
        yield (f"parameter language.ask_prompt is {language.ask_prompt!r}, expected {{text}} in it, where the question "
               "goes")
    if settings.instruction:
        try:
            clean_text(settings.instruction)
        except InputError:
            yield f"parameter instruction is {settings.instruction!r}, expected what the robot should do, or ''"
    if language.shared_text == "task" and settings.text_attention != "causal":
        yield (
            "parameter language.shared_text is 'task', expected 'prompt': with text_attention bidirectional the task "
            "text sees what follows it, so nothing else can continue it"
        )
    if language.max_tokens >= language.max_request_tokens:
        yield (f"parameter language.max_tokens is {language.max_tokens}, expected less than "
               f"language.max_request_tokens, {language.max_request_tokens}, which a question shares with its answer")
    if settings.guidance_weight > settings.denoise_steps:
        yield (f"parameter guidance_weight is {settings.guidance_weight:g}, expected at most denoise_steps, "
               f"{settings.denoise_steps}: more overshoots")
    if settings.cameras and all(settings.camera[name].optional for name in settings.cameras):
        yield "parameter camera.<name>.optional is true of every camera, expected one that a frame cannot do without"
    seen: dict[str, str] = {}  # topic -> the camera that has it
    for name in settings.cameras:
        if settings.camera[name].frozen_after == 1:
            yield f"parameter camera.{name}.frozen_after is 1, expected 0 or at least 2: every picture is like itself"
        other = seen.setdefault(topic := settings.topic_of(name), name)
        if other != name:
            yield f"parameter camera.{name}.topic is {topic!r}, which camera {other} has, expected a topic of its own"


def _named(values: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Group -> the names that have parameters in it."""

    def names(key: str) -> tuple[str, ...]:
        value = values.get(key, ())
        fits = isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value)
        return tuple(dict.fromkeys(value)) if fits and tuple(value) != NONE else ()

    robot = values.get("robot")
    known = ROBOTS.get(robot if isinstance(robot, str) else "", {})
    joints = names("joints") or tuple(known.get("joints", ()))
    # The actions of a known robot that are its joints take its owner's names of them too.
    actions = names("actions") or tuple(known.get("actions", joints))
    return {
        "camera": names("cameras"), "gripper": names("grippers"), "limits": joints, "action_limits": actions,
        "rate_limits": actions,
    }


def _build(owner: type, checked: Mapping[str, Any], prefix: str) -> Any:
    return owner(**{f.name: checked[prefix + f.name] for f in fields(owner)})


def unknown(name: str, values: Mapping[str, Any]) -> str:
    """A line that says of a name that it is no parameter of a node with these values, and which one may be meant."""
    return _unknown(name, {d.name: d for d in declarations(values)}, _named(values))


def _unknown(name: str, known: Mapping[str, Declaration], named: Mapping[str, Sequence[str]]) -> str:
    group, _, rest = name.partition(".")
    if group in named and not any(rest.startswith(f"{member}.") or rest == member for member in named[group]):
        key, have = _NAMED_BY[group], ", ".join(named[group]) or "none"
        see = f"robot or {key}" if group in _LIMITS else key
        return f"parameter {name} is about what is none of the {key} ({have}); see parameter {see}"
    close = [k for k in known if k.rpartition(".")[2] == name.rpartition(".")[2]] or get_close_matches(name, known, n=1)
    return f"parameter {name} is not known" + (f"; did you mean {close[0]}?" if close else "")
