"""Gemma's layers as one compiled call (src/transformer.cpp): float32 on a CPU.

Backbone and action expert, prefill, velocity and decode step are the same layers over new rows; they differ in what the
rows see, and in their norms. What a few rows cost is the weights' way through the memory and, between the products, the
dispatch of small operations: the compiled code reads each weight once, in order, and dispatches nothing. All passes
read the same copy of the weights. A row's numbers do not depend on what is computed beside it.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import mmap
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

import torch
from torch import Tensor, nn

from ..kernels import chosen, library
from .cache import Strip, Tail
from .config import TransformerConfig
from .native import Call, Chunk, Run, Transformer, available

LANES = 16  # of src/transformer.hpp


def can_compile(config: TransformerConfig, weight: Tensor, *more: int) -> bool:
    """Whether there is compiled code for layers of these sizes, whose weights are like this one.

    more: further widths of matrices.
    """
    widths = (config.width, config.head_dim, config.mlp_dim, *more)
    group = config.num_heads // config.num_kv_heads
    return available(weight) and group <= LANES and not any(width % LANES for width in widths)


class Panels:
    """Matrices [out, in] in the order in which the compiled code of one generation reads them, in memory of their own.

    weights: of those shapes; each is read before the next is asked for.
    """

    def __init__(self, shapes: Sequence[tuple[int, int]], weights: Iterable[Tensor]) -> None:
        self.generation = chosen()
        width = library().oxygen_panel_width(self.generation)
        places = [(-(-outputs // width), inputs, width) for outputs, inputs in shapes]
        sizes = [math.prod(place) for place in places]
        self._panels = [room.view(place) for room, place in zip(_in_large_pages(sum(sizes)).split(sizes), places)]
        for panels, weight in zip(self._panels, weights, strict=True):
            for panel, rows in zip(panels, weight.detach().split(width)):
                panel[:, : len(rows)].copy_(rows.t())
        self.addresses = _addresses(self._panels)


class CompiledLinear:
    """x [rows, in] -> x times the transpose of weight [out, in], where `out` is a multiple of LANES: [rows, out].

    Raises ValueError for another x.
    """

    def __init__(self, weight: Tensor) -> None:
        self._out, self._width = weight.shape
        self._panels = Panels([weight.shape], [weight])

    def __call__(self, x: Tensor) -> Tensor:
        x = _checked("x", x, self._width)
        out = x.new_empty(len(x), self._out)
        panels = self._panels
        library().oxygen_linear(
            panels.generation, x.data_ptr(), len(x), self._width, panels.addresses[0], self._out, out.data_ptr(),
            torch.get_num_threads(),
        )
        return out


class CompiledTransformer:
    """layers: their matrices are copied, and have no weight of their own afterwards.

    ends: for `denoise`, the projections from and to actions. The methods raise ValueError for what would reach past its
    memory, before anything is written.
    """

    def __init__(self, config: TransformerConfig, eps: float, layers: nn.ModuleList,
                 ends: tuple[nn.Linear, nn.Linear] | None = None) -> None:
        width, inner, mlp = config.width, config.num_heads * config.head_dim, config.mlp_dim
        pairs = 2 * config.num_kv_heads * config.head_dim
        layer = [(inner, width), (pairs, width), (width, inner), (mlp, width), (mlp, width), (width, mlp)]
        self._ends = ends
        self._panels = Panels(
            [*layer * config.depth, *(end.weight.shape for end in ends or ())],
            itertools.chain(_taken(layers, inner, mlp), (end.weight for end in ends or ())),
        )
        self._sizes = Transformer(
            config.depth, config.width, config.num_heads, config.num_kv_heads, config.head_dim, config.mlp_dim, eps,
            self._panels.addresses,
        )
        self._room = threading.local()

    def __call__(self, x: Tensor, rotary: tuple[Tensor, Tensor], runs: Sequence[Run],
                 wanted: Sequence[int] | None = None, modulation: Tensor | None = None) -> Tensor:
        """x [T, width] -> the wanted rows of the stream after all layers, [wanted, width].

        rotary [T, 1, head_dim] each. runs: what the rows of x see, and where their keys and values are kept, one run
        after the other. wanted: row numbers, ascending; None: all. modulation [norms, 3, width] or
        [norms, 3, T, width]: of adaptive norms, the final one included, which are for all rows; without it norms have
        no weights, and the final one is left out.
        """
        x = _checked("x", x, self._sizes.width).clone()
        with self._call(x, rotary, runs, range(len(x)) if wanted is None else wanted, modulation) as call:
            library().oxygen_transformer(self._panels.generation, ctypes.byref(self._sizes), ctypes.byref(call))
            return x[: call.wants]

    def denoise(self, noise: Tensor, plan: Tensor, rotary: tuple[Tensor, Tensor], strip: Strip) -> Tensor:
        """noise [H, A] -> actions [H, A], by one Euler step for each modulation of plan [steps, norms, 3, width]."""
        action_in, action_out = self._ends
        if len(noise) != strip.horizon:
            raise ValueError(f"{len(noise)} actions, the strip is for {strip.horizon}")
        actions = _checked("noise", noise, action_in.in_features).clone()
        x = actions.new_empty(len(actions), self._sizes.width)
        into, out_of = self._panels.addresses[-2:]
        chunk = Chunk(
            len(plan), actions.shape[1], actions.data_ptr(), plan.stride(0), into, action_in.bias.data_ptr(), out_of,
            action_out.bias.data_ptr(),
        )
        with self._call(x, rotary, [self.suffix(strip)], range(len(x)), plan[0]) as call:
            library().oxygen_denoise(self._panels.generation, *map(ctypes.byref, (self._sizes, call, chunk)))
        return actions

    def prefix(self, strip: Strip, causal_from: int | None) -> Run:
        """The prefix of a strip that has begun: one block, or text that sees what precedes from `causal_from` on."""
        length = strip.prefix_length
        open_rows = length if causal_from is None else min(causal_from, length)
        own = self._own(strip.storage, strip.horizon)
        return Run(rows=length, **own, own_valid=_address(strip.valid), open=open_rows)

    def suffix(self, strip: Strip) -> Run:
        """The actions of a strip: they see each other and its prefix."""
        own = self._own(strip.storage, 0)
        return Run(rows=strip.horizon, **self._seen(strip, strip.prefix_length), **own, open=strip.horizon)

    def tail(self, strip: Strip, tail: Tail, first: int, rows: int) -> Run:
        """`rows` new positions of a tail that has room for them, from row `first` of x on: they see what the strip
        shares, the tail, and each other causally."""
        own = self._own(tail.storage, 0)
        return Run(first=first, rows=rows, **self._seen(strip, strip.shared_length), **own, at=tail.length)

    def _seen(self, strip: Strip, length: int) -> dict[str, int | None]:
        """Fields of a run that sees the first positions of a strip's prefix."""
        keys, values, layer, head = self._place(strip.storage, strip.horizon)
        return {"keys": keys, "values": values, "valid": _address(strip.valid), "seen": length, "layer_stride": layer,
                "head_stride": head}

    def _own(self, storage: Tensor, position: int) -> dict[str, int]:
        """Fields of a run that is kept from a position on."""
        keys, values, layer, head = self._place(storage, position)
        return {"own_keys": keys, "own_values": values, "own_layer_stride": layer, "own_head_stride": head}

    def _place(self, storage: Tensor, position: int) -> tuple[int, int, int, int]:
        """Addresses of the first layer's keys and values at a position, and the strides of layers and heads."""
        sizes = self._sizes
        _expect("keys and values", storage, (sizes.depth, 2, sizes.kv_heads, storage.shape[3], sizes.head_dim))
        if storage.stride()[3:] != (sizes.head_dim, 1):
            raise ValueError("keys and values do not lie one position after the other")
        layer, part, head = storage.stride()[:3]
        at = storage.data_ptr() + 4 * position * sizes.head_dim
        return at, at + 4 * part, layer, head

    @contextmanager
    def _call(self, x: Tensor, rotary: tuple[Tensor, Tensor], runs: Sequence[Run], wanted: Sequence[int],
              modulation: Tensor | None) -> Iterator[Call]:
        """What the compiled code is given; its addresses hold inside the block."""
        cos, sin = (_checked("rotary", table.flatten(1), self._sizes.head_dim) for table in rotary)
        rows = sum(run.rows for run in runs)
        if not len(x) == len(cos) == len(sin) == rows:
            raise ValueError(f"{len(x)} rows with {len(cos)} rotary positions, for {rows} places in the cache")
        if any(low >= high for low, high in itertools.pairwise([-1, *wanted, rows])):
            raise ValueError(f"wanted are the rows {list(wanted)}, expected ascending numbers below {rows}")
        norm, part, row = self._strides(modulation, rows, len(wanted))
        call = Call(
            rows, x.data_ptr(), cos.data_ptr(), sin.data_ptr(), len(runs), (Run * len(runs))(*runs), len(wanted),
            (ctypes.c_long * len(wanted))(*wanted), _address(modulation), norm, part, row,
            threads=torch.get_num_threads(),
        )
        call.scratch = self._scratch(library().oxygen_scratch_size(ctypes.byref(self._sizes), ctypes.byref(call)))
        yield call

    def _strides(self, modulation: Tensor | None, rows: int, wants: int) -> tuple[int, int, int]:
        """From one norm, part and row of a modulation to the next."""
        if modulation is None:
            return 0, 0, 0
        if wants != rows:
            raise ValueError(f"{wants} of {rows} rows are wanted; adaptive norms are for all of them")
        each = (rows,) if modulation.ndim == 4 else ()
        _expect("modulation", modulation, (2 * self._sizes.depth + 1, 3, *each, self._sizes.width))
        if modulation.stride(-1) != 1:
            raise ValueError("the numbers of a modulation do not lie one after the other")
        norm, part, *row = modulation.stride()[:-1]
        return norm, part, row[0] if row else 0

    def _scratch(self, count: int) -> int:
        """Room for so many float32, kept for this thread's next call."""
        room = getattr(self._room, "floats", None)
        if room is None or len(room) < count:
            self._room.floats = room = _in_large_pages(count)
        return room.data_ptr()


