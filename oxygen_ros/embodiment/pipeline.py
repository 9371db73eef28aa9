"""One observation into model input and one action chunk out of it: the glue that the node and the replay share."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from PIL import Image

from .errors import InputError
from .images import decode_compressed, rotate
from .letterbox import resize_with_pad, resize_with_pad_lerobot
from .normalization import Normalizer, Statistics
from .prompt import clean_text, subtask_text
from .prompt_writer import PromptWriter
from .robot import Camera, Robot
from .tokenizer import Tokenizer

RESIZES = {"openpi": resize_with_pad, "lerobot": resize_with_pad_lerobot}


@dataclass(frozen=True)
class ModelInput:
    """images: uint8 [C, S, S, 3] (resize "openpi"; the model sees x / 255 * 2 - 1) or float32 [C, 3, S, S] in [-1, 1]
    ("lerobot"), present cameras only. cameras: their names, in model order. tokens: int64 [T], begin-of-sequence
    first, unpadded.
    state: float64 [D], model units before normalisation. warnings: lines for the operator.
    shared_tokens: how many of the tokens language continues; None: all."""

    images: np.ndarray
    cameras: list[str]
    tokens: np.ndarray
    state: np.ndarray
    warnings: list[str] = field(default_factory=list)
    shared_tokens: int | None = None


class Pipeline:
    """For one robot and one checkpoint.

    statistics: "state" and "actions" -> Statistics, or the mapping of measures that `checkpoint` reads.
    normalization: one of normalization.RULES for both, or a mapping with "state" and "actions".
    resize: a key of RESIZES. action_dim: A, the width of the model's actions, padding included.
    padded_state_dim: width to which the normalised state is zero-padded before it is written into the prompt, as
    LeRobot 0.4.4 did; None (everyone else) writes the real dimensions only.
    padding: of pictures that are not square, in model scale; only for resize "lerobot".
    language_prompts: see `language_prompt`. shares_task_only: language continues the prompt up to its task text.
    It keeps the last task's text at hand, and what was prepared, so `observe` is for one thread.
    Raises InputError, at construction, where robot, statistics and model do not fit each other.
    """

    def __init__(
        self,
        robot: Robot,
        statistics: Mapping[str, Statistics | Mapping[str, np.ndarray]],
        normalization: str | Mapping[str, str],
        tokenizer: Tokenizer,
        *,
        image_size: int = 224,
        resize: str = "openpi",
        action_dim: int = 32,
        max_tokens: int = 200,
        padded_state_dim: int | None = None,
        padding: float = -1.0,
        language_prompts: Mapping[str, str] = {},
        shares_task_only: bool = False,
    ):
        if resize not in RESIZES:
            raise InputError("resize rule", repr(resize), f"one of {', '.join(RESIZES)}")
        if robot.action_dim > action_dim:
            found, expected = f"{robot.action_dim} dimensions", f"at most the model's {action_dim}"
            raise InputError(f"actions of {robot.name}", found, expected)
        self.robot, self.tokenizer = robot, tokenizer
        self.image_size, self.action_dim, self.max_tokens = image_size, action_dim, max_tokens
        self._resize, self._padded_state_dim = RESIZES[resize], padded_state_dim
        if resize == "lerobot":
            self._resize = partial(resize_with_pad_lerobot, padding=padding)
        self._writer = PromptWriter(tokenizer, robot.prompt, max_tokens)
        self._language_prompts, self._shares_task_only = language_prompts, shares_task_only
        self._prepared: dict[str, tuple[np.ndarray, np.ndarray]] = {}  # camera -> picture, what the model sees of it
        self._converted: tuple[np.ndarray, np.ndarray] = np.empty(0), np.empty(0)  # the last state, in model units
        self._state, self._actions = (
            Normalizer(
                normalization if isinstance(normalization, str) else normalization[feature],
                _statistics(statistics.get(feature)),
                width,
                feature,
            )
            for feature, width in (("state", robot.state_dim), ("actions", robot.action_dim))
        )

    def observe(self, images: Mapping[str, np.ndarray], state: np.ndarray, task: str) -> ModelInput:
        """images: by the robot's camera name, uint8 [H, W, 3] RGB, any size; a camera without a picture is left out.
        state: [state_dim], robot units. Raises InputError for a missing required camera, a bad picture or state, a
        blank task.
        """
        state = np.asarray(state, np.float64)
        return self._assemble(images, self._model_state(state), task, self.robot.range_warnings(state))

    def prepare(self, images: Mapping[str, np.ndarray]) -> None:
        """Scale pictures, as `observe` takes them, that are likely to come next. They must not change any more."""
        cameras = [camera for camera in self.robot.cameras if camera.name in images]
        self._prepared = {c.name: (images[c.name], self._square(c, images[c.name])) for c in cameras}

    def expect(self, state: np.ndarray, task: str) -> None:
        """The same for a state and a task. Raises InputError, as `observe` would."""
        self._writer.expect(task, self._written(self._model_state(np.asarray(state, np.float64))))

    def rehearse(self, cameras: Collection[str]) -> ModelInput:
        """Model input of blank JPEG pictures of these cameras and a state in the midst of the statistics.

        Whoever computes once from it has loaded and cached what the first real frame would otherwise wait for.
        """
        file = io.BytesIO()
        Image.new("RGB", (640, 480)).save(file, "JPEG")
        blank = decode_compressed("jpeg", file.getvalue())
        model_state = self._state.unnormalize(np.zeros(self.robot.state_dim))
        return self._assemble({name: blank for name in cameras}, model_state, "rehearse", [])

    def _assemble(self, images: Mapping[str, np.ndarray], model_state: np.ndarray, task: str, warnings: list[str]
                  ) -> ModelInput:
        pixels, cameras = self._pixels(images)
        tokens, shortened = self._writer.write(task, self._written(model_state))
        warnings = warnings + ([shortened] if shortened else [])
        shared = self._writer.common(tokens) if self._shares_task_only else None
        return ModelInput(pixels, cameras, np.array(tokens, np.int64), model_state, warnings, shared)

    def act(self, model_actions: np.ndarray, model_state: np.ndarray) -> np.ndarray:
        """Model output [H, A] -> float32 [H, robot action_dim] in robot units. model_state: ModelInput.state."""
        return self.robot.to_robot_actions(self._actions.unnormalize(model_actions), model_state).astype(np.float32)

    def model_actions(self, robot_actions: np.ndarray, model_state: np.ndarray) -> np.ndarray:
        """The inverse of `act`: robot units [H, robot action_dim] -> float32 [H, A], normalised, padded with 0,
        relative to `model_state` where the model gives deltas. Real-time chunking passes the state of the new
        observation."""
        normalized = self._actions.normalize(self.robot.to_model_actions(robot_actions, model_state))
        padded = np.zeros((*normalized.shape[:-1], self.action_dim), np.float32)
        padded[..., : normalized.shape[-1]] = normalized
        return padded

    def language_prompt(self, task: str, text: str = "", instruction: str = "", *, whole: bool = False) -> np.ndarray:
        """int64 ids of a language request's prompt: what it appends to its frame's prefix, or the whole text beside the
        pictures, which begins with begin-of-sequence.

        task: a key of the language prompts, where {text} is `text`, cleaned, and {instruction} the task being obeyed,
        as subtask decoding writes it. Raises InputError for an unknown task, and a blank text where the prompt needs
        one.
        """
        if task not in self._language_prompts:
            raise InputError("language task", repr(task), f"one of {', '.join(self._language_prompts)}")
        prompt = self._language_prompts[task]
        if "{instruction}" in prompt:
            prompt = prompt.replace("{instruction}", subtask_text(instruction))
        if "{text}" in prompt:
            prompt = prompt.replace("{text}", clean_text(text))
        return np.array([self.tokenizer.bos] * whole + self.tokenizer.encode(prompt), np.int64)

    def _model_state(self, state: np.ndarray) -> np.ndarray:
        """Raises InputError."""
        if np.array_equal(state, self._converted[0]):
            return self._converted[1]
        state = state.copy()  # who gave it may change it, and give it again
        model_state = self.robot.to_model_state(state)
        if not np.isfinite(model_state).all():
            bad = [name for name, value in zip(self.robot.joints, model_state) if not np.isfinite(value)]
            raise InputError("state", f"no finite {', '.join(bad)}", "finite numbers")
        self._converted = state, model_state
        return model_state

    def _written(self, model_state: np.ndarray) -> np.ndarray:
        written = self._state.normalize(model_state)
        if self._padded_state_dim is not None:
            written = np.pad(written, (0, self._padded_state_dim - len(written)))
        return written

    def _pixels(self, images: Mapping[str, np.ndarray]) -> tuple[np.ndarray, list[str]]:
        known = [camera.name for camera in self.robot.cameras]
        if strangers := [name for name in images if name not in known]:
            raise InputError("cameras", ", ".join(strangers), f"names among {', '.join(known)}")
        if missing := [c.name for c in self.robot.cameras if c.required and c.name not in images]:
            raise InputError("cameras", f"no picture of {', '.join(missing)}", "one of each required camera")
        present = [camera for camera in self.robot.cameras if camera.name in images]
        if not present:
            raise InputError("cameras", "no picture at all", f"at least one of {', '.join(known)}")
        for camera in present:
            image = images[camera.name]
            if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
                raise InputError(f"picture of {camera.name}", f"{image.dtype} {list(image.shape)}", "uint8 [H, W, 3]")
        squares = [self._square(camera, images[camera.name]) for camera in present]
        return np.stack(squares), [camera.name for camera in present]

    def _square(self, camera: Camera, image: np.ndarray) -> np.ndarray:
        picture, square = self._prepared.get(camera.name, (None, None))
        return square if picture is image else self._resize(rotate(image, camera.rotation), self.image_size)


def _statistics(measures: Statistics | Mapping[str, np.ndarray] | None) -> Statistics:
    if isinstance(measures, Statistics):
        return measures
    return Statistics(**(measures or {}))
