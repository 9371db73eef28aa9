import numpy as np
import pytest

from oxygen_ros.embodiment.letterbox import resize_with_pad, resize_with_pad_lerobot


@pytest.mark.parametrize("index", range(4))
def test_openpi_pixels_are_equal(recorded, index):
    tensors = recorded["tensors"]
    assert np.array_equal(
        resize_with_pad(tensors[f"image_{index}_raw"], 28), tensors[f"image_{index}_openpi_client_uint8"]
    )


@pytest.mark.parametrize("index", range(4))
def test_lerobot_pixels(recorded, index):
    tensors = recorded["tensors"]
    ours = resize_with_pad_lerobot(tensors[f"image_{index}_raw"], 28)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, tensors[f"image_{index}_lerobot"], rtol=0, atol=1e-5)


def test_full_size_is_centred_on_black():
    white = np.full((480, 640, 3), 255, np.uint8)
    openpi, lerobot = resize_with_pad(white, 224), resize_with_pad_lerobot(white, 224)
    assert (openpi[28:196] == 255).all() and (openpi[:28] == 0).all() and (openpi[196:] == 0).all()
    assert (lerobot[:, 28:196] == 1).all() and (lerobot[:, :28] == -1).all() and (lerobot[:, 196:] == -1).all()


def test_extreme_shapes_keep_a_line():
    for resize in (resize_with_pad, resize_with_pad_lerobot):
        square = resize(np.full((1, 1000, 3), 255, np.uint8), 28)
        assert (square.max(), square.shape.count(28)) == (square.dtype.type(255 if square.dtype == np.uint8 else 1), 2)


def test_lerobot_0_4_pads_with_minus_3():
    wide = np.full((10, 20, 3), 255, np.uint8)
    current, old = resize_with_pad_lerobot(wide, 8), resize_with_pad_lerobot(wide, 8, padding=-3.0)
    assert (current[:, 2:6] == 1).all() and np.array_equal(current[:, 2:6], old[:, 2:6])
    assert (current[:, [0, 1, 6, 7]] == -1).all() and (old[:, [0, 1, 6, 7]] == -3).all()
