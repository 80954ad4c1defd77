"""Masks and images as picture files."""

from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from lrptrain.batch.annotations import IGNORED
from lrptrain.data.pictures import open_picture, to_values
from lrptrain.extras import require
from lrptrain.files import write_atomically


@cache
def voc_palette() -> bytes:
    """The 256 colours of PASCAL VOC: the bits of an index go to red, green and blue in turn, the highest bit first."""
    index = np.arange(256)[:, None]
    channels = np.arange(3)
    colours = sum(((index >> (3 * bit + channels)) & 1) << (7 - bit) for bit in range(3))
    return np.asarray(colours, dtype=np.uint8).tobytes()


def write_mask(path: Path, mask: UInt8[Tensor, "height width"]) -> None:
    """Write a mask as a PNG with VOC's palette, whole or not at all."""
    picture = require("PIL.Image", "monitor").fromarray(mask.detach().cpu().numpy().astype(np.uint8))
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
    """A mask: 0 background, 1 + class, 255 ignored.

    Args:
        path: A PNG with a palette (any) or in grey, whose values are the classes.
        size: Height and width that it must have.
        classes: How many there are, without the background.
        resize: Bring it to `size` by the nearest neighbour, whatever it has.

    Raises:
        ValueError: If the file cannot be read, is in colour, or has another size or value; the message names it.
    """
    picture = open_picture(path)
    own = picture.size[::-1]
    if size is not None and not resize and own != tuple(size):
        raise ValueError(f"the mask {path} has size {own}, expected {tuple(size)}")
    try:
        values = to_values(picture, size or own)
    except ValueError as error:
        raise ValueError(f"{path}: {error}: save class numbers, with a palette or in grey") from error
    most = IGNORED - 1 if classes is None else classes
    if other := values[(values > most) & (values != IGNORED)].unique().tolist():
        raise ValueError(
            f"the mask {path} holds {other[:5]}: not 0 for background, 1 to {most} for the classes, nor 255 for "
            "ignored pixels; is it of another palette or another list of classes?"
        )
    return values.to(torch.uint8)
