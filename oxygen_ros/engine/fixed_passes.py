"""The three passes at fixed shapes and addresses: on a GPU each is recorded once as a CUDA graph, and then replayed.

Launching the thousands of small kernels of a frame one by one takes a host longer than a GPU needs to run them.
Elsewhere the same functions are called as they are, which is how they are tested; they compute padding, so a CPU is
better off without.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from ..pi05 import fixed_shapes
from ..pi05.backbone import check_shared
from ..pi05.flow import euler
from ..pi05.model import Pi05
from ..pi05.rtc import Guidance
from .kv_pool import KVPool, Slot
from .observation import Observation
from .passes import Passes, Sight, to_pixels
from .request import RunningRequest

BUCKET = 32
"""Prompts are padded to a multiple of so many tokens; there is one graph of a prefill for each multiple and slot."""


def make_passes(model: Pi05, pool: KVPool, *, fixed_shapes: bool | None, padded: bool, **settings) -> Passes:
    """`FixedPasses` or `Passes`; fixed_shapes None leaves it to the device. Padding to compare with is never fixed."""
    if fixed_shapes is None:
        fixed_shapes = model.device.type == "cuda"
    if fixed_shapes and not padded:
        return FixedPasses(model, pool, **settings)
    return Passes(model, padded=padded, **settings)


class FixedPasses(Passes):
    """`Passes` whose work for one frame writes where that of every frame does.

    One thread at a time. pool: whose slots and tails the methods are given. settings: as of `Passes`, but not padded.
    """

    def __init__(self, model: Pi05, pool: KVPool, *, cameras: int, **settings) -> None:
        if model.compiled:
            raise ValueError("a network packed for a CPU's compiled code has no passes of fixed shapes; leave "
                             "fixed_shapes None, or do not pack")
        super().__init__(model, cameras=cameras, padded=False, **settings)
        config, device, dtype = model.config, model.device, model.dtype
        size, requests = config.vision.image_size, len(pool.tails)
        on_gpu = device.type == "cuda"
        self._pool = pool
        self._graphs = Graphs(device)

        self._staging = torch.empty(cameras, size, size, 3, dtype=torch.uint8, pin_memory=on_gpu)
        self._images = torch.empty_like(self._staging, device=device)
        self._pictures = torch.empty(
            cameras * config.vision.tokens_per_image, config.backbone.width, device=device, dtype=dtype
        )
        self._tokens = torch.zeros(config.max_token_len, dtype=torch.int64, device=device)
        lengths = torch.zeros(pool.slots_total, dtype=torch.int64, device=device)
        self._strips = [
            fixed_shapes.FixedStrip(strip, config.action_horizon, length) for strip, length in zip(pool.strips, lengths)
        ]
        self._last = torch.zeros(1, dtype=torch.int64, device=device)
        self._hidden = torch.empty(1, config.backbone.width, device=device, dtype=dtype)

        self._x = torch.empty(self._noise_shape, device=device)
        self._velocity = torch.empty_like(self._x)
        self._modulation = torch.empty_like(self._plan[0])

        # Of each place in a step: token, slot, shared positions, tokens said.
        self._seats_staging = torch.zeros(4, requests, dtype=torch.int64, pin_memory=on_gpu)
        self._seats = torch.zeros_like(self._seats_staging, device=device)
        self._logits = torch.empty(requests, config.vocab_size, device=device, dtype=dtype)

    @torch.inference_mode()
    def see(self, observation: Observation) -> Sight:
        images, count = observation.images, len(observation.images)
        if images.dtype != torch.uint8 or not count:
            return super().see(observation)
        if count > self._cameras:
            raise ValueError(f"{count} images are more than the {self._cameras} cameras of this engine")
        seen = self._pictures[: count * self.model.config.vision.tokens_per_image]
        with self._graphs.urgent():
            self._staging[:count].copy_(images)
            self._images[:count].copy_(self._staging[:count], non_blocking=True)
            self._graphs.run(
                ("see", count), lambda: seen.copy_(self.model.embed_images(to_pixels(self._images[:count])))
            )
        return Sight(seen, None)

    def _prefill(self, sight: Sight, tokens: Tensor, slot: Slot, causal: bool, shared_tokens: int | None,
                 wants_hidden: bool) -> Tensor | None:
        pictures, text = len(sight.pictures), len(tokens)
        if text > len(self._tokens) or pictures > len(self._pictures):
            # A prompt of its own may fill the room of cameras that are missing: rare enough to be computed as it comes.
            return super()._prefill(sight, tokens, slot, causal, shared_tokens, wants_hidden)
        shared = None if shared_tokens is None else pictures + shared_tokens
        check_shared(pictures + text, shared, pictures if causal else None)
        slot.begin(pictures + text, shared=shared)
        with self._graphs.urgent():
            if sight.pictures.data_ptr() != self._pictures.data_ptr():
                self._pictures[:pictures].copy_(sight.pictures)
            self._tokens[:text].copy_(tokens)
            self._strips[slot.index].length.fill_(pictures + text)
            self._last.fill_(slot.shared_length - 1)
            self._fill(slot.index, pictures, min(-(-text // BUCKET) * BUCKET, len(self._tokens)), causal)
            return self._hidden.clone() if wants_hidden else None

    def _fill(self, slot: int, pictures: int, text: int, causal: bool) -> None:
        def work() -> None:
            x = torch.cat((self._pictures[:pictures], self.model.backbone.embed(self._tokens[:text])))
            causal_from = pictures if causal else None
            self._hidden.copy_(
                fixed_shapes.prefill(self.model.backbone, x, self._strips[slot], self._last, causal_from)
            )

        self._graphs.run(("prefill", slot, pictures, text, causal), work)

    @torch.inference_mode()
    def denoise(self, observation: Observation, slot: Slot) -> Tensor:
        try:
            return super().denoise(observation, slot)
        except FloatingPointError:
            # What is hidden has no weight, but no weight times NaN is NaN: later frames would suffer from this one.
            self._pool.strips[slot.index].zero_()
            raise

    def _denoise(self, noise: Tensor, slot: Slot, guidance: Guidance | None) -> Tensor:
        def velocity(x: Tensor, step: int) -> Tensor:
            self._x.copy_(x)
            self._modulation.copy_(self._plan[step])
            self._move(slot.index)
            return self._velocity

        with self._graphs.urgent():
            return euler(noise, len(self._plan), velocity, guidance and guidance.guide)

    def _move(self, slot: int) -> None:
        def work() -> None:
            self._velocity.copy_(self.model.expert.velocity(self._x, self._modulation, self._strips[slot]))

        self._graphs.run(("velocity", slot), work)

    def _advance(self, running: Sequence[RunningRequest]) -> tuple[Sequence[RunningRequest], Tensor]:
        # Who joins brings a prompt of any length, or starts from the prefix itself: one step as it comes.
        going = [request for request in running if len(request.pending) == 1]
        if not going:
            return super()._advance(running)
        joining = [request for request in running if len(request.pending) != 1]
        # Every place writes after what it holds: nothing is lost of a request that waits while others go on.
        places = [[0, 0, 0, min(seat.length, seat.capacity - 1)] for seat in self._pool.seats]
        for request in going:
            slot, tail = request.slot, request.tail
            tail.expect(1)
            places[tail.index] = [request.pending[0], slot.index, slot.shared_position, tail.length]
        self._seats_staging.copy_(torch.tensor(places).t())
        self._seats.copy_(self._seats_staging, non_blocking=True)
        self._graphs.run(("step",), self._step)
        for request in going:
            request.tail.advance(1)
        logits = self._logits[[request.tail.index for request in going]]
        if not joining:
            return going, logits
        order, theirs = super()._advance(joining)
        return [*going, *order], torch.cat((logits, theirs))

    def _step(self) -> None:
        token, slot, shared, said = self._seats
        hidden = fixed_shapes.advance(
            self.model.backbone, token, self._pool.strips, self._pool.tails, self._noise_shape[0], slot, shared, said
        )
        self._logits.copy_(self.model.backbone.logits(hidden))

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Record every graph that frames with all cameras may need, so that no frame waits for one."""
        if not self._graphs.recorded:
            return
        pictures = len(self._pictures)
        self._tokens.zero_()
        for index, strip in enumerate(self._strips):
            strip.length.fill_(pictures + 1)
            self._last.fill_(pictures)
            for text in range(BUCKET, len(self._tokens) + BUCKET, BUCKET):
                self._fill(index, pictures, min(text, len(self._tokens)), self._causal)
            self._move(index)
        self._seats.zero_()
        self._graphs.run(("step",), self._step)


