"""A policy folder and a robot's settings, made ready: pipeline and engine.

The node, the replay and the benchmark all start from here, so they run the same thing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from .checkpoint.checkpoint import Checkpoint
from .checkpoint.errors import CheckpointError
from .checkpoint.load import load
from .embodiment.pipeline import ModelInput, Pipeline
from .embodiment.prompt import LANGUAGE_TASKS
from .embodiment.robot import Robot
from .embodiment.tokenizer import Tokenizer
from .engine.engine import Engine, EngineSettings
from .engine.observation import Observation
from .engine.outputs import Actions
from .fitting import fit
from .limits import Limits
from .pi05.rtc import Guidance
from .places import resolve
from .settings import Settings, SettingsError


@dataclass(frozen=True)
class Policy:
    """Robot observations in, robot actions out; `engine` does the work in between. sha256: of the weight files."""

    folder: Path
    layout: str
    trained: bool
    sha256: str
    robot: Robot
    pipeline: Pipeline
    engine: Engine

    def observation(self, seen: ModelInput, stamp_ns: int, guidance: Guidance | None = None) -> Observation:
        images, tokens = torch.from_numpy(seen.images), torch.from_numpy(seen.tokens)
        return Observation(images, tokens, stamp_ns, guidance=guidance, shared_tokens=seen.shared_tokens)

    def robot_actions(self, actions: torch.Tensor, seen: ModelInput) -> np.ndarray:
        """Normalised actions [H, A] -> robot units [H, action_dim], float32."""
        return self.pipeline.act(actions.numpy(), seen.state)

    def use(self, settings: Settings) -> None:
        """Take the settings that may change while frames are made."""
        self.engine.settings = replace(self.engine.settings, steps_per_frame=settings.language.steps_per_frame or None)

    def rehearse(self, cameras: Collection[str]) -> None:
        """Make one frame from blank pictures, in the thread that will make the real ones: what is done for the first
        time is slow. Draws no noise, so that a seed gives the same chunks with and without it."""
        seen = self.pipeline.rehearse(cameras)
        config = self.engine.model.config
        noise = torch.zeros(config.action_horizon, config.action_dim)
        for output in self.engine.frame(replace(self.observation(seen, stamp_ns=0), noise=noise)):
            if isinstance(output, Actions):
                self.robot_actions(output.actions, seen)


def load_policy(
    settings: Settings,
    say: Callable[[str], None] = lambda text: None,
    reading: Callable[[int, int], None] = lambda done, total: None,
) -> Policy:
    """Read the folder, check that it fits the robot, and warm the engine up.

    say is given lines for the log; reading how many of how many parameters are read, and may raise to end it.
    Raises SettingsError, CheckpointError or embodiment.InputError, each saying what to change.
    """
    if not settings.policy:
        raise SettingsError(["parameter policy is empty, expected a policy folder"])
    if settings.threads:
        torch.set_num_threads(settings.threads)
    device = _device(settings.device)
    checkpoint = load(
        resolve(settings.policy), asset_id=settings.asset_id, allow_identity_statistics=settings.identity_statistics
    )
    for note in checkpoint.notes:
        say(note)
    body = fit(settings, checkpoint, say)
    Limits(body, settings)  # raises where they allow nothing, before the weights are read
    pipeline = _pipeline(body, settings, checkpoint)
    say(f"computing in {settings.dtype} on {device}")
    with _beside(checkpoint.sha256) as identity:
        engine = _engine(settings, checkpoint, device, reading)
    return Policy(checkpoint.folder, checkpoint.layout, checkpoint.trained, identity.result(), body, pipeline, engine)


def _engine(settings: Settings, checkpoint: Checkpoint, device: torch.device, reading: Callable[[int, int], None]
            ) -> Engine:
    model = checkpoint.model(device, getattr(torch, settings.dtype), reading)
    model.pack()
    engine = Engine(model, EngineSettings(
        denoise_steps=settings.denoise_steps,
        accumulated_time=checkpoint.conventions.accumulated_time,
        cameras=len(settings.cameras),
        slots=settings.kv_slots,
        max_requests=settings.language.max_requests,
        max_waiting=settings.language.max_waiting,
        max_language_tokens=settings.language.max_request_tokens,
        steps_per_frame=settings.language.steps_per_frame or None,
        patience=settings.language.patience,
        ageing=settings.language.ageing,
        text_attention=settings.text_attention,
        seed=None if settings.seed < 0 else settings.seed,
        fixed_noise=settings.fixed_noise,
        fixed_shapes=None if settings.cuda_graphs else False,
    ))
    engine.warm_up()
    return engine


@contextmanager
def _beside(work: Callable[[Callable[[], bool]], str]) -> Iterator[Future[str]]:
    """Run `work` in a thread while the block runs, which waits for it; it is told to stop where the block fails."""
    failed = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work, failed.is_set)
        try:
            yield future
        except BaseException:
            failed.set()
            raise


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # some are only names: they hold no numbers, or need a package
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).splitlines()[0]
        raise SettingsError([f"parameter device is {name!r}, which this torch cannot use: {reason}"]) from error
    return device


def _pipeline(body: Robot, settings: Settings, checkpoint: Checkpoint) -> Pipeline:
    rules = checkpoint.conventions
    tokenizer = Tokenizer.load(resolve(settings.tokenizer) if settings.tokenizer else checkpoint.folder)
    if tokenizer.vocab_size > checkpoint.config.vocab_size:
        raise CheckpointError(
            f"the tokenizer of {settings.tokenizer or checkpoint.folder} has {tokenizer.vocab_size} pieces, "
            f"the model's embedding {checkpoint.config.vocab_size}: they do not belong together"
        )
    return Pipeline(
        body,
        checkpoint.statistics,
        rules.normalization,
        tokenizer,
        image_size=checkpoint.config.vision.image_size,
        resize=rules.resize,
        action_dim=checkpoint.config.action_dim,
        max_tokens=checkpoint.config.max_token_len,
        padded_state_dim=rules.padded_state_dim,
        padding=rules.padding,
        language_prompts={task: getattr(settings.language, f"{task}_prompt") for task in LANGUAGE_TASKS},
        shares_task_only=settings.language.shared_text == "task",
    )
