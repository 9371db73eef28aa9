"""Pixels of every encoding and file, and what is refused: steps and lengths (F02), channels (F04), bytes (F06), broken
files (F07); and pictures turned upright (F10)."""

import io

import numpy as np
import pytest
from PIL import Image

from oxygen_ros.embodiment.errors import InputError
from oxygen_ros.embodiment.images import decode_compressed, decode_image, rotate


@pytest.mark.parametrize(
    "encoding, data, rgb",
    [
        ("rgb8", [10, 20, 30], [10, 20, 30]),
        ("bgr8", [10, 20, 30], [30, 20, 10]),
        ("rgba8", [10, 20, 30, 0], [10, 20, 30]),
        ("bgra8", [10, 20, 30, 0], [30, 20, 10]),
        ("mono8", [77], [77, 77, 77]),
    ],
)
def test_one_pixel(encoding, data, rgb):
    assert decode_image(encoding, 1, 1, len(data), bytes(data)).tolist() == [[rgb]]


@pytest.mark.parametrize("encoding", ["8UC3", "8UC1", "bayer_rggb8", "rgb16", "nv12", "", "16UC1", "32FC1"])
def test_other_encodings_are_refused_by_name_with_the_supported_ones(encoding):
    with pytest.raises(InputError) as error:
        decode_image(encoding, 1, 1, 4, bytes(4))
    assert encoding in str(error.value) and "rgb8, bgr8" in str(error.value)
    assert ("depth" in str(error.value)) == (encoding in ("16UC1", "32FC1"))


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, list, lambda b: np.frombuffer(b, np.uint8)])
def test_row_padding_is_no_pixel(make):
    rows = bytes([1, 2, 3, 4, 5, 6, 99, 99, 7, 8, 9, 10, 11, 12, 99, 99])
    assert decode_image("rgb8", 2, 2, 8, make(rows)).tolist() == [[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [10, 11, 12]]]


@pytest.mark.parametrize(
    "width, height, step, length, numbers",
    [
        (640, 480, 0, 0, ("step 0", "640*3 = 1920")),
        (640, 480, 1919, 1919 * 480, ("step 1919", "640*3 = 1920")),
        (640, 480, 1920, 110592, ("110592", "480*1920 = 921600")),
        (1920, 1080, 5760, 6266880, ("6266880", "6220800")),
        (640, 480, 1920, 0, ("0 bytes", "921600")),
        (0, 0, 0, 0, ("0x0", "1x1")),
    ],
)
def test_what_does_not_fit_is_refused_with_both_numbers(width, height, step, length, numbers):
    with pytest.raises(InputError) as error:
        decode_image("rgb8", height, width, step, bytes(length))
    assert all(number in str(error.value) for number in numbers)


@pytest.mark.parametrize("data, big", [([1, 0, 128, 0], True), ([0, 1, 0, 128], False)])
def test_mono16_in_both_byte_orders(data, big):
    assert decode_image("mono16", 1, 2, 4, bytes(data), big).tolist() == [[[1] * 3, [128] * 3]]


def test_byte_order_leaves_8_bit_alone():
    assert decode_image("rgb8", 1, 1, 3, bytes([10, 20, 30]), is_bigendian=True).tolist() == [[[10, 20, 30]]]


def test_every_mono16_value_is_rounded_to_nearest():
    values = np.arange(65536, dtype="<u2")
    decoded = decode_image("mono16", 1, 65536, 131072, values.tobytes())[0, :, 0]
    assert np.array_equal(decoded, np.rint(values * (255 / 65535)))


# OpenCV 5.0's cvtColor (COLOR_YUV2RGB_UYVY, COLOR_YUV2RGB_YUY2) of the same bytes. With 920,000 random pixels the two
# were equal, too.
YUV = bytes([0, 16, 255, 235, 128, 0, 128, 255, 90, 81, 240, 145, 54, 145, 34, 41])
UYVY = [[203, 0, 0], [255, 202, 0], [0, 0, 0], [255, 255, 255], [254, 0, 0], [255, 74, 73], [0, 255, 1], [0, 134, 0]]
YUY2 = [
    [171, 0, 0],
    [255, 235, 52],
    [255, 77, 0],
    [255, 77, 0],
    [113, 91, 0],
    [255, 255, 166],
    [0, 108, 79],
    [0, 85, 55],
]


@pytest.mark.parametrize("encoding, rgb", [("uyvy", UYVY), ("yuv422", UYVY), ("yuyv", YUY2), ("yuv422_yuy2", YUY2)])
def test_yuv_422_has_opencv_s_pixels(encoding, rgb):
    assert decode_image(encoding, 1, 8, 16, YUV).tolist() == [rgb]


