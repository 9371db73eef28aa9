"""The keys and values that prefix, action chunk and language see, as views into memory somebody else owns.

A `Strip` is one frame: `[ action suffix : H ][ prefix : P ]` for every layer. A `Tail` is one language
request: its prompt and its answer, which continue the prefix of a strip. Rotary position is already
inside each key, so the order of keys in memory does not matter to attention, and any number of
requests can continue the same prefix. Nothing is ever copied from one to another.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .layers import RotaryTable

KeyValue = tuple[Tensor, Tensor]


def _layers(storage: Tensor) -> list[KeyValue]:
    return [(layer[0], layer[1]) for layer in storage]


class Strip:
    """The keys and values of one frame.

    storage: [layers, 2, kv_heads, horizon + max_prefix, head_dim].
    """

    def __init__(self, storage: Tensor, horizon: int) -> None:
        self.storage, self.horizon = storage, horizon
        self.capacity = storage.shape[3] - horizon
        self.dtype = storage.dtype
        self.prefix_length = self.shared_length = 0
        self.valid: Tensor | None = None
        self.next_position = self.shared_position = 0
        self._memory = _layers(storage)
        self._suffix = self._views(0, horizon)
        self._prefix = self._shared = self._joint = self._views(0, 0)

    def begin(self, prefix_length: int, valid: Tensor | None = None, shared: int | None = None) -> None:
        """Forget the last frame and make room for a prefix of this many positions.

        valid [P]: False where a position is padding, which nobody sees and which consumes no position; None: all are.
        shared: how many of the first positions language sees and continues; the rest is the actions' alone. None: all.
        """
        if prefix_length > self.capacity:
            raise ValueError(f"a prefix of {prefix_length} tokens does not fit a KV slot of {self.capacity}")
        if valid is not None and (valid.dtype != torch.bool or valid.shape != (prefix_length,)):
            raise ValueError(f"valid: {valid.dtype} {list(valid.shape)}, expected torch.bool [{prefix_length}]")
        self.prefix_length = prefix_length
        self.shared_length = prefix_length if shared is None else shared
        self.valid = None if valid is None else valid.contiguous()  # the compiled code reads it byte by byte
        self.next_position = prefix_length if valid is None else int(valid.sum())
        self.shared_position = self.shared_length if valid is None else int(valid[: self.shared_length].sum())
        # Taken once here: a denoise step asks for each of them in every layer.
        self._prefix = self._views(self.horizon, prefix_length)
        self._shared = self._views(self.horizon, self.shared_length)
        self._joint = self._views(0, self.horizon + prefix_length)

    def prefix(self, layer: int) -> KeyValue:
        """The whole prefix: [kv_heads, P, head_dim] each."""
        return self._prefix[layer]

    def shared(self, layer: int) -> KeyValue:
        """What a language request sees: [kv_heads, shared_length, head_dim] each."""
        return self._shared[layer]

    def joint(self, layer: int) -> KeyValue:
        """What the action expert sees: [kv_heads, H + P, head_dim] each."""
        return self._joint[layer]

    def rotary(self, table: RotaryTable) -> tuple[Tensor, Tensor]:
        """Where the action suffix stands: after all that is visible."""
        return table.span(self.next_position, self.horizon, self._memory[0][0].device)

    def shared_valid(self) -> Tensor | None:
        """Which positions of `shared` are visible, [shared_length]; None where all are."""
        return None if self.valid is None else self.valid[: self.shared_length]

    def joint_mask(self) -> Tensor | None:
        """Which positions of `joint` are visible, [1, H + P]; None where all are."""
        return None if self.valid is None else F.pad(self.valid, (self.horizon, 0), value=True)[None]

    def write_prefix(self, layer: int, key: Tensor, value: Tensor) -> None:
        _write(self._prefix[layer], key, value)

    def write_suffix(self, layer: int, key: Tensor, value: Tensor) -> None:
        _write(self._suffix[layer], key, value)

    def _views(self, start: int, length: int) -> list[KeyValue]:
        return [(key.narrow(1, start, length), value.narrow(1, start, length)) for key, value in self._memory]


def _write(place: KeyValue, key: Tensor, value: Tensor) -> None:
    place[0].copy_(key)
    place[1].copy_(value)


class Tail:
    """The keys and values of one language request, after the prefix.

    storage: [layers, 2, kv_heads, max_tail, head_dim]. `length` counts the positions already written.
    """

    def __init__(self, storage: Tensor) -> None:
        self.storage, self.capacity = storage, storage.shape[3]
        self.length = 0
        self._memory = _layers(storage)

    def expect(self, count: int) -> None:
        """Raises ValueError if `count` more positions do not fit, or are none."""
        if count < 1:
            raise ValueError(f"{count} more tokens: a request goes on by at least one")
        if self.length + count > self.capacity:
            raise ValueError(
                f"{count} more tokens do not fit a language tail of {self.capacity} that holds {self.length}"
            )

    def append(self, layer: int, key: Tensor, value: Tensor) -> KeyValue:
        """Write key and value [kv_heads, n, head_dim] after `length`; return all up to there.

        `length` itself moves only when every layer has written: see `advance`.
        """
        end = self.length + key.shape[1]
        keys, values = self._memory[layer]
        keys[:, self.length : end].copy_(key)
        values[:, self.length : end].copy_(value)
        return keys[:, :end], values[:, :end]

    def advance(self, count: int) -> None:
        self.length += count
