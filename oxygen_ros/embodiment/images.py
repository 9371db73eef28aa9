"""Camera messages to RGB pixels: raw encodings, compressed pictures, mounting rotation."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from PIL import Image, UnidentifiedImageError

from .errors import InputError

_CHANNELS = {"rgb8": 3, "bgr8": 3, "rgba8": 4, "bgra8": 4, "mono8": 1}
_LUMA_FIRST = {"yuv422": False, "uyvy": False, "yuv422_yuy2": True, "yuyv": True}
ENCODINGS = (*_CHANNELS, "mono16", *_LUMA_FIRST)
"""sensor_msgs/Image encodings that `decode_image` reads."""

_REMEDY = f"supported are {', '.join(ENCODINGS)}"
_DEPTH = ("16uc1", "16sc1", "32fc1", "64fc1")
_LARGEST, _LONGEST = 40_000_000, 65_536  # pixels in all and in a row or column; more than any camera of a robot has
_COMPRESSED = ("JPEG", "PNG", "WEBP")
# What Pillow raises, by file format and place of the damage.
_DAMAGE = (OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error, Image.DecompressionBombError)


def decode_image(encoding: str, height: int, width: int, step: int, data, is_bigendian: bool = False) -> np.ndarray:
    """Pixels of a raw sensor_msgs/Image as uint8 [height, width, 3] RGB, a view of `data` where that is possible.

    data: a bytes-like object or uint8 sequence of exactly height * step bytes; rows may end in padding.
    Alpha is dropped, mono is repeated, mono16 is scaled by 255/65535 and rounded, YUV 4:2:2 is BT.601 video range.
    `is_bigendian` matters for mono16 alone.
    Encodings that do not say what their channels mean (8UC3 and its like) are refused, as are depth and Bayer.
    Raises InputError.
    """
    thing = f"{encoding} image {width}x{height}"
    name = encoding.lower()
    if name in _DEPTH:
        raise InputError(thing, f"the depth encoding {encoding}", "a colour encoding", _REMEDY)
    if name not in ENCODINGS:
        meaning = "channels without a meaning" if name.startswith(("8u", "8s")) else "an unsupported encoding"
        raise InputError(thing, f"{meaning} ({encoding})", "a named colour encoding", _REMEDY)
    _check_size(thing, width, height)
    depth = _CHANNELS.get(name, 2)  # mono16 and YUV 4:2:2 take two bytes a pixel
    if step < width * depth:
        raise InputError(thing, f"step {step}", f"at least {width}*{depth} = {width * depth} bytes a row")
    data = _bytes(data)
    if data.size != height * step:
        raise InputError(thing, f"{data.size} bytes of data", f"height*step = {height}*{step} = {height * step}")
    rows = data.reshape(height, step)[:, : width * depth]

    if name == "mono16":
        samples = np.ascontiguousarray(rows).view(">u2" if is_bigendian else "<u2")
        return _repeat(_to_8_bit(samples))
    if name == "mono8":
        return _repeat(rows)
    if name in _LUMA_FIRST:
        if width % 2:
            raise InputError(thing, f"width {width}", "an even width, since two pixels share their colour")
        return _yuv422_to_rgb(rows.reshape(height, width // 2, 4), _LUMA_FIRST[name])
    pixels = rows.reshape(height, width, depth)
    return pixels[..., 2::-1] if name.startswith("bgr") else pixels[..., :3]


def decode_compressed(format: str, data) -> np.ndarray:
    """Pixels of a sensor_msgs/CompressedImage as uint8 [H, W, 3] RGB.

    format: as in the message, e.g. "jpeg" or "bgr8; png compressed bgr8". Whatever channel order it names, the file
    itself holds RGB in the standard way; so only depth transports are told by it, and the file's own signature
    decides the rest. Files that were cut short are refused, never shown half. Raises InputError.
    """
    thing = f"compressed image ({format})" if format else "compressed image"
    name = format.lower()
    if "compresseddepth" in name or name.split(";")[0].strip() in _DEPTH:
        raise InputError(thing, f"the depth format '{format}'", "a colour picture", "subscribe to the colour camera")
    data = _bytes(data).tobytes()
    if not data:
        raise InputError(thing, "no data", "a JPEG, PNG or WebP file")
    try:
        pixels = _unpacked(thing, data)
        if _ends_early(data, pixels):
            raise EOFError("its pixels end before its end marker")
        return pixels
    except InputError:
        raise
    except _DAMAGE as error:
        reason = "no known signature" if isinstance(error, UnidentifiedImageError) else str(error)
        found = f"{len(data)} bytes that do not decode ({reason})"
        raise InputError(thing, found, "a whole JPEG, PNG or WebP file") from error


def _unpacked(thing: str, data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data), formats=_COMPRESSED) as picture:
        _check_size(thing, picture.width, picture.height)  # a small file can unpack to more memory than there is
        picture.load()
        if picture.mode.startswith("I"):
            return _repeat(_to_8_bit(np.asarray(picture)))
        return np.asarray(picture.convert("RGB"))


def _ends_early(data: bytes, pixels: np.ndarray) -> bool:
    """Whether a JPEG that has an end marker lacks pixels before it, as a camera sends where it has lost a part.

    libjpeg paints what is missing grey, and Pillow does not pass its warning on. Of a picture whose own end is grey,
    further data before the marker change nothing. (A progressive one is not told: it has no end, only less detail.)
    """
    if data[:2] != b"\xff\xd8" or (pixels[-1, -1] != 128).any():
        return False
    end = data.rfind(b"\xff\xd9")
    return not np.array_equal(_unpacked("", data[:end] + bytes(range(128)) + data[end:]), pixels)


def _check_size(thing: str, width: int, height: int) -> None:
    found = f"{width}x{height} pixels"
    if height <= 0 or width <= 0:
        raise InputError(thing, found, "at least 1x1")
    if width * height > _LARGEST or max(width, height) > _LONGEST:
        raise InputError(thing, found, f"at most {_LARGEST} in all, {_LONGEST} in a row or column")


def picture(message, transport: str) -> np.ndarray:
    """uint8 [H, W, 3] RGB of a deserialised sensor_msgs/Image (transport raw) or CompressedImage. Raises InputError."""
    if transport == "compressed":
        return decode_compressed(message.format, message.data)
    return decode_image(
        message.encoding, message.height, message.width, message.step, message.data, bool(message.is_bigendian)
    )


def rotate(image: np.ndarray, degrees: int) -> np.ndarray:
    """A view of the picture [H, W, 3] turned clockwise by 0, 90, 180 or 270 degrees. Raises InputError for others."""
    if degrees not in (0, 90, 180, 270):
        raise InputError("camera rotation", f"{degrees} degrees", "0, 90, 180 or 270")
    return np.rot90(image, -degrees // 90)


def _bytes(data) -> np.ndarray:
    try:
        return np.frombuffer(data, np.uint8)
    except (TypeError, ValueError, BufferError):  # a plain sequence of numbers, or an array with strides
        return np.asarray(data, np.uint8).reshape(-1)


def _repeat(grey: np.ndarray) -> np.ndarray:
    return np.repeat(grey[..., None], 3, axis=-1)


def _to_8_bit(samples: np.ndarray) -> np.ndarray:
    return ((samples.astype(np.uint32) + 128) // 257).astype(np.uint8)  # 65535 = 255 * 257, rounded to nearest


def _yuv422_to_rgb(pairs: np.ndarray, luma_first: bool) -> np.ndarray:
    """[H, W/2, 4] bytes Y U Y V (luma first) or U Y V Y to [H, W, 3]: BT.601 video range in 20-bit fixed point."""
    quad = pairs.astype(np.int32)
    luma, chroma = (quad[..., 0::2], quad[..., 1::2]) if luma_first else (quad[..., 1::2], quad[..., 0::2])
    y = np.maximum(luma - 16, 0) * 1220542 + (1 << 19)
    u, v = chroma[..., :1] - 128, chroma[..., 1:] - 128
    rgb = np.stack([y + 1673527 * v, y - 852492 * v - 409993 * u, y + 2116026 * u], axis=-1) >> 20
    return np.clip(rgb, 0, 255).astype(np.uint8).reshape(pairs.shape[0], -1, 3)
