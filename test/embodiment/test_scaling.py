"""Compiled scaling, and Pillow's where nothing is compiled, against Pillow's of one axis at a time."""

import numpy as np
import pytest
from PIL import Image

from oxygen_ros import kernels
from oxygen_ros.embodiment.scaling import scale_into

VIEWS = {
    "rgb": lambda picture: picture[..., :3].copy(),
    "bgr": lambda picture: picture[..., :3].copy()[..., ::-1],
    "rgba": lambda picture: picture[..., :3],
    "bgra": lambda picture: picture[..., 2::-1],
    "turned right": lambda picture: np.rot90(picture[..., :3].copy(), -1),
    "turned left, bgr": lambda picture: np.rot90(picture[..., 2::-1]),
    "rows with a padding": lambda picture: np.pad(picture[..., :3], ((0, 0), (0, 5), (0, 0)))[:, :-5],
    "planes": lambda picture: picture[..., :3].transpose(2, 0, 1).copy().transpose(1, 2, 0),
    "one colour": lambda picture: np.broadcast_to(picture[0, 0, :3], (*picture.shape[:2], 3)),
}
SHAPES = [((480, 640), (168, 224)), ((1, 1), (1, 1)), ((1, 2), (3, 7)), ((7, 3), (224, 96)), ((31, 97), (31, 97)),
          ((9, 1000), (2, 224)), ((700, 33), (224, 10)), ((67, 50), (68, 51)), ((1080, 1920), (126, 224))]


@pytest.fixture(params=[*kernels.generations(), "Pillow"])
def way(request, monkeypatch):
    if request.param == "Pillow":
        monkeypatch.setattr(kernels, "library", lambda: None)
        yield
    else:
        kernels.use(request.param)
        yield
        kernels.use(kernels.generations()[0])


def scaled(image, height, width):
    canvas = np.full((height + 2, width + 2, 3), 77, np.uint8)
    scale_into(canvas[1:-1, 1:-1], image)
    edge = canvas.copy()
    edge[1:-1, 1:-1] = 77
    assert (edge == 77).all()
    return canvas[1:-1, 1:-1]


def one_axis_at_a_time(image, height, width):
    rows = Image.fromarray(np.ascontiguousarray(image)).resize((width, image.shape[0]), Image.Resampling.BILINEAR)
    return np.asarray(rows.resize((width, height), Image.Resampling.BILINEAR))


@pytest.mark.parametrize("view", VIEWS)
def test_whatever_way_the_pixels_lie(way, view):
    picture = np.random.default_rng(0).integers(0, 256, (61, 83, 4), np.uint8)
    image = VIEWS[view](picture)
    assert np.array_equal(scaled(image, 28, 37), one_axis_at_a_time(image, 28, 37))


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes(way, shapes):
    (height, width), to = shapes
    noise = np.random.default_rng(height * width)
    size = height, width, 3
    for image in (noise.integers(0, 256, size, np.uint8), noise.choice([0, 255], size).astype(np.uint8),
                  np.full(size, 255, np.uint8)):
        assert np.array_equal(scaled(image, *to), one_axis_at_a_time(image, *to))


def test_many_random_shapes(generation):
    random = np.random.default_rng(1)
    for _ in range(150):
        height, width, *to = random.integers(1, 300, 4)
        image = random.integers(0, 256, (height, width, 3), np.uint8)
        assert np.array_equal(scaled(image, *to), one_axis_at_a_time(image, *to)), (image.shape, to)


def test_a_tall_picture_as_older_pillow_scales_it(way):
    tall = (np.arange(9 * 4 * 3) * 37 % 256).astype(np.uint8).reshape(9, 4, 3)
    pillow_12 = [[[114, 115, 105], [117, 106, 121]], [[133, 116, 137], [115, 139, 123]],
                 [[129, 142, 141], [143, 134, 137]], [[122, 118, 119], [99, 136, 125]]]
    assert scaled(tall, 4, 2).tolist() == pillow_12
