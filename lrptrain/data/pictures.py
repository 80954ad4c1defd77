"""Image and mask files as tensors, and back."""

import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Integer, UInt8
from torch import Tensor

from lrptrain.batch.annotations import IGNORED
from lrptrain.extras import require
from lrptrain.files import check_regular, write_atomically

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "MPO", "BMP", "DIB", "GIF", "TIFF", "WEBP", "PPM", "AVIF", "JPEG2000")
MOST_PIXELS = 2**27
"""Of one picture, 400 MB in RGB: a file of some kilobytes can unpack to any number."""
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")


def stem(name: str) -> str:
    """Return `name` without the ending of an image file."""
    path = PurePosixPath(name)
    return str(path.with_suffix("")) if path.suffix.lower() in ENDINGS else name


def find_pictures(folder: Path) -> dict[str, Path]:
    """Return the image files in a folder and its subfolders, by relative path without ending.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: Two files differ in nothing but the ending.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}")
    pictures: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in ENDINGS:
            first = pictures.setdefault(stem(path.relative_to(folder).as_posix()), path)
            if first != path:
                raise ValueError(f"{first} and {path} have the same name; keep one")
    return pictures


def open_picture(path: Path) -> "Image":
    """Open a picture and read it in full."""
    with _opened(path) as picture:
        width, height = picture.size
        if width * height > MOST_PIXELS:
            raise ValueError(f"it has {width} x {height} pixels, more than {MOST_PIXELS}")
        picture.load()
        return picture


# What Pillow raises of damaged files, depending on where they are.
_DAMAGED = (OSError, SyntaxError, ValueError, EOFError, TypeError, IndexError, MemoryError, struct.error, zlib.error)


@contextmanager
def _opened(path: Path) -> "Iterator[Image]":
    """Open a picture, of which only the head is read."""
    pillow = require("PIL.Image", "monitor")
    pillow.init()  # some formats are known only then, if Pillow was built with them
    formats = [name for name in FORMATS if name in pillow.OPEN]
    try:
        check_regular(path)  # to open a pipe is to wait for its writer
        # Pillow's own warning of large pictures is not for the user, who may have made warnings errors.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pillow.DecompressionBombWarning)
            # By its content, Pillow would hand some formats to other programs, such as EPS to Ghostscript.
            with pillow.open(path, formats=formats) as picture:
                yield picture
    except (*_DAMAGED, pillow.DecompressionBombError) as error:
        raise ValueError(f"cannot read the picture {path}: {error}") from error


def to_image(picture: "Image", size: tuple[int, int]) -> Float[Tensor, "3 height width"]:
    """Return resized RGB in 0..1 (bilinear, antialiased), also of grey, palette, CMYK, alpha and 16-bit pictures."""
    if picture.mode.startswith(("I", "F")):
        picture = _eight_bit(picture)
    bilinear = require("PIL.Image", "monitor").Resampling.BILINEAR
    # Pillow's sizes are (width, height).
    resized = _without_alpha(picture).convert("RGB").resize(size[::-1], bilinear)
    return torch.from_numpy(np.asarray(resized, dtype=np.float32) / 255).permute(2, 0, 1).contiguous()


def to_values(picture: "Image", size: tuple[int, int]) -> Integer[Tensor, "height width"]:
    """Return the values of a mask (grey levels or palette indices), resized to the nearest neighbour."""
    if len(picture.getbands()) != 1:
        raise ValueError(f"a mask has one channel of class values, this picture is {picture.mode}")
    nearest = require("PIL.Image", "monitor").Resampling.NEAREST
    return torch.from_numpy(np.asarray(picture.resize(size[::-1], nearest)).astype(np.int64))


def _eight_bit(picture: "Image") -> "Image":
    """Return grey 8-bit from 16-bit (0..65535) or float (0..1) grey."""
    full = 1.0 if picture.mode == "F" else 65535.0
    levels = np.clip(np.asarray(picture, dtype=np.float32) / full, 0, 1) * 255
    return require("PIL.Image", "monitor").fromarray(levels.round().astype(np.uint8))


def _without_alpha(picture: "Image") -> "Image":
    """Put a transparent picture on white."""
    if not picture.has_transparency_data:
        return picture
    image = require("PIL.Image", "monitor")
    opaque = picture.convert("RGBA")
    return image.alpha_composite(image.new("RGBA", opaque.size, "white"), opaque)


@cache
def voc_palette() -> bytes:
    """Return VOC's 256 colours: the bits of an index go to red, green and blue in turn, from their highest bit on."""
    index = np.arange(256)[:, None]
    channels = np.arange(3)
    # Index 5 = 0b101: bit 0 sets red's highest bit, bit 2 blue's, so its colour is (128, 0, 128).
    colours = sum(((index >> (3 * bit + channels)) & 1) << (7 - bit) for bit in range(3))
    return np.asarray(colours, dtype=np.uint8).tobytes()


def array_picture(mask: UInt8[Tensor, "height width"]) -> "Image":
    """Return a picture of values, in grey."""
    picture: Image = require("PIL.Image", "monitor").fromarray(mask.detach().cpu().numpy().astype(np.uint8))
    return picture


def write_mask(path: Path, mask: UInt8[Tensor, "height width"]) -> None:
    """Write a mask as a PNG with VOC's palette, whole or not at all."""
    picture = array_picture(mask)
    picture.putpalette(voc_palette())
    write_atomically(path, partial(picture.save, format="PNG"))


def write_image(path: Path, image: Float[Tensor, "3 height width"]) -> None:
    """Write an image in 0..1 as a JPEG."""
    pixels = (image.detach().cpu().float().clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    picture = require("PIL.Image", "monitor").fromarray(np.ascontiguousarray(pixels))
    write_atomically(path, partial(picture.save, format="JPEG", quality=95))


def read_mask(
    path: Path, size: tuple[int, int] | None = None, classes: int | None = None, resize: bool = False
) -> UInt8[Tensor, "height width"]:
    """Read a mask: 0 background, 1 + class, 255 ignored."""
    picture = open_picture(path)
    shape = picture.size[::-1]
    if size is not None and not resize and shape != tuple(size):
        raise ValueError(f"the mask {path} has size {shape}, expected {tuple(size)}")
    try:
        values = to_values(picture, size or shape)
    except ValueError as error:
        raise ValueError(f"{path}: {error}: save class numbers, with a palette or in grey") from error
    most = IGNORED - 1 if classes is None else classes
    if other := values[(values > most) & (values != IGNORED)].unique().tolist():
        raise ValueError(
            f"the mask {path} holds {other[:5]}: not 0 for background, 1 to {most} for the classes, nor 255 for "
            "ignored pixels; is it of another palette or another list of classes?"
        )
    return values.to(torch.uint8)
