"""One pool for all keys and values: nothing of it is copied, nothing beside it stays, however long it runs."""

import ctypes
import random

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from oxygen_ros.engine.baselines import MODES
from oxygen_ros.engine.engine import EngineSettings
from oxygen_ros.engine.observation import Observation
from oxygen_ros.engine.outputs import Token
from oxygen_ros.engine.request import LanguageRequest
from oxygen_ros.pi05.config import PRESETS
from oxygen_ros.pi05.random_weights import random_model

COPIES = {"clone", "cat", "stack", "index", "index_select", "gather", "repeat", "_to_copy", "expand_copy", "copy_"}


class CopiesOfTheCache(TorchDispatchMode):
    """Every operator that reads the pool's memory only to write it elsewhere. Views are none."""

    def __init__(self, engine) -> None:
        super().__init__()
        pool = engine._pool
        self._storages = {tensor.untyped_storage().data_ptr() for strip in (*pool._slots, *pool.seats)
                          for pair in strip._memory for tensor in pair}
        self.found, self.read = [], 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        sources = args[1:2] if name == "copy_" else torch.utils._pytree.tree_leaves(args)
        ours = [a for a in sources if isinstance(a, torch.Tensor) and a.untyped_storage().data_ptr() in self._storages]
        self.read += bool(ours)
        if ours and name in COPIES:
            self.found.append((name, [tuple(a.shape) for a in ours]))
        return func(*args, **(kwargs or {}))


def run(engine, observe, frames, rng, number=0):
    """Frames at which as many requests come as the engine takes; the pool is full most of the time."""
    for index in range(frames):
        for _ in range(2):
            if engine._scheduler.waiting < 4:
                number += 1
                prompt = tuple(rng.randrange(4, 90) for _ in range(rng.choice((0, 1, 4))))
                own = bool(prompt) and rng.random() < 0.3
                engine.submit(LanguageRequest(number, prompt, rng.randint(1, 9), end_tokens=(),
                                              prefix="own" if own else "shared"))
        for output in engine.frame(observe(index % 20, cameras=1 + index % 3)):
            assert not isinstance(output, Token) or not output.detail
    return number


@pytest.mark.parametrize("fixed_shapes", [False, True], ids=["", "fixed shapes"])
@pytest.mark.parametrize("mode", ["shared_kv", "oxygen"])
def test_no_cache_is_copied(model, observe, mode, fixed_shapes):
    settings = EngineSettings(denoise_steps=2, steps_per_frame=2, max_language_tokens=24, fixed_shapes=fixed_shapes)
    engine = MODES[mode](model, settings)
    rng = random.Random(1)
    number = run(engine, observe, 4, rng)
    with CopiesOfTheCache(engine) as copies:
        run(engine, observe, 10, rng, number)
    assert copies.read > 100 and copies.found == []


class Usage(ctypes.Structure):
    """struct mallinfo2 of glibc >= 2.33, in bytes: hblkhd is mapped, uordblks in use of the rest."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


def bytes_in_use():
    libc = ctypes.CDLL(None)
    try:
        libc.mallinfo2.restype = Usage
    except AttributeError:
        pytest.skip("this C library has no mallinfo2, the allocator's own count of bytes in use")
    usage = libc.mallinfo2()
    return usage.uordblks + usage.hblkhd


def test_a_frame_leaves_nothing_behind():
    """By the allocator's own count: 40 frames at a full pool leave less than a tenth of one KV slot."""
    model = random_model(PRESETS["tiny"], seed=0)
    engine = MODES["oxygen"](model, EngineSettings(denoise_steps=1, slots=4, steps_per_frame=1, max_language_tokens=24))
    slot = sum(t.numel() * t.element_size() for pair in engine._pool._slots[0]._memory for t in pair)
    size, rng = model.config.vision.image_size, random.Random(2)

    def observe(seed, cameras):
        return Observation(torch.full((cameras, size, size, 3), seed, dtype=torch.uint8), torch.full((10 + seed,), 7))

    number = run(engine, observe, 40, rng)
    before = bytes_in_use()
    run(engine, observe, 40, rng, number)
    assert engine._pool.slots_used >= 2
    assert bytes_in_use() - before < slot / 10