def test_yuv_422_of_odd_width_is_refused():
    with pytest.raises(InputError, match="width 3"):
        decode_image("uyvy", 1, 3, 6, bytes(6))


@pytest.fixture(scope="module")
def picture():
    return np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)


def encoded(array, format):
    file = io.BytesIO()
    Image.fromarray(array).save(file, format)
    return file.getvalue()


def test_png_is_exact_whatever_the_format_text_says(picture):
    for format in ("png", "bgr8; png compressed bgr8", "jpeg", ""):
        assert np.array_equal(decode_compressed(format, encoded(picture, "PNG")), picture)


def test_jpeg_keeps_red_red():
    red = np.zeros((16, 16, 3), np.uint8) + np.uint8([220, 30, 20])
    assert np.abs(decode_compressed("bgr8; jpeg compressed bgr8", encoded(red, "JPEG")).astype(int) - red).max() <= 2


def test_alpha_is_ignored_and_mono16_scaled():
    transparent = np.dstack([np.full((4, 4, 3), 200, np.uint8), np.zeros((4, 4), np.uint8)])
    assert (decode_compressed("png", encoded(transparent, "PNG")) == 200).all()
    assert decode_compressed("mono16; png compressed mono16", encoded(np.uint16([[256, 32768]]), "PNG")).tolist() == [
        [[1] * 3, [128] * 3]
    ]


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_broken_files_are_refused(picture, kind):
    whole = encoded(picture, kind)
    for broken in (b"", whole[:20], whole[: len(whole) // 2], np.random.default_rng(1).bytes(5000)):
        with pytest.raises(InputError):
            decode_compressed(kind.lower(), broken)


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("restart", [0, 3])
@pytest.mark.parametrize("kept", [0.1, 0.5, 0.97])
def test_a_jpeg_that_ends_early_is_refused_though_it_has_its_end_marker(picture, subsampling, restart, kept):
    """As cameras over USB send it where a packet was lost; Pillow shows the rest grey, and says nothing."""
    file = io.BytesIO()
    noise = np.tile(picture, (5, 5, 1))
    Image.fromarray(noise).save(file, "JPEG", subsampling=subsampling, restart_marker_rows=restart)
    whole = file.getvalue()
    assert decode_compressed("jpeg", whole).shape == noise.shape
    with pytest.raises(InputError, match="its pixels end before its end marker"):
        decode_compressed("jpeg", whole[: 700 + int((len(whole) - 700) * kept)] + b"\xff\xd9")


@pytest.mark.parametrize("behind", [b"", bytes(100)], ids=["", "padded"])
@pytest.mark.parametrize("size", [(48, 64), (17, 33)])
def test_a_jpeg_whose_own_end_is_grey_is_whole(size, behind):
    grey = np.full((*size, 3), 128, np.uint8)
    grey[:4] = 200
    seen = decode_compressed("jpeg", encoded(grey, "JPEG") + behind)
    assert seen[-1, -1].tolist() == [128] * 3 and seen[0, 0, 0] > 190


@pytest.mark.parametrize(
    "format", ["16UC1; compressedDepth png", "32FC1; compressedDepth rvl", "16UC1; png compressed "]
)
def test_compressed_depth_is_refused_by_name(picture, format):
    with pytest.raises(InputError, match="depth"):
        decode_compressed(format, encoded(picture, "PNG"))


def test_rotation_turns_and_does_not_mirror():
    a, b, c, d = np.arange(12, dtype=np.uint8).reshape(4, 3)
    image = np.stack([[a, b], [c, d]])
    assert np.array_equal(rotate(image, 0), image)
    assert np.array_equal(rotate(image, 180), [[d, c], [b, a]])
    assert np.array_equal(rotate(image, 90), [[c, a], [d, b]])
    assert np.array_equal(rotate(image, 270), [[b, d], [a, c]])
    with pytest.raises(InputError, match="45"):
        rotate(image, 45)


def test_a_small_file_that_unpacks_to_too_much_is_refused_by_its_header():
    bomb = io.BytesIO()
    Image.new("1", (13000, 13000)).save(bomb, "PNG")
    with pytest.raises(InputError, match="13000x13000 pixels"):
        decode_compressed("png", bomb.getvalue())


@pytest.mark.parametrize("size", [(70_000, 1), (1, 70_000)])
def test_a_line_that_is_too_long_to_be_scaled_is_refused(size):
    """To scale a line of 40 million pixels takes 3 GB."""
    line = io.BytesIO()
    Image.new("L", size).save(line, "PNG")
    width, height = size
    for decode in (lambda: decode_compressed("png", line.getvalue()),
                   lambda: decode_image("mono8", height, width, width, bytes(70_000))):
        with pytest.raises(InputError, match=f"{width}x{height} pixels, expected at most 40000000 in all, 65536 in"):
            decode()