class Graphs:
    """Pieces of work whose inputs and outputs always lie in the same memory, by key: recorded when first run on a GPU.

    Actions are computed on a stream of high priority: of what another stream has begun they wait for no more than
    its running kernels.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.recorded = device.type == "cuda"
        self._replay: dict[Hashable, Callable[[], object]] = {}
        if self.recorded:
            self._urgent = torch.cuda.Stream(device, priority=-1)
            # One memory for what all graphs need in between: they never run at the same time.
            self._memory = torch.cuda.graph_pool_handle()

    @contextmanager
    def urgent(self) -> Iterator[None]:
        """Run on the stream of high priority, after what is queued, and wait for the end of it."""
        if not self.recorded:
            yield
            return
        self._urgent.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._urgent):
            yield
        self._urgent.synchronize()

    def run(self, key: Hashable, work: Callable[[], object]) -> None:
        """Do what was the work when this key was first used."""
        if key in self._replay:
            self._replay[key]()
        elif not self.recorded:
            self._replay[key] = work
            work()
        else:
            work()  # what libraries allocate and choose when first used must not be recorded
            torch.cuda.synchronize(self._device)
            graph = torch.cuda.CUDAGraph()
            # Other threads, such as the node's, may use CUDA meanwhile.
            with (
                torch.cuda.device(self._device),
                torch.cuda.graph(graph, pool=self._memory, capture_error_mode="thread_local"),
            ):
                work()
            self._replay[key] = graph.replay
