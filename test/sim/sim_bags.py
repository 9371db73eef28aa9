"""Reading a bag for the tests, by other code than the one that wrote it."""
from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import numpy as np
from mcap.reader import make_reader
from PIL import Image
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "resource" / "aloha_transfer_cube.mcap"


@dataclasses.dataclass
class Heard:
    """One message and its times in ns; `stamp` is its header's, None where it has no header."""

    received: int
    published: int
    raw: bytes
    message: object

    @property
    def stamp(self) -> int | None:
        header = getattr(self.message, "header", None)
        return header and header.stamp.sec * 10**9 + header.stamp.nanosec


def read(path: Path) -> tuple[dict[str, list[Heard]], dict[str, str], object]:
    """(messages by topic in file order, type by topic, summary), decoded by the definitions inside the bag."""
    heard, types = {}, {}
    store = get_typestore(Stores.EMPTY)
    with path.open("rb") as stream:
        reader = make_reader(stream, validate_crcs=True)
        summary = reader.get_summary()
        for schema in summary.schemas.values():
            found = get_types_from_msg(schema.data.decode(), schema.name)
            store.register({name: definition for name, definition in found.items() if name not in store.types})
        for schema, channel, message in reader.iter_messages(log_time_order=False):
            types[channel.topic] = schema.name
            heard.setdefault(channel.topic, []).append(Heard(
                message.log_time, message.publish_time, message.data, store.deserialize_cdr(message.data, schema.name)))
    return heard, types, summary


def positions(messages: list[Heard]) -> np.ndarray:
    """[messages, joints]"""
    return np.array([heard.message.position for heard in messages])


def picture(heard: Heard) -> np.ndarray:
    """[height, width, 3] uint8 RGB"""
    return np.asarray(Image.open(io.BytesIO(heard.message.data.tobytes())).convert("RGB"))


def red(pixels: np.ndarray) -> np.ndarray:
    """[n, 2] (x, y) of the pixels that show the cube, the only red thing."""
    r, g, b = np.moveaxis(pixels.astype(int), -1, 0)
    return np.argwhere((r > 150) & (g < 100) & (b < 100))[:, ::-1]
