"""What our network makes of the inputs of a reference folder."""

from __future__ import annotations

import torch
from torch import Tensor

from ..pi05.backbone import Continuation
from ..pi05.cache import Strip, Tail
from ..pi05.flow import euler, time_embedding
from ..pi05.model import Pi05


class Recomputation:
    """Every recorded quantity of one text mask, computed by our network on a reference folder's inputs.

    Samples are computed one by one, without their masked cameras and padding, and laid out as recorded:
    [B, camera tokens, then text], zero where invalid.

    strips: the prefilled prefix of each sample.
    """

    def __init__(self, model: Pi05, inputs: dict[str, Tensor], causal_text: bool, steps: int, new_tokens: int) -> None:
        self.model, self.inputs, self.steps, self.new_tokens = model, inputs, steps, new_tokens
        self.causal_text = causal_text
        self.strips: list[Strip] = []
        samples = [self._sample(index) for index in range(len(inputs["tokens"]))]
        self.quantities = {
            name: torch.stack([s[name] for s in samples], dim=1 if name in ("velocities", "x_after_step") else 0)
            for name in samples[0]
        }
        one = torch.ones(len(inputs["tokens"]), dtype=torch.float64)
        expert = model.expert
        self.quantities["time_embedding_t1"] = time_embedding(one, expert.time_in.in_features, *expert.periods).float()
        self.quantities["adarms_cond_t1"] = expert.condition(one)

    def _sample(self, index: int) -> dict[str, Tensor]:
        model, config = self.model, self.model.config
        images, image_mask = self.inputs["images"][index], self.inputs["image_masks"][index]
        tokens, token_mask = self.inputs["tokens"][index], self.inputs["token_mask"][index]
        noise = self.inputs["noise"][index]
        backbone = config.backbone

        valid = torch.cat((image_mask.repeat_interleave(config.vision.tokens_per_image), token_mask))
        image_features = model.vision(images)
        everything = torch.cat((image_features.flatten(0, 1), model.backbone.embed(tokens)))
        x = model.embed_prefix(images[image_mask], tokens[token_mask])

        width = config.action_horizon + len(valid) + self.new_tokens
        storage = torch.zeros(backbone.depth, 2, backbone.num_kv_heads, width, backbone.head_dim)
        strip = Strip(storage, config.action_horizon)
        causal_from = int(len(x) - token_mask.sum()) if self.causal_text else None
        hidden = model.backbone.prefill(x, strip, causal_from=causal_from, hidden="all")
        self.strips.append(strip)

        def laid_out(rows: Tensor, axis: int = 0) -> Tensor:
            shape = list(rows.shape)
            shape[axis] = len(valid)
            return torch.zeros(shape).index_copy_(axis, valid.nonzero()[:, 0], rows)

        result = {
            "image_features": image_features,
            "prefix_embeddings": everything,
            "prefix_pad_mask": valid,
            "prefix_position_ids": valid.cumsum(0) - 1,
            "prefix_hidden_final": laid_out(hidden),
            "suffix_embeddings_t1": model.expert.action_in(noise),
            "suffix_position_ids": strip.prefix_length + torch.arange(config.action_horizon),
        }
        for name, layer in (("first", 0), ("last", backbone.depth - 1)):
            key, value = strip.prefix(layer)
            result[f"prefix_k_{name}"], result[f"prefix_v_{name}"] = laid_out(key, 1), laid_out(value, 1)
        result |= self._actions(noise, strip)
        result |= self._language(hidden[-1:], strip, torch.zeros_like(storage[..., : self.new_tokens, :]))
        return result

    def _actions(self, noise: Tensor, strip: Strip) -> dict[str, Tensor]:
        plan = self.model.plan(self.steps)
        velocities, states = [], []

        def velocity(x: Tensor, step: int) -> Tensor:
            if step:
                states.append(x)
            velocities.append(self.model.expert.velocity(x, plan[step], strip))
            return velocities[-1]

        actions = euler(noise, self.steps, velocity)
        accumulated = self.model.denoise(noise, strip, self.model.plan(self.steps, accumulated_time=True))
        return {
            "actions": actions,
            "actions_accumulated_time": accumulated,
            "velocity_t1": velocities[0],
            "velocities": torch.stack(velocities),
            "x_after_step": torch.stack([*states, actions]),
        }

    def _language(self, last_hidden: Tensor, strip: Strip, storage: Tensor) -> dict[str, Tensor]:
        tail, logits = Tail(storage), self.model.backbone.logits(last_hidden)
        all_logits, tokens = [], []
        for _ in range(self.new_tokens):
            all_logits.append(logits[0])
            tokens.append(logits.argmax(-1))
            if len(tokens) < self.new_tokens:
                logits = self.model.advance(tokens[-1], [Continuation(strip, tail, 1)])
        return {
            "lang_logits_first": all_logits[0],
            "lang_logits": torch.stack(all_logits),
            "lang_tokens": torch.cat(tokens),
        }
