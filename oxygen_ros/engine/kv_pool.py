"""All keys and values, in one place, allocated once.

A frame's strip and a request's tail are views into it: taking, sharing and returning them moves no data.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..pi05.cache import Strip, Tail
from ..pi05.config import Pi05Config


class Slot(Strip):
    """A strip that knows its place in the pool and how many readers it has."""

    def __init__(self, storage: Tensor, horizon: int, index: int) -> None:
        super().__init__(storage, horizon)
        self.index = index
        self.readers = 0


class Seat(Tail):
    """A tail that knows its place in the pool."""

    def __init__(self, storage: Tensor, index: int) -> None:
        super().__init__(storage)
        self.index = index


class KVPool:
    """`slots` strips of one frame each, with room for `cameras` pictures and a prompt, and `requests` tails of one
    language request each. `strips` and `tails` hold them, the index of a slot or tail first.

    Memory: slots * layers * 2 * kv_heads * (horizon + max_prefix) * head_dim elements, and the like for tails.
    """

    def __init__(self, config: Pi05Config, *, slots: int, requests: int, cameras: int, max_tail: int,
                 device: torch.device, dtype: torch.dtype) -> None:
        if slots < 2:
            raise ValueError(f"a pool needs at least 2 KV slots (one for actions, one for language), not {slots}")
        backbone = config.backbone

        def memory(count: int, positions: int) -> Tensor:
            shape = (count, backbone.depth, 2, backbone.num_kv_heads, positions, backbone.head_dim)
            return torch.zeros(shape, device=device, dtype=dtype)

        self.max_text, self.max_tail = config.max_token_len, max_tail
        self.max_prefix = cameras * config.vision.tokens_per_image + config.max_token_len
        self.strips = memory(slots, config.action_horizon + self.max_prefix)
        self.tails = memory(requests, max_tail)
        self.slots_total = slots
        self._slots = [Slot(self.strips[i], config.action_horizon, i) for i in range(slots)]
        self.seats = [Seat(self.tails[i], i) for i in range(requests)]
        self._free_slots = list(reversed(self._slots))
        self._free_tails = list(reversed(self.seats))

    @property
    def slots_used(self) -> int:
        return self.slots_total - len(self._free_slots)

    @property
    def free_tails(self) -> int:
        return len(self._free_tails)

    @property
    def lendable(self) -> int:
        """Slots that language may keep: all that are free but one, which is for the actions of every frame."""
        return max(0, len(self._free_slots) - 1)

    def take_slot(self) -> Slot:
        """A free slot with one reader. There always is one: `lendable` leaves it."""
        slot = self._free_slots.pop()
        slot.readers = 1
        return slot

    def share(self, slot: Slot) -> Slot:
        slot.readers += 1
        return slot

    def release(self, slot: Slot) -> None:
        """One reader less; the last one returns the slot."""
        slot.readers -= 1
        if slot.readers == 0:
            self._free_slots.append(slot)

    def take_tail(self) -> Seat:
        tail = self._free_tails.pop()
        tail.length = 0
        return tail

    def return_tail(self, tail: Seat) -> None:
        self._free_tails.append(tail)
