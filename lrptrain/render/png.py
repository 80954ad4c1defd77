"""Pixels as a PNG file, with nothing but the standard library: a page or a notebook can hold it without pillow."""

import base64
import struct
import zlib

import numpy as np
from jaxtyping import UInt8

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def png_bytes(pixels: UInt8[np.ndarray, "height width 3"]) -> bytes:
    """The pixels as a PNG file (ISO/IEC 15948), in eight bits for each of red, green and blue."""
    height, width, _ = pixels.shape
    # Every row is preceded by the number of its filter: 0, none.
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, 3 * width)], axis=1)
    # 8 bits per channel, 2: red, green and blue; then the only compression and filter there are, and no interlacing.
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows.tobytes())) + _chunk(b"IEND", b"")


def png_address(pixels: UInt8[np.ndarray, "height width 3"]) -> str:
    """The pixels as an address that holds them, for the `src` of an `<img>`."""
    return f"data:image/png;base64,{base64.b64encode(png_bytes(pixels)).decode()}"


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
