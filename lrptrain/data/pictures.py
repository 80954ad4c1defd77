"""Image and mask files of any kind as tensors."""

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor

from lrptrain.extras import require

if TYPE_CHECKING:
    from PIL.Image import Image

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")


def stem(name: str) -> str:
    """`name` without the ending of an image file."""
    path = PurePosixPath(name)
    return str(path.with_suffix("")) if path.suffix.lower() in ENDINGS else name


def find_pictures(folder: Path) -> dict[str, Path]:
    """Image files in a folder and its subfolders, by relative path without ending.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: Two files differ in nothing but the ending.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}")
    found: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in ENDINGS:
            first = found.setdefault(stem(path.relative_to(folder).as_posix()), path)
            if first != path:
                raise ValueError(f"{first} and {path} have the same name; keep one")
    return found


def open_picture(path: Path) -> "Image":
    """A picture, read in full.

    Raises:
        ValueError: The file is damaged or no picture; the message names it.
    """
    pillow = require("PIL.Image", "monitor")
    try:
        with pillow.open(path) as picture:
            picture.load()
            return picture
    except (OSError, SyntaxError) as error:
        raise ValueError(f"cannot read the picture {path}: {error}") from error


def picture_size(path: Path) -> tuple[int, int]:
    """Width and height from the head of a file.

    Raises:
        ValueError: The file is no picture; the message names it.
    """
    pillow = require("PIL.Image", "monitor")
    try:
        with pillow.open(path) as picture:
            return picture.size
    except (OSError, SyntaxError) as error:
        raise ValueError(f"cannot read the picture {path}: {error}") from error


def to_image(picture: "Image", size: tuple[int, int]) -> Float[Tensor, "3 height width"]:
    """RGB in 0..1, resized (bilinear, antialiased); grey, palette, CMYK, alpha and 16-bit pictures are converted."""
    if picture.mode.startswith(("I", "F")):
        picture = _eight_bit(picture)
    bilinear = require("PIL.Image", "monitor").Resampling.BILINEAR
    resized = _without_alpha(picture).convert("RGB").resize(size[::-1], bilinear)
    return torch.from_numpy(np.asarray(resized, dtype=np.float32) / 255).permute(2, 0, 1).contiguous()


def to_values(picture: "Image", size: tuple[int, int]) -> Integer[Tensor, "height width"]:
    """The values of a mask (grey levels or palette indices), resized to the nearest neighbour.

    Raises:
        ValueError: A picture with several channels.
    """
    if len(picture.getbands()) != 1:
        raise ValueError(f"a mask has one channel of class values, this picture is {picture.mode}")
    nearest = require("PIL.Image", "monitor").Resampling.NEAREST
    return torch.from_numpy(np.asarray(picture.resize(size[::-1], nearest)).astype(np.int64))


def _eight_bit(picture: "Image") -> "Image":
    """Grey 8-bit from 16-bit (0..65535) or float (0..1) grey."""
    full = 1.0 if picture.mode == "F" else 65535.0
    levels = np.clip(np.asarray(picture, dtype=np.float32) / full, 0, 1) * 255
    return require("PIL.Image", "monitor").fromarray(levels.round().astype(np.uint8))


def _without_alpha(picture: "Image") -> "Image":
    """Transparent pictures on white."""
    if not picture.has_transparency_data:
        return picture
    image = require("PIL.Image", "monitor")
    opaque = picture.convert("RGBA")
    return image.alpha_composite(image.new("RGBA", opaque.size, "white"), opaque)
