"""What rosbag2 packs: whole files, or single messages. Their first bytes tell, whatever the metadata say."""

from __future__ import annotations

from pathlib import Path

import lz4.frame
import zstandard

_ZSTD, _LZ4 = b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18"
PACKED = (".zstd", ".zst", ".lz4")
"""suffixes of packed files"""
_BLOCK = 1 << 20


class PackedError(Exception):
    """Packed bytes that are damaged, or cut off."""


def unpacked(data: bytes) -> bytes:
    """A message as it was sent. Serialised messages begin with two bytes that no packer begins with.

    Raises PackedError.
    """
    try:
        if data[:4] == _ZSTD:
            return zstandard.ZstdDecompressor().decompressobj().decompress(data)
        if data[:4] == _LZ4:
            return lz4.frame.decompress(data)
    except (zstandard.ZstdError, RuntimeError, EOFError) as error:
        raise PackedError(f"a packed message is damaged: {error}") from error
    return data


def unpack_file(packed: Path, plain: Path) -> None:
    """Raises PackedError for a file that is damaged or cut off, OSError."""
    with packed.open("rb") as source, plain.open("wb") as target:
        first = source.read(4)
        if first not in (_ZSTD, _LZ4):
            raise PackedError("it is neither zstd nor lz4")
        whole = True
        pending = first
        make = zstandard.ZstdDecompressor().decompressobj if first == _ZSTD else lz4.frame.LZ4FrameDecompressor
        unpacker = make()
        try:
            while block := pending + source.read(_BLOCK):
                pending = b""
                while block:  # several packed pieces in a row are one file
                    target.write(unpacker.decompress(block))
                    whole, block = unpacker.eof, unpacker.unused_data if unpacker.eof else b""
                    unpacker = make() if whole else unpacker
        except (zstandard.ZstdError, RuntimeError, EOFError) as error:
            raise PackedError(f"it is damaged: {error}") from error
        if not whole:
            raise PackedError("it is cut off")
