"""Which language requests wait, which are being answered, and who joins the next frame."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from torch import Tensor

from .kv_pool import KVPool, Slot
from .outputs import FinishReason, Token
from .request import LanguageRequest, RequestError, RunningRequest


class Scheduler:
    """Requests from submission to their last token.

    ageing: urgency that a request gains in a second, see `LanguageRequest.urgency`.
    `submit` and `cancel` may be called from any thread, the rest only from the engine's.
    """

    def __init__(self, pool: KVPool, max_waiting: int, ageing: float, clock: Callable[[], float] = time.monotonic
                 ) -> None:
        self.running: list[RunningRequest] = []
        self._pool, self._max_waiting, self._ageing, self._clock = pool, max_waiting, ageing, clock
        self._lock = threading.Lock()
        self._waiting: list[LanguageRequest] = []
        self._joining: Sequence[LanguageRequest] = ()
        self._cancelled: set[int] = set()

    @property
    def waiting(self) -> int:
        return len(self._waiting) + len(self._joining)

    def submit(self, request: LanguageRequest) -> None:
        """Raises RequestError if the request can never be served, its id is in use, or the queue is full."""
        own = request.prefix == "own"
        if own and len(request.prompt) > self._pool.max_text:
            raise RequestError(
                f"{len(request.prompt)} prompt tokens are too many for a prefix of {self._pool.max_text}"
            )
        prompt = 0 if own else len(request.prompt)
        length, room = prompt + request.max_tokens, self._pool.max_tail
        if length > room:
            raise RequestError(
                f"{prompt} prompt tokens and {request.max_tokens} new ones are {length}, "
                f"one request has room for {room}"
            )
        with self._lock:
            if request.request_id in self._ids():
                raise RequestError(f"request {request.request_id} is still being answered; use another id")
            if len(self._waiting) >= self._max_waiting:
                raise RequestError(f"{len(self._waiting)} requests are waiting already; ask again later")
            self._waiting.append(request)

    def cancel(self, request_id: int) -> bool:
        """Mark a request; `end_cancelled` ends it. False if no such request is alive."""
        with self._lock:
            alive = request_id in self._ids()
            if alive:
                self._cancelled.add(request_id)
            return alive

    def end_cancelled(self) -> list[Token]:
        with self._lock:
            marked, self._cancelled = self._cancelled, set()
            if not marked:
                return []
            waiting = [r for r in (*self._joining, *self._waiting) if r.request_id in marked]
            self._joining = [r for r in self._joining if r.request_id not in marked]
            self._waiting = [r for r in self._waiting if r.request_id not in marked]
            running = [r for r in self.running if r.request.request_id in marked]
        return [r.end(FinishReason.CANCELLED) for r in waiting] + self.finish(running, FinishReason.CANCELLED)

    def admit(self) -> Sequence[LanguageRequest]:
        """Those that join the frame about to begin: the most urgent, as far as there is room.

        They leave the queue; whoever is neither joined nor rejected is among those considered for the next frame.
        """
        with self._lock:
            now = self._clock()
            order = sorted([*self._joining, *self._waiting], key=lambda r: -r.urgency(now, self._ageing))
            tails, slots, frame_is_lent, room = self._pool.free_tails, self._pool.lendable, False, 0
            for request in order:
                own = request.prefix == "own"
                slots -= own or not frame_is_lent
                frame_is_lent = frame_is_lent or not own
                if room == tails or slots < 0:
                    break
                room += 1
            self._joining, self._waiting = order[:room], order[room:]
            return self._joining

    def by_urgency(self) -> list[RunningRequest]:
        now = self._clock()
        return sorted(self.running, key=lambda r: -r.request.urgency(now, self._ageing))

    def join(self, requests: Sequence[LanguageRequest], slot: Slot, stamp_ns: int, prefix_hidden: Tensor | None
             ) -> None:
        """Make admitted requests, but for those cancelled since, readers of a slot that holds a whole prefix."""
        with self._lock:
            for request in [r for r in requests if r in self._joining]:
                tail = self._pool.take_tail()
                self.running.append(RunningRequest(request, self._pool.share(slot), tail, stamp_ns, prefix_hidden))
            self._joining = [r for r in self._joining if r not in requests]

    def reject(self, reason: FinishReason, detail: str) -> list[Token]:
        """End the admitted requests, whose frame failed."""
        with self._lock:
            failed, self._joining = self._joining, ()
        return [r.end(reason, detail) for r in failed]

    def finish(self, requests: Sequence[RunningRequest], reason: FinishReason, detail: str = "") -> list[Token]:
        """End running requests without a further word; returns their last tokens."""
        tokens = [r.end(reason, detail) for r in requests]
        for request in requests:
            self.retire(request)
        return tokens

    def retire(self, request: RunningRequest) -> None:
        """Give back the memory of a request that has said its last token."""
        with self._lock:
            self.running.remove(request)
            self._cancelled.discard(request.request.request_id)
        self._pool.return_tail(request.tail)
        self._pool.release(request.slot)

    def drain(self, detail: str) -> list[Token]:
        """End every request; returns their last tokens (CANCELLED)."""
        with self._lock:
            waiting = [*self._joining, *self._waiting]
            self._joining, self._waiting = (), []
            self._cancelled.clear()
        return self.finish(list(self.running), FinishReason.CANCELLED, detail) + [
            r.end(FinishReason.CANCELLED, detail) for r in waiting
        ]

    def _ids(self) -> set[int]:
        running = (r.request for r in self.running)
        return {r.request_id for group in (self._waiting, self._joining, running) for r in group}
