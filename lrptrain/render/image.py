"""Relevance over an image."""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Num, Shaped, UInt8
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn import functional as F

from lrptrain.extras import require

# The longer side of a picture, in pixels, below which it is enlarged.
SMALLEST = 160
# Hot is for the class, cold is against it; both grow brighter. No stop of the cold one is near the outline's cyan.
COLORMAP = "inferno"
_COLD = ("#000004", "#1d4ed8", "#70aaff")
OUTLINE = (0, 255, 255)
# How far the picture below relevance turns grey: an orange thing must not look like relevance.
_GREY = 0.6


def overlay(
    image: Num[Tensor | np.ndarray, "channels height width"],
    heat: Num[Tensor | np.ndarray, "rows columns"],
    mask: Shaped[Tensor | np.ndarray, "height width"] | None = None,
    *,
    opacity: float = 0.75,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> UInt8[np.ndarray, "large_height large_width 3"]:
    """The image, paler, under its relevance: the more relevant a place, the brighter its colour and the more opaque.

    What speaks for the class is black over red to yellow, what speaks against it blue; both are scaled by the largest
    magnitude, so that equal brightness is equal relevance. Where there is none, no colour is laid over the image. The
    annotation's outline is cyan on black.

    Args:
        image: Image of any range, with one or three channels; a tensor on any device, or an array.
        heat: Relevance, of a patch grid (interpolated bilinearly) or of the pixels; nan counts as none.
        mask: 1 evidence (outlined), 0 not, 255 ignored (not outlined), at the image's size.
        opacity: Opacity of the most relevant place, in [0, 1].
        mean: Mean of each channel that the data was normalised with. Without `mean` and `std` the image is stretched
            from its own minimum to its maximum.
        std: Standard deviation of each channel that the data was normalised with.

    Returns:
        A picture, enlarged as by `to_picture`.
    """
    picture = to_picture(image, mean=mean, std=std)
    blended = blend(picture, _scaled(_resized(_array(heat), (picture.shape[0], picture.shape[1]))), opacity)
    return blended if mask is None else _outlined(blended, enlarge(_array(mask)) == 1)


def blend(
    picture: UInt8[np.ndarray, "height width 3"], relevance: Float[np.ndarray, "height width"], opacity: float = 0.75
) -> UInt8[np.ndarray, "height width 3"]:
    """A picture, paler, under the colours of relevance in [-1, 1]: the larger, the brighter and the more opaque."""
    strength = np.abs(relevance)
    # [height, width, 1] in 0..1: the opacity of each pixel.
    alpha = opacity * strength[..., None]
    hot, cold = (colors(strength)[..., :3] * 255 for colors in color_maps())
    colors = np.where(relevance[..., None] < 0, cold, hot)
    return np.rint((1 - alpha) * _paler(picture) + alpha * colors).astype(np.uint8)


@cache
def color_maps() -> tuple[Any, Any]:
    """matplotlib's maps from a strength in [0, 1] to the colour of what speaks for the class, and against it."""
    cold = require("matplotlib.colors", "monitor").LinearSegmentedColormap.from_list("cold", _COLD)
    return require("matplotlib", "monitor").colormaps[COLORMAP], cold


def to_picture(
    image: Num[Tensor | np.ndarray, "channels height width"],
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> UInt8[np.ndarray, "large_height large_width 3"]:
    """A picture to look at, of a tensor that a model sees: as by `to_pixels`, and enlarged as by `enlarge`."""
    return enlarge(to_pixels(image, mean=mean, std=std))


def to_pixels(
    image: Num[Tensor | np.ndarray, "channels height width"],
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> UInt8[np.ndarray, "height width 3"]:
    """The pixels of a tensor that a model sees.

    Args:
        image: Image of any range, with one or three channels; a tensor on any device, or an array.
        mean: Mean of each channel that the data was normalised with. Without `mean` and `std` the image is stretched
            from its own minimum to its maximum.
        std: Standard deviation of each channel that the data was normalised with.

    Returns:
        In [0, 255], at the image's size.

    Raises:
        ValueError: If the image has another shape, or only one of `mean` and `std` is given.
    """
    values = _array(image)
    if values.ndim != 3 or values.shape[0] not in (1, 3):
        raise ValueError(f"an image has the shape [3, height, width] or [1, height, width], not {values.shape}")
    if (mean is None) != (std is None):
        raise ValueError("give both mean and std, or neither")
    if mean is not None and std is not None:
        # Undo (pixel - mean) / std for each channel.
        values = values * np.reshape(std, (-1, 1, 1)) + np.reshape(mean, (-1, 1, 1))
    else:
        values = _stretched(values)
    # [1, height, width] becomes three equal channels.
    values = np.nan_to_num(np.broadcast_to(values, (3, *values.shape[1:])))
    return np.rint(values.clip(0, 1) * 255).astype(np.uint8).transpose(1, 2, 0)


def enlarge(
    pixels: Shaped[np.ndarray, "height width *channels"],
) -> Shaped[np.ndarray, "height2 width2 *channels"]:
    """Repeat the pixels of a small picture or mask, so that its longer side has at least 160 of them."""
    # A whole factor keeps pixels square and sharp: 32 x 24 becomes 160 x 120.
    factor = max(1, math.ceil(SMALLEST / max(pixels.shape[:2])))
    return pixels.repeat(factor, axis=0).repeat(factor, axis=1)


def _resized(heat: Float[np.ndarray, "rows columns"], size: tuple[int, int]) -> Float[np.ndarray, "height width"]:
    """Relevance at the picture's size."""
    # interpolate() wants [batch, channels, rows, columns].
    finite = torch.from_numpy(_finite(heat))[None, None]
    resized: np.ndarray = F.interpolate(finite, size=size, mode="bilinear", align_corners=False)[0, 0].numpy()
    return resized


def _finite(heat: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """What is not finite counts as no relevance."""
    return np.nan_to_num(heat, posinf=0.0, neginf=0.0)


def _scaled(relevance: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Its largest magnitude 1, unless it is 0 everywhere."""
    peak = np.abs(relevance).max()
    return relevance / peak if peak > 0 else relevance


def _paler(picture: UInt8[np.ndarray, "height width 3"]) -> Float[np.ndarray, "height width 3"]:
    return (1 - _GREY) * picture + _GREY * picture.mean(axis=-1, keepdims=True)


def _outlined(
    picture: UInt8[np.ndarray, "height width 3"], evidence: Bool[np.ndarray, "height width"]
) -> UInt8[np.ndarray, "height width 3"]:
    """A line along the inner border of the evidence, with a black one on either side: it shows on any ground."""
    erode = require("scipy.ndimage", "monitor").binary_erosion
    dilate = require("scipy.ndimage", "monitor").binary_dilation
    # The evidence without what erosion leaves of it is its border, one pixel wide.
    line = evidence & ~erode(evidence)
    picture = np.where(dilate(line)[..., None], np.uint8(0), picture)
    picture[line] = OUTLINE
    return picture


def _stretched(values: Float[np.ndarray, "channels height width"]) -> Float[np.ndarray, "channels height width"]:
    low = np.nanmin(values)
    high = np.nanmax(values)
    return (values - low) / (high - low) if high > low else values


def _array(values: Tensor | ArrayLike) -> np.ndarray:
    """As float32, from any device."""
    return torch.as_tensor(values).detach().to("cpu", torch.float32).numpy()
