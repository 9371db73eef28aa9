"""The three passes over one network: an observation into a slot, a slot into actions, running requests one token on."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..pi05.cache import Strip
from ..pi05.model import Pi05
from .observation import Observation
from .outputs import Token
from .request import RunningRequest


class Passes:
    """What every way of scheduling computes, so that engines differ in order and memory alone.

    cameras: what `padded` fills up to. padded: missing cameras and prompt padding are computed and masked, as openpi,
    LeRobot and OxyGen do; the values stay the same, the time does not.
    """

    def __init__(self, model: Pi05, *, denoise_steps: int, accumulated_time: bool, cameras: int, padded: bool,
                 seed: int | None, fixed_noise: bool) -> None:
        self.model = model
        config = model.config
        self._cameras, self._padded = cameras, padded
        self._generator = torch.Generator()
        if seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(seed)
        self._noise_shape = (config.action_horizon, config.action_dim)
        self._fixed_noise = torch.randn(self._noise_shape, generator=self._generator) if fixed_noise else None
        with torch.inference_mode():
            self._plan = model.plan(denoise_steps, accumulated_time)

    @torch.inference_mode()
    def prefill(self, observation: Observation, slot: Strip, wants_hidden: bool) -> Tensor | None:
        """Fill the slot; the hidden state [1, width] after the last prompt token if it is wanted. Waits for a GPU."""
        device = self.model.device
        images, tokens = _to_pixels(observation.images.to(device, non_blocking=True)), observation.tokens.to(device)
        valid = None
        if self._padded:
            images, tokens, valid = self._pad(images, tokens)
        x = self.model.embed_prefix(images, tokens)
        hidden = self.model.backbone.prefill(x, slot, valid=valid, hidden="last" if wants_hidden else "none")
        if device.type == "cuda":
            # The clock's next reading is to include what the GPU still has queued.
            torch.cuda.synchronize(device)
        return hidden

    @torch.inference_mode()
    def denoise(self, observation: Observation, slot: Strip) -> Tensor:
        """Actions [H, A] on the CPU. Raises FloatingPointError if they are not finite."""
        noise = self._noise(observation).to(self.model.device)
        actions = self.model.denoise(noise, slot, self._plan, observation.guidance).cpu()
        if not torch.isfinite(actions).all():
            raise FloatingPointError("the actions hold NaN or infinity")
        return actions

    @torch.inference_mode()
    def step(self, running: Sequence[RunningRequest]) -> list[Token]:
        """One token for each running request, in their order, from one pass over the weights."""
        ready = [request for request in running if not request.pending]
        asking = [request for request in running if request.pending]
        pending = torch.tensor([token for r in asking for token in r.pending], dtype=torch.int64)
        logits = self.model.advance(
            pending.to(self.model.device), [r.continuation() for r in asking], [r.prefix_hidden for r in ready]
        )
        said = {
            id(request): request.say(best if request.request.temperature == 0 else request.sample(row))
            for request, row, best in zip(ready + asking, logits, logits.argmax(-1).tolist())
        }
        return [said[id(request)] for request in running]

    def _noise(self, observation: Observation) -> Tensor:
        if observation.noise is not None:
            return observation.noise
        if self._fixed_noise is not None:
            return self._fixed_noise
        return torch.randn(self._noise_shape, generator=self._generator)

    def _pad(self, images: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Images [cameras, ...], tokens [max_token_len], and which positions of that prefix [P] are real."""
        config = self.model.config
        present, missing = len(images), self._cameras - len(images)
        room = config.max_token_len - len(tokens)
        if missing < 0 or room < 0:
            raise ValueError(
                f"{present} images and {len(tokens)} tokens do not fit "
                f"{self._cameras} cameras and {config.max_token_len} tokens"
            )
        per_image = config.vision.tokens_per_image
        valid = torch.ones(self._cameras * per_image + config.max_token_len, dtype=torch.bool, device=tokens.device)
        valid[present * per_image : self._cameras * per_image] = False
        valid[len(valid) - room :] = False
        return F.pad(images, (0, 0) * 3 + (0, missing), value=-1.0), F.pad(tokens, (0, room)), valid


def _to_pixels(images: Tensor) -> Tensor:
    """uint8 [C, S, S, 3] -> float32 [C, 3, S, S] in [-1, 1]; float images are that already."""
    if images.dtype == torch.uint8:
        return images.permute(0, 3, 1, 2).float().div_(255.0).mul_(2.0).sub_(1.0)
    return images