def _taken(layers: nn.ModuleList, inner: int, mlp: int) -> Iterator[Tensor]:
    """Query, key-value, out, gate, up and down of each layer; each matrix gives its weight up as soon as it was read:
    there is not room for all of them twice."""
    for layer in layers:
        for matrix, cuts in (
            (layer.attention.qkv, [inner]), (layer.attention.out, []), (layer.mlp.gate_up, [mlp]), (layer.mlp.down, []),
        ):
            yield from matrix.weight.tensor_split(cuts)
            matrix.weight = None


def _checked(name: str, x: Tensor, width: int) -> Tensor:
    """x [rows, width], contiguous."""
    _expect(name, x, (len(x), width))
    return x.contiguous()


def _expect(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    # Beyond it lies memory of somebody else.
    if tensor.shape != shape or tensor.dtype != torch.float32 or tensor.device.type != "cpu":
        raise ValueError(f"{name}: {tensor.dtype} {list(tensor.shape)} on {tensor.device}, expected torch.float32 "
                         f"{list(shape)} on cpu")


def _in_large_pages(count: int) -> Tensor:
    """Room for so many float32, all zero, in large pages where the system has them.

    Of the time in which weights are read a quarter is else the search for their pages.
    """
    memory = mmap.mmap(-1, 4 * count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a system that was built without
            memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.float32)


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _addresses(tensors: Sequence[Tensor]) -> ctypes.Array:
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
