"""The colours of relevance, the same in pictures, texts, terminals and on the page: red for the class, blue against it.

Red and blue of about the same lightness stay apart for every kind of colour blindness, and differ from grey.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, UInt8

POSITIVE = (225, 29, 29)
NEGATIVE = (37, 99, 235)
INK, MUTED, PAPER = (17, 17, 17), (96, 96, 96), (255, 255, 255)
"""Of what is written, of what is beside it, and of the ground: in pictures as on the page."""
OPACITY = 0.75
"""Opacity of the strongest relevance: a word stays legible below it, and a picture's edges are still seen."""
# The greys below the colours of a map: the scale goes from blue through white to red, and a photograph is drawn lightly
# on that white. On black the first half of the scale would not be seen; its own colours would hide red on what is red.
_DARKEST, _LIGHTEST = 185, 255


def grounded(picture: UInt8[np.ndarray, "height width 3"]) -> Float[np.ndarray, "height width 1"]:
    """A picture in light greys, on which both colours are seen: black becomes 185, white stays white."""
    return _DARKEST + (_LIGHTEST - _DARKEST) / 255 * picture.mean(axis=-1, keepdims=True)


def blend(
    picture: UInt8[np.ndarray, "height width 3"], relevance: Float[np.ndarray, "height width"], opacity: float = OPACITY
) -> UInt8[np.ndarray, "height width 3"]:
    """A picture in light greys under the colours of relevance in [-1, 1]: the stronger, the more opaque."""
    # [height, width, 1] in 0..1: the opacity of each pixel.
    alpha = opacity * np.abs(relevance)[..., None]
    colors = np.where(relevance[..., None] < 0, np.array(NEGATIVE), np.array(POSITIVE))
    return np.rint((1 - alpha) * grounded(picture) + alpha * colors).astype(np.uint8)


def scale_text(peak: float) -> str:
    """The largest magnitude of a map in three digits, as in "1.2e-09": a map of that must not look like one of 1."""
    return f"{peak:.3g}"


def to_palette() -> Mapping[str, float | Sequence[int]]:
    """What a page needs to draw the same: the two colours, their opacity, and the greys below them."""
    return {"positive": POSITIVE, "negative": NEGATIVE, "greys": [_DARKEST, _LIGHTEST], "opacity": OPACITY}
