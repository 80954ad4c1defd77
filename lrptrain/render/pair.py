"""An image beside its map, with a title above and the scale of its colours below."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Num, Shaped, UInt8
from torch import Tensor

from lrptrain.extras import require
from lrptrain.render.colors import INK, MUTED, OPACITY, PAPER, blend, scale_text
from lrptrain.render.image import enlarge, finite_map, overlay, to_picture
from lrptrain.render.sheet import GAP, broken_lines, font_of

_LINE = (208, 208, 208)
_MOST_LINES = 3  # of a title
_BAR = 10  # pixels, the height of the bar of colours


@dataclass(frozen=True)
class TitledPair:
    """An image beside its map, with text around it.

    Attributes:
        picture: The whole, in [0, 255].
        top: The first row of the image and of the map.
        left: The first columns of the image and of the map.
    """

    picture: UInt8[np.ndarray, "height width 3"]
    top: int
    left: tuple[int, int]

    def laid(self, mask: Shaped[np.ndarray, "image_height image_width"]) -> UInt8[np.ndarray, "height width"]:
        """A mask of the image at the whole picture's size: over the image and over the map, 0 elsewhere."""
        enlarged = enlarge(mask)
        rows, columns = enlarged.shape
        canvas = np.zeros(self.picture.shape[:2], dtype=np.uint8)
        for left in self.left:
            canvas[self.top : self.top + rows, left : left + columns] = enlarged
        return canvas


def beside(
    image: Num[Tensor | np.ndarray, "channels height width"],
    heat: Num[Tensor | np.ndarray, "rows columns"],
    mask: Shaped[Tensor | np.ndarray, "height width"] | None = None,
    *,
    opacity: float = OPACITY,
    peak: float | None = None,
    mean: Sequence[float] | Tensor | None = None,
    std: Sequence[float] | Tensor | None = None,
) -> UInt8[np.ndarray, "large_height pair_width 3"]:
    """The image as it is, and to its right the map over its greys; arguments as for `overlay`.

    The image itself must be seen: under the colours of its map a red, a green and a blue tag look alike.
    """
    bare = to_picture(image, mean=mean, std=std)
    shaded = overlay(image, heat, mask, opacity=opacity, peak=peak, mean=mean, std=std)
    gap = np.full((bare.shape[0], GAP, 3), PAPER, dtype=np.uint8)
    gap[:, GAP // 2 - 1 : GAP // 2 + 1] = _LINE  # white images end somewhere, too
    return np.concatenate([bare, gap, shaded], axis=1)


def titled_pair(
    image: Num[Tensor | np.ndarray, "channels height width"],
    heat: Num[Tensor | np.ndarray, "rows columns"],
    mask: Shaped[Tensor | np.ndarray, "height width"] | None = None,
    *,
    title: str = "",
    mean: Sequence[float] | Tensor | None = None,
    std: Sequence[float] | Tensor | None = None,
) -> TitledPair:
    """The pair of `beside` below a title and above its scale: which colour is for the class, and how large it is.

    Args:
        image: As for `overlay`.
        heat: As for `overlay`.
        mask: As for `overlay`.
        title: What is explained, as in "target 'cat', p = 0.93"; at most three lines of it.
        mean: As for `overlay`.
        std: As for `overlay`.

    Raises:
        ImportError: Without pillow.
    """
    pair = beside(image, heat, mask, mean=mean, std=std)
    picture, top = titled(pair, finite_map(heat), title)
    # A pair is 2 * width + GAP wide, and its map begins at width + GAP.
    return TitledPair(picture, top, (0, (pair.shape[1] + GAP) // 2))


def titled(
    picture: UInt8[np.ndarray, "height width 3"], heat: Float[np.ndarray, "*shape"], title: str = ""
) -> tuple[UInt8[np.ndarray, "titled_height width 3"], int]:
    """A picture that shows a map, below a title and above its scale; and the row where the picture begins."""
    width = picture.shape[1]
    font = font_of(max(12, width // 44))
    lines = [
        _written(_strip(width, round(1.4 * font.size)), [(0, INK, line)], font)
        for line in broken_lines(title, width, font)[:_MOST_LINES]
    ]
    return np.concatenate([*lines, picture, _scale(heat, width, font)]), sum(map(len, lines))


def _scale(heat: np.ndarray, width: int, font: Any) -> UInt8[np.ndarray, "strip_height width 3"]:
    """A bar of the colours between the largest relevance against and for the class; words where there is none."""
    strip = _strip(width, round(1.8 * font.size))
    peak = float(np.abs(heat).max(initial=0.0))
    if peak == 0:
        return _written(strip, [(0, MUTED, "no relevance: the map is 0 everywhere")], font)
    size = scale_text(peak)
    # A map without negative relevance has one half of the bar: a blue end would say that there is something.
    signed = bool((heat < 0).any())
    before = f"against -{size} " if signed else "0 "
    after = f" +{size} for the class"
    start = round(font.getlength(before)) + 2
    end = max(start + 1, width - round(font.getlength(after)) - 2)
    middle = strip.shape[0] // 2
    levels = np.linspace(-1.0 if signed else 0.0, 1.0, end - start)
    # The levels are a row [columns], which every row of the bar repeats.
    bar = slice(middle - _BAR // 2, middle + _BAR // 2)
    strip[bar, start:end] = blend(strip[bar, start:end], np.broadcast_to(levels, (_BAR, end - start)))
    return _written(strip, [(0, MUTED, before), (end + 2, MUTED, after)], font)


def _strip(width: int, height: int) -> UInt8[np.ndarray, "height width 3"]:
    return np.full((height, width, 3), PAPER, dtype=np.uint8)


def _written(strip: np.ndarray, texts: Sequence[tuple[int, tuple[int, int, int], str]], font: Any) -> np.ndarray:
    """The strip with texts, each at its column and in its colour, halfway up."""
    image = require("PIL.Image", "monitor").fromarray(strip)
    draw = require("PIL.ImageDraw", "monitor").Draw(image)
    for column, color, text in texts:
        draw.text((column, strip.shape[0] // 2), text, fill=color, font=font, anchor="lm")
    return np.asarray(image)
