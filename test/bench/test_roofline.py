"""The counts of one tiny network, against a count by hand."""

from oxygen_ros.bench.roofline import Work, decode, denoise, prefill
from oxygen_ros.pi05.config import Pi05Config, TransformerConfig, VisionConfig

CONFIG = Pi05Config(
    vision=VisionConfig(image_size=4, patch_size=2, width=6, depth=1, num_heads=2, mlp_dim=8),
    backbone=TransformerConfig(4, 2, 10, num_heads=2, num_kv_heads=1, head_dim=2),
    expert=TransformerConfig(3, 2, 5, num_heads=2, num_kv_heads=1, head_dim=2),
    vocab_size=11, action_dim=7, action_horizon=2,
)


def test_prefill():
    # 2 images of 4 patches and 3 tokens: 8 patches, 11 positions.
    weights = 12 * 6  # patches
    weights += 6 * 18 + 6 * 6 + 6 * 8 + 8 * 6  # one block: qkv, out, fc1, fc2
    weights += 6 * 4  # projector
    tower = 2 * 8 * weights + 2 * (2 * 2 * 4 * 4 * 6)  # per image: scores and mixture, 4 by 4, width 6
    layer = 4 * 8 + 4 * 4 + 4 * 20 + 10 * 4  # qkv (2 + 1 + 1 heads of 2), out, gate and up, down
    backbone = 2 * 11 * layer + 2 * 2 * 11 * 11 * 4
    last = 2 * 11 * (4 * 4)  # its key and value only
    cache = 2 * 2 * 2 * 11  # layers, key and value, head size, positions
    assert prefill(CONFIG, images=2, text=3, itemsize=4) == Work(
        tower + backbone + last, 4 * (weights + layer + 4 * 4 + cache)
    )


def test_prefill_without_cameras():
    layer = 4 * 8 + 4 * 4 + 4 * 20 + 10 * 4
    work = prefill(CONFIG, images=0, text=3, itemsize=2)
    assert work.flops == 2 * 3 * layer + 4 * 3 * 3 * 4 + 2 * 3 * 16


def test_denoise():
    # 2 actions over 11 positions: 13 keys.
    layer = 3 * 8 + 4 * 3 + 3 * 10 + 5 * 3
    ends = 7 * 3 + 3 * 7
    flops = 2 * 2 * (2 * layer + ends) + 2 * (4 * 2 * 13 * 4)
    read = 4 * (2 * layer + ends) + 4 * 2 * (2 * 2 * 13)
    assert denoise(CONFIG, prefix=11, steps=10, itemsize=4) == Work(10 * flops, 10 * read)


def test_decode():
    layer = 4 * 8 + 4 * 4 + 4 * 20 + 10 * 4
    head = 4 * 11
    for rows in (1, 3):
        flops = rows * (2 * (2 * layer + head) + 2 * (4 * 11 * 4))
        read = 4 * (2 * layer + head) + rows * 4 * 2 * (2 * 2 * 11)
        assert decode(CONFIG, prefix=11, rows=rows, itemsize=4) == Work(flops, read)


def test_the_bound_is_the_slower_of_the_two():
    assert Work(100.0, 10.0).bound(flops_per_s=10.0, bytes_per_s=10.0) == 10.0
    assert Work(100.0, 1000.0).bound(flops_per_s=10.0, bytes_per_s=10.0) == 100.0
