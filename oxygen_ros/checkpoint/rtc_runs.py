"""Recorded runs of real-time chunking (rtc.json, rtc.safetensors of a reference folder), run again by our network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..pi05.cache import Strip
from ..pi05.flow import euler, flow_times
from ..pi05.model import Pi05
from ..pi05.rtc import Guidance, guidance_weight, soft_mask


class Quantity(NamedTuple):
    """name: of the recorded tensor. limit: the largest absolute difference allowed."""

    name: str
    ours: Tensor
    limit: float


def is_ours(run: Mapping[str, Any]) -> bool:
    """Whether we offer this kind of guidance: with the full Jacobian, each step takes a backward pass of the expert."""
    return run["jacobian"] == "identity"


class RtcRuns:
    """noise: [B, H, A]. strips: the prefilled prefix of each sample."""

    def __init__(self, model: Pi05, noise: Tensor, strips: Sequence[Strip]) -> None:
        self._model, self._noise, self._strips = model, noise, strips

    def quantities(self, runs: Mapping[str, Any], recorded: Mapping[str, Tensor], steps: int) -> Iterator[Quantity]:
        """What the runs that rtc.json lists come to. recorded: gives the chunks before. steps: of plain sampling.

        Raises KeyError, TypeError, ValueError, IndexError or RuntimeError for what is not of the format.
        """
        limits = runs["pass_limits"]
        plain = self._each(lambda i: self._model.denoise(self._noise[i], self._strips[i], self._model.plan(steps)))
        yield Quantity(runs["plain"], plain, limits["actions, jacobian identity"])
        for run in filter(is_ours, runs["guided"]):
            leftover = self._leftover(run, recorded)
            yield from self._weights(run, leftover.shape[1], limits)
            yield from self._guided(run, leftover, limits["trace, jacobian identity"])
        for run in runs.get("trained", ()):  # LeRobot 0.6.1 has none
            committed = self._leftover(run, recorded)[:, : run["inference_delay"]]
            yield Quantity(run["actions"], self._each(lambda i: self._model.denoise_after(
                committed[i], self._noise[i], self._strips[i], run["num_steps"])), run["pass_limit"])

    def _leftover(self, run: Mapping[str, Any], recorded: Mapping[str, Tensor]) -> Tensor:
        """[B, L, <= A]. One without a batch axis is every sample's, and where there is none it has no rows."""
        name = run["previous_chunk"]
        leftover = self._noise[0, :0] if name is None else recorded[name]
        return leftover.expand(len(self._noise), *leftover.shape[-2:])

    def _weights(self, run: Mapping[str, Any], rows: int, limits: Mapping[str, Any]) -> Iterator[Quantity]:
        guidance, horizon = _guidance(run, torch.empty(rows, 0)), self._noise.shape[1]
        mask = soft_mask(horizon, guidance.delay, guidance.end, rows, guidance.schedule)
        weights = [guidance_weight(time, guidance.max_weight) for time in flow_times(run["num_steps"])]
        yield Quantity(run["weights"], mask, limits["weights"])
        yield Quantity(run["guidance_weights"], torch.tensor(weights), limits["guidance_weights"])

    def _guided(self, run: Mapping[str, Any], leftover: Tensor, limits: Mapping[str, float]) -> Iterator[Quantity]:
        steps = run["num_steps"]
        plan = self._model.plan(steps)
        traces = []

        def sample(i: int) -> Tensor:
            guidance, trace = _guidance(run, leftover[i]), []

            def guide(x: Tensor, velocity: Tensor, time: float) -> Tensor:
                guided, error = guidance.guide(x, velocity, time), guidance.error(x, velocity, time)
                trace.append({"x1": x - time * velocity, "error": error, "correction": error,
                              "guided_velocity": guided, "x_after_step": x - guided / steps})
                return guided

            traces.append(trace)
            strip, velocity = self._strips[i], self._model.expert.velocity
            return euler(self._noise[i], steps, lambda x, step: velocity(x, plan[step], strip), guide)

        yield Quantity(run["actions"], self._each(sample), run["pass_limit"])
        for kind, name in run.get("trace", {}).items():
            by_sample = [torch.stack([step[kind] for step in trace]) for trace in traces]
            yield Quantity(name, torch.stack(by_sample, dim=1), limits[kind])

    def _each(self, sample: Callable[[int], Tensor]) -> Tensor:
        return torch.stack([sample(i) for i in range(len(self._noise))])


def _guidance(run: Mapping[str, Any], leftover: Tensor) -> Guidance:
    return Guidance(leftover, run["inference_delay"], run["execution_horizon"],
                    run["prefix_attention_schedule"].lower(), run["max_guidance_weight"])
