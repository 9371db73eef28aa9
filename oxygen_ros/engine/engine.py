"""The shared-KV engine: one prefill per frame, actions first, then language for as long as there is time."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import torch

from ..pi05.model import Pi05
from .fixed_passes import make_passes
from .kv_pool import KVPool
from .observation import Observation
from .outputs import Actions, FinishReason, FrameStats, Output, Token
from .passes import Passes, Sight, TextAttention
from .request import LanguageRequest, RunningRequest
from .scheduler import Scheduler
from .step_cost import StepCost


class FrameError(RuntimeError):
    """A frame that failed in `stage`: prefill, denoise or decode. The engine is whole again and takes the next."""

    def __init__(self, stage: str, cause: Exception) -> None:
        super().__init__(f"{stage} failed: {cause or type(cause).__name__}")
        self.stage = stage


@dataclass(frozen=True)
class EngineSettings:
    """How an engine runs its network.

    cameras: the most that an observation brings. slots: frames whose keys and values are kept at once, at least 2: one
    is the actions' own. max_requests: language requests decoded together; max_waiting: those that may queue for it;
    max_language_tokens: prompt and answer of one request together. steps_per_frame: at most so many batched decode
    steps a frame, None leaves it to the deadline. patience: after so many frames in a row that left no time for
    language, it gets a step all the same. ageing: urgency that a request gains in a second (`LanguageRequest`).
    text_attention: bidirectional as pi0.5 was trained for actions, or causal as OxyGen computes it. seed: of the noise
    that denoising starts from; fixed_noise draws it once, so that equal observations give equal chunks. padded: compute
    missing cameras and prompt padding and mask them, for comparison with libraries that do. fixed_shapes: run passes
    that can be recorded as CUDA graphs (`FixedPasses`); None: where the network is on a GPU.
    """

    denoise_steps: int = 10
    accumulated_time: bool = False
    cameras: int = 3
    slots: int = 8
    max_requests: int = 8
    max_waiting: int = 32
    max_language_tokens: int = 128
    steps_per_frame: int | None = None
    patience: int = 20
    ageing: float = 10.0
    text_attention: TextAttention = "bidirectional"
    seed: int | None = None
    fixed_noise: bool = False
    padded: bool = False
    fixed_shapes: bool | None = None


class Engine:
    """Runs a pi0.5 network frame by frame.

    `frame`, `language` and `drain` belong to one thread at a time; `submit` and `cancel` may be called from any.
    """

    def __init__(self, model: Pi05, settings: EngineSettings = EngineSettings()) -> None:
        self.model, self.settings = model, settings
        config = model.config
        self._pool = KVPool(
            config,
            slots=settings.slots,
            requests=settings.max_requests,
            cameras=settings.cameras,
            max_tail=settings.max_language_tokens,
            device=model.device,
            dtype=model.dtype,
        )
        # Grown once, here: no frame waits for it, and two workers have nothing to race for.
        longest = self._pool.max_prefix + max(config.action_horizon, settings.max_language_tokens)
        for table in (model.backbone.rotary, model.expert.rotary):
            table.span(0, longest, model.device)
        self._scheduler = Scheduler(self._pool, settings.max_waiting, settings.ageing)
        self._cost, self._prefill_cost = StepCost(), StepCost()
        self._starved = 0  # frames in a row in which language waited and got nothing
        self._passes = self._make_passes()

    def _make_passes(self) -> Passes:
        settings = self.settings
        return make_passes(
            self.model,
            self._pool,
            fixed_shapes=settings.fixed_shapes,
            denoise_steps=settings.denoise_steps,
            accumulated_time=settings.accumulated_time,
            text_attention=settings.text_attention,
            cameras=settings.cameras,
            padded=settings.padded,
            seed=settings.seed,
            fixed_noise=settings.fixed_noise,
        )

    def submit(self, request: LanguageRequest) -> None:
        """Queue a request; it joins the next frame that has room.

        Raises RequestError if it can never be served, its id is in use, or the queue is full.
        """
        self._scheduler.submit(request)

    @property
    def waiting(self) -> int:
        """How many requests have not joined a frame yet."""
        return self._scheduler.waiting

    def cancel(self, request_id: int) -> bool:
        """End a request; its last token (CANCELLED) comes with the next `frame` or `language`. False if unknown."""
        return self._scheduler.cancel(request_id)

    def drain(self, detail: str = "") -> list[Token]:
        """End every request now and return their last tokens (CANCELLED)."""
        return self._scheduler.drain(detail)

    def frame(self, observation: Observation, deadline: float | None = None) -> Iterator[Output]:
        """One frame: Actions, then Tokens until the next decode step would miss `deadline`, then FrameStats.

        deadline: on the clock of `time.monotonic`; None decodes until `steps_per_frame` or until all is said.
        Raises FrameError, after the last tokens of the requests that the failure ends.
        """
        started = time.monotonic()
        yield from self._scheduler.end_cancelled()
        joining = self._scheduler.admit()
        own = [request for request in joining if request.prefix == "own"]
        sharing = [request for request in joining if request.prefix == "shared"]
        slot = self._pool.take_slot()
        stage = "prefill"
        try:
            sight = self._passes.see(observation)
            hidden = self._passes.prefill(observation, sight, slot, any(not request.prompt for request in sharing))
            prefilled, length = time.monotonic(), slot.prefix_length
            stage = "denoise"
            actions = self._passes.denoise(observation, slot)
            chunk_ready = time.monotonic()
            self._scheduler.join(sharing, slot, observation.stamp_ns, hidden)
            yield Actions(actions, observation.stamp_ns)
        except Exception as error:
            yield from self._scheduler.reject(FinishReason.ERROR, f"{stage} failed: {error}")
            raise FrameError(stage, error) from error
        finally:
            self._pool.release(slot)

        decode_started = time.monotonic()
        # Pictures included, so that a prefix of pictures known already is never thought to take less than it does.
        self._prefill_cost.learn(length, prefilled - started)
        positions = yield from self._join_own(own, sight, observation.stamp_ns, deadline)
        steps, tokens = yield from self._decode(deadline)
        ended = time.monotonic()
        yield self._stats(
            started, ended, deadline,
            prefill=prefilled - started,
            denoise=chunk_ready - prefilled,
            first_chunk_latency=chunk_ready - started,
            decode=ended - decode_started,
            decode_steps=steps,
            tokens=tokens,
            prefix_tokens=length + positions,
        )

    def language(self, deadline: float | None = None) -> Iterator[Token | FrameStats]:
        """Like the second half of `frame`: goes on with the requests that run, where no observation can be used."""
        started = time.monotonic()
        steps, tokens = yield from self._decode(deadline)
        ended = time.monotonic()
        yield self._stats(started, ended, deadline, decode=ended - started, decode_steps=steps, tokens=tokens)

    def warm_up(self) -> None:
        """Run frames of the largest size, so that the first real one is like all others, then forget them.

        Also learns what a decode step costs, alone and with every seat taken.
        """
        self._passes.warm_up()
        size = self.model.config.vision.image_size
        observation = Observation(
            images=torch.zeros(self.settings.cameras, size, size, 3, dtype=torch.uint8),
            tokens=torch.zeros(self.model.config.max_token_len, dtype=torch.int64),
        )
        seats = min(self.settings.max_requests, self.settings.max_waiting)
        answer = min(8, self.settings.max_language_tokens - 1)
        # The first round pays for what is allocated and compiled once; only the second says what a step costs.
        for requests in (seats, 1, seats):
            self._cost = StepCost() if requests == 1 else self._cost
            for seat in range(requests):
                self.submit(LanguageRequest(seat, prompt=(0,), max_tokens=answer, end_tokens=()))
            for _ in self.frame(observation):
                pass
            self.drain()

    def _join_own(self, requests: Sequence[LanguageRequest], sight: Sight, stamp_ns: int, deadline: float | None
                  ) -> Generator[Token, None, int]:
        """Prefill the prefixes of those that have their own, while there is time; the others come again next frame.

        Returns how many positions that were.
        """
        positions = 0
        for request in requests:
            length = len(sight.pictures) + len(request.prompt)
            if self._late(deadline, self._prefill_cost.estimate(length)) and not self._impatient:
                self._prefill_cost.doubt()
                break
            began, slot = time.monotonic(), self._pool.take_slot()
            try:
                hidden = self._passes.prefill_own(request.prompt, sight, slot)
                self._scheduler.join([request], slot, stamp_ns, hidden)
            except Exception as error:
                yield from self._scheduler.reject(FinishReason.ERROR, f"prefill failed: {error}")
                raise FrameError("prefill", error) from error
            finally:
                self._pool.release(slot)
            self._prefill_cost.learn(length, time.monotonic() - began)
            positions += slot.prefix_length
        return positions

    def _decode(self, deadline: float | None) -> Generator[Token, None, tuple[int, int]]:
        """Batched steps while there is time, over as many of the running requests, the most urgent, as it allows.

        Returns how many steps, how many tokens.
        """
        most = self.settings.steps_per_frame
        steps = tokens = 0
        while most is None or steps < most:
            yield from self._scheduler.end_cancelled()
            running = self._scheduler.by_urgency()
            batch = self._affordable(running, deadline)
            if running and not batch and not steps and self._impatient:
                batch = running
            if not batch:
                break
            began, rows = time.monotonic(), _rows(batch)
            try:
                said = self._passes.step(batch)
            except Exception as error:
                yield from self._scheduler.finish(batch, FinishReason.ERROR, f"decode failed: {error}")
                raise FrameError("decode", error) from error
            for request, token in zip(batch, said):
                if token.last:
                    self._scheduler.retire(request)
            steps, tokens = steps + 1, tokens + len(said)
            yield from said
            # What the consumer does with its tokens is part of what a step costs before the deadline.
            self._cost.learn(rows, time.monotonic() - began)
        if steps or not (self._scheduler.running or self._scheduler.waiting):
            self._starved = 0
        else:
            self._starved += 1
            self._cost.doubt()
        return steps, tokens

    @property
    def _impatient(self) -> bool:
        return self._starved >= self.settings.patience

    def _affordable(self, running: Sequence[RunningRequest], deadline: float | None) -> Sequence[RunningRequest]:
        """As many of the first as one step can advance before the deadline."""
        count = len(running)
        while count and self._late(deadline, self._cost.estimate(_rows(running[:count]))):
            count -= 1
        return running[:count]

    def _late(self, deadline: float | None, cost: float) -> bool:
        return deadline is not None and time.monotonic() + cost > deadline

    def _stats(self, started: float, ended: float, deadline: float | None, **measured: float) -> FrameStats:
        return FrameStats(
            total=ended - started,
            slack=0.0 if deadline is None else deadline - ended,
            active_requests=len(self._scheduler.running),
            waiting_requests=self._scheduler.waiting,
            slots_used=self._pool.slots_used,
            slots_total=self._pool.slots_total,
            **measured,
        )


def _rows(requests: Sequence[RunningRequest]) -> int:
    """Rows of the language head and, but for who starts from the prefix itself, of the backbone."""
    return sum(max(1, len(request.pending)) for request in requests)
