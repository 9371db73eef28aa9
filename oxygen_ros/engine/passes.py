"""The three passes over one network: an observation into a slot, a slot into actions, running requests one token on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..pi05.model import Pi05
from ..pi05.rtc import Guidance
from .kv_pool import Slot
from .observation import Observation
from .outputs import Token
from .request import RunningRequest


TextAttention = Literal["bidirectional", "causal"]


@dataclass(frozen=True)
class Sight:
    """What the cameras of a frame look like to the backbone: pictures [P, width], and which of them are real [P]."""

    pictures: Tensor
    valid: Tensor | None


class Passes:
    """What every way of scheduling computes, so that engines differ in order and memory alone.

    text_attention: whether the prompt's positions see each other (pi0.5) or only what precedes them (OxyGen).
    cameras: what `padded` fills up to. padded: missing cameras and prompt padding are computed and masked, as openpi,
    LeRobot and OxyGen do; the values stay the same, the time does not.
    """

    def __init__(self, model: Pi05, *, denoise_steps: int, accumulated_time: bool, text_attention: TextAttention,
                 cameras: int, padded: bool, seed: int | None, fixed_noise: bool) -> None:
        self.model = model
        config = model.config
        self._causal = text_attention == "causal"
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
    def see(self, observation: Observation) -> Sight:
        """Encode the pictures, all at once."""
        images = to_pixels(observation.images.to(self.model.device, non_blocking=True))
        if not self._padded:
            return Sight(self.model.embed_images(images), None)
        present, missing = len(images), self._cameras - len(images)
        if missing < 0:
            raise ValueError(f"{present} images are more than the {self._cameras} cameras of this engine")
        pictures = self.model.embed_images(F.pad(images, (0, 0) * 3 + (0, missing), value=-1.0))
        real = present * self.model.config.vision.tokens_per_image
        return Sight(pictures, torch.arange(len(pictures), device=pictures.device) < real)

    @torch.inference_mode()
    def prefill(self, observation: Observation, sight: Sight, slot: Slot, wants_hidden: bool) -> Tensor | None:
        """Fill the slot with what the frame's tasks share, and with what the actions see beyond that.

        Returns the hidden state [1, width] after the last shared token if it is wanted. Waits for a GPU.
        """
        return self._prefill(sight, observation.tokens, slot, self._causal, observation.shared_tokens, wants_hidden)

    @torch.inference_mode()
    def prefill_own(self, prompt: Sequence[int], sight: Sight, slot: Slot) -> Tensor:
        """Fill the slot with the frame's pictures and a prompt that sees itself both ways, as PaliGemma was trained.

        Returns the hidden state [1, width] after its last token.
        """
        hidden = self._prefill(sight, torch.tensor(prompt), slot, causal=False, shared_tokens=None, wants_hidden=True)
        assert hidden is not None
        return hidden

    def warm_up(self) -> None:
        """Nothing needs to be made before the first frame."""

    def _prefill(self, sight: Sight, tokens: Tensor, slot: Slot, causal: bool, shared_tokens: int | None,
                 wants_hidden: bool) -> Tensor | None:
        device = self.model.device
        pictures, valid = len(sight.pictures), None
        tokens = tokens.to(device)
        if self._padded:
            room = self.model.config.max_token_len - len(tokens)
            if room < 0:
                raise ValueError(f"{len(tokens)} tokens do not fit {self.model.config.max_token_len}")
            real = torch.arange(len(tokens) + room, device=device) < len(tokens)
            tokens, valid = F.pad(tokens, (0, room)), torch.cat((sight.valid, real))
        hidden = self.model.backbone.prefill(
            torch.cat((sight.pictures, self.model.backbone.embed(tokens))),
            slot,
            causal_from=pictures if causal else None,
            shared=None if shared_tokens is None else pictures + shared_tokens,
            valid=valid,
            hidden="last" if wants_hidden else "none",
        )
        if device.type == "cuda":
            # The clock's next reading is to include what the GPU still has queued.
            torch.cuda.synchronize(device)
        return hidden

    @torch.inference_mode()
    def denoise(self, observation: Observation, slot: Slot) -> Tensor:
        """Actions [H, A] on the CPU. Raises FloatingPointError if they are not finite."""
        noise = self._noise(observation).to(self.model.device)
        actions = self._denoise(noise, slot, observation.guidance).cpu()
        if not torch.isfinite(actions).all():
            raise FloatingPointError("the actions hold NaN or infinity")
        return actions

    @torch.inference_mode()
    def step(self, running: Sequence[RunningRequest]) -> list[Token]:
        """One token for each running request, in their order, from one pass over the weights."""
        order, logits = self._advance(running)
        said = {
            id(request): request.say(best if request.request.temperature == 0 else request.sample(row))
            for request, row, best in zip(order, logits, logits.argmax(-1).tolist())
        }
        return [said[id(request)] for request in running]

    def _advance(self, running: Sequence[RunningRequest]) -> tuple[Sequence[RunningRequest], Tensor]:
        """The requests in an order, and the logits [requests, vocab_size] that follow each."""
        ready = [request for request in running if not request.pending]
        asking = [request for request in running if request.pending]
        pending = torch.tensor([token for r in asking for token in r.pending], dtype=torch.int64)
        logits = self.model.advance(
            pending.to(self.model.device), [r.continuation() for r in asking], [r.prefix_hidden for r in ready]
        )
        return ready + asking, logits

    def _denoise(self, noise: Tensor, slot: Slot, guidance: Guidance | None) -> Tensor:
        return self.model.denoise(noise, slot, self._plan, guidance)

    def _noise(self, observation: Observation) -> Tensor:
        if observation.noise is not None:
            return observation.noise
        if self._fixed_noise is not None:
            return self._fixed_noise
        return torch.randn(self._noise_shape, generator=self._generator)


def to_pixels(images: Tensor) -> Tensor:
    """uint8 [C, S, S, 3] -> float32 [C, 3, S, S] in [-1, 1]; float images are that already."""
    if images.dtype == torch.uint8:
        return images.permute(0, 3, 1, 2).float().div_(255.0).mul_(2.0).sub_(1.0)
    return images
