"""Which language requests wait, which are being answered, and who joins the next frame."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from torch import Tensor

from .kv_pool import KVPool, Slot
from .outputs import FinishReason, Token
from .request import LanguageRequest, RequestError, RunningRequest


class Scheduler:
    """Requests from submission to their last token.

    `submit` and `cancel` may be called from any thread, the rest only from the engine's.
    """

    def __init__(self, pool: KVPool, max_waiting: int) -> None:
        self.running: list[RunningRequest] = []
        self._pool, self._max_waiting = pool, max_waiting
        self._lock = threading.Lock()
        self._waiting: list[LanguageRequest] = []
        self._joining: Sequence[LanguageRequest] = ()
        self._cancelled: set[int] = set()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def submit(self, request: LanguageRequest) -> None:
        """Raises RequestError if the request can never be served, its id is in use, or the queue is full."""
        length, room = len(request.prompt) + request.max_tokens, self._pool.max_tail
        if length > room:
            raise RequestError(
                f"{len(request.prompt)} prompt tokens and {request.max_tokens} new ones are {length}, "
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
            waiting = [r for r in self._waiting if r.request_id in marked]
            self._waiting = [r for r in self._waiting if r.request_id not in marked]
            running = [r for r in self.running if r.request.request_id in marked]
        return [r.end(FinishReason.CANCELLED) for r in waiting] + self.finish(running, FinishReason.CANCELLED)

    def admit(self) -> Sequence[LanguageRequest]:
        """Those that join the frame about to begin: by priority, then by arrival, as far as there is room.

        They leave the queue; the caller must `join` or `reject` them.
        """
        with self._lock:
            room = self._pool.free_tails if self._pool.can_lend else 0
            # Whoever was admitted to a frame that its consumer abandoned is first in the queue again.
            order = sorted([*self._joining, *self._waiting], key=lambda r: -r.priority)
            self._joining, self._waiting = order[:room], order[room:]
            return self._joining

    def join(self, requests: Sequence[LanguageRequest], slot: Slot, stamp_ns: int, prefix_hidden: Tensor | None
             ) -> None:
        """Make admitted requests readers of a slot that holds a whole prefix."""
        with self._lock:
            for request in requests:
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
