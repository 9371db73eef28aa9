"""pi0.5, whole: what a frame, an action chunk and a language token are, in terms of its three parts."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .backbone import Backbone, Continuation
from .cache import Strip
from .config import Pi05Config
from .expert import ActionExpert
from .flow import euler, flow_times
from .packed import pack_all
from .rtc import Guidance, trained_times
from .vision import VisionTower

_FLOAT32_ISLAND = re.compile(
    r"^vision\.(patch|position)_embedding|^backbone\.(layers\.\d+\.)?norm|^expert\.(layers\.\d+\.)?norm"
    r"|^expert\.(action|time)_(in|out)\."
)


class Pi05(nn.Module):
    """The pi0.5 vision-language-action network.

    It computes on memory that the caller owns (`Strip`, `Tail`), one frame at a time and any number of
    language requests at once. Missing cameras and prompt padding are left out by the caller: they consume
    no position and nobody sees them.
    """

    def __init__(self, config: Pi05Config) -> None:
        super().__init__()
        self.config = config
        self.vision = VisionTower(config.vision, config.backbone.width)
        self.backbone = Backbone(config.backbone, config.vocab_size, config.rms_norm_eps, config.rope_theta)
        self.expert = ActionExpert(config)

    @property
    def device(self) -> torch.device:
        return self.backbone.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the residual streams and of the KV cache."""
        return self.backbone.embedding.dtype

    def precision_of(self, name: str, dtype: torch.dtype) -> torch.dtype:
        """The type of parameter `name` when the network computes in `dtype`.

        Float32 stays where openpi keeps it (pi05.md section 11): patch and position embedding, the Gemma norms
        and their adaptive maps, the action and time projections.
        """
        return torch.float32 if _FLOAT32_ISLAND.search(name) else dtype

    @property
    def compiled(self) -> bool:
        """Whether there is a part whose weights the compiled code has, so that torch cannot compute it any more."""
        return self.backbone.compiled or self.expert.compiled

    def pack(self, compiled: bool = True) -> None:
        """Lay all large matrices out for the CPU, in float32: the layers' for the compiled code, the pictures' for MKL.

        compiled: False has all of them packed for MKL. The values stay the same; the plain weights are given back, so
        the network cannot be saved or moved afterwards.
        """
        pack_all(self.vision)
        self.backbone.pack(compiled)
        self.expert.pack(compiled)

    def embed_images(self, images: Tensor) -> Tensor:
        """images [N, 3, S, S] in [-1, 1] -> [N * tokens_per_image, width], one after the other."""
        if not len(images):
            return self.backbone.embedding.new_empty(0, self.config.backbone.width)
        return self.vision(images).flatten(0, 1).to(self.dtype)

    def embed_prefix(self, images: Tensor, tokens: Tensor) -> Tensor:
        """images [N, 3, S, S] in [-1, 1] and tokens [T] -> the prefix [N * tokens_per_image + T, width]."""
        return torch.cat((self.embed_images(images), self.backbone.embed(tokens)))

    def plan(self, steps: int, accumulated_time: bool = False) -> Tensor:
        """Everything that depends on flow time alone: modulations [steps, norms, 3, width]."""
        times = torch.tensor(flow_times(steps, accumulated_time), dtype=torch.float64, device=self.device)
        return self.expert.modulations(times)

    def denoise(self, noise: Tensor, strip: Strip, plan: Tensor, guidance: Guidance | None = None) -> Tensor:
        """noise [H, A] float32 -> normalised actions [H, A] float32, given a prefilled strip.

        guidance joins them to the chunk that is being executed.
        """
        if guidance is None:
            return self.expert.denoise(noise, plan, strip)
        return euler(noise, len(plan), lambda x, step: self.expert.velocity(x, plan[step], strip), guidance.guide)

    def denoise_after(self, committed: Tensor, noise: Tensor, strip: Strip, steps: int) -> Tensor:
        """Like `denoise`, with the first rows held at `committed` [delay, <= A]; for weights trained that way (rtc)."""
        delay = len(committed)
        prefix = torch.zeros(delay, noise.shape[1], device=noise.device)
        prefix[:, : committed.shape[1]] = committed
        times = trained_times(flow_times(steps), len(noise), delay).to(self.device)
        # [steps, rows, norms, 3, width] -> [steps, norms, 3, rows, width]
        plan = self.expert.modulations(times).permute(0, 2, 3, 1, 4)

        def hold(x: Tensor) -> Tensor:
            return torch.cat((prefix, x[delay:]))

        x = hold(noise)
        for step in range(steps):
            x = hold(torch.add(x, self.expert.velocity(x, plan[step], strip), alpha=-1.0 / steps))
        return x

    def advance(self, tokens: Tensor, continuations: Sequence[Continuation], ready: Sequence[Tensor] = ()) -> Tensor:
        """tokens [sum of counts] -> the logits [requests, vocab_size] that follow each continuation.

        ready: hidden states [1, width] that need the language head only. Their logits come first; the head, which is
        most of a small step's bytes, is read once for all.
        """
        hidden = list(ready)
        if continuations:
            hidden.append(self.backbone.advance(self.backbone.embed(tokens), continuations))
        return self.backbone.logits(torch.cat(hidden))
