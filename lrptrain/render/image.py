"""Relevance over an image."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Num, Shaped, UInt8
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn import functional as F

from lrptrain.extras import require
from lrptrain.render.colors import OPACITY, blend

# The longer side of a picture, in pixels, below which it is enlarged.
SMALLEST = 160
OUTLINE = (0, 255, 255)


def overlay(
    image: Num[Tensor | np.ndarray, "channels height width"],
    heat: Num[Tensor | np.ndarray, "rows columns"],
    mask: Shaped[Tensor | np.ndarray, "height width"] | None = None,
    *,
    opacity: float = OPACITY,
    peak: float | None = None,
    mean: Sequence[float] | Tensor | None = None,
    std: Sequence[float] | Tensor | None = None,
) -> UInt8[np.ndarray, "large_height large_width 3"]:
    """The image in light greys under its relevance: red speaks for the class, blue against it.

    Equally strong colours are equal relevance. The annotation's outline is cyan on black.

    Args:
        image: Image of any range, with one or three channels; a tensor on any device, or an array.
        heat: Relevance, of a patch grid (interpolated bilinearly) or of the pixels; nan counts as none.
        mask: 1 evidence (outlined), 0 not, 255 ignored (not outlined), at the image's size.
        opacity: Opacity of the most relevant place, in [0, 1].
        peak: The magnitude that has the full colour, for a common scale of several maps; None for the map's largest.
        mean: Mean of each channel that the data was normalised with. Without it the image is stretched.
        std: Their standard deviation.

    Returns:
        A picture, enlarged as by `to_picture`.
    """
    picture = to_picture(image, mean=mean, std=std)
    relevance = _scaled(_resized(_array(heat), (picture.shape[0], picture.shape[1])), peak)
    blended = blend(picture, relevance, opacity)
    return blended if mask is None else outlined(blended, enlarge(_array(mask)) == 1)


def to_picture(
    image: Num[Tensor | np.ndarray, "channels height width"],
    *,
    mean: Sequence[float] | Tensor | None = None,
    std: Sequence[float] | Tensor | None = None,
) -> UInt8[np.ndarray, "large_height large_width 3"]:
    """A picture to look at, of a tensor that a model sees: as by `to_pixels`, and enlarged as by `enlarge`."""
    return enlarge(to_pixels(image, mean=mean, std=std))


def to_pixels(
    image: Num[Tensor | np.ndarray, "channels height width"],
    *,
    mean: Sequence[float] | Tensor | None = None,
    std: Sequence[float] | Tensor | None = None,
) -> UInt8[np.ndarray, "height width 3"]:
    """The pixels of a tensor that a model sees.

    Args:
        image: Image of any range, with one or three channels; a tensor on any device, or an array.
        mean: Mean of each channel that the data was normalised with. Without it the image is stretched.
        std: Their standard deviation.

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
        values = values * _array(std).reshape(-1, 1, 1) + _array(mean).reshape(-1, 1, 1)
    else:
        values = _stretched(values)
    # [1, height, width] becomes three equal channels.
    values = np.nan_to_num(np.broadcast_to(values, (3, *values.shape[1:])))
    return np.rint(values.clip(0, 1) * 255).astype(np.uint8).transpose(1, 2, 0)


def enlarge(
    pixels: Shaped[np.ndarray, "height width *channels"], least: int = SMALLEST
) -> Shaped[np.ndarray, "height2 width2 *channels"]:
    """Repeat the pixels of a small picture or mask, so that its longer side has at least 160 of them, or `least`."""
    # A whole factor keeps pixels square and sharp: 32 x 24 becomes 160 x 120.
    factor = max(1, math.ceil(least / max(pixels.shape[:2])))
    return pixels.repeat(factor, axis=0).repeat(factor, axis=1)


def finite_map(heat: Num[Tensor | np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """A map as float32 on the CPU, in which what is not finite counts as no relevance."""
    return np.nan_to_num(_array(heat), posinf=0.0, neginf=0.0)


def _resized(heat: Float[np.ndarray, "rows columns"], size: tuple[int, int]) -> Float[np.ndarray, "height width"]:
    """Relevance at the picture's size."""
    # interpolate() wants [batch, channels, rows, columns].
    finite = torch.from_numpy(finite_map(heat))[None, None]
    return F.interpolate(finite, size=size, mode="bilinear", align_corners=False)[0, 0].numpy()


def _scaled(relevance: Float[np.ndarray, "*shape"], peak: float | None = None) -> Float[np.ndarray, "*shape"]:
    """In [-1, 1], with the peak, or else its largest magnitude, at 1, unless it is 0 everywhere."""
    largest = np.abs(relevance).max() if peak is None else peak
    return (relevance / largest).clip(-1, 1) if largest > 0 else np.zeros_like(relevance)


def outlined(
    picture: UInt8[np.ndarray, "height width 3"], evidence: Bool[np.ndarray, "height width"], width: int = 1
) -> UInt8[np.ndarray, "height width 3"]:
    """A line along the inner border of the evidence, with a black one on either side: it shows on any ground."""
    erode = require("scipy.ndimage", "monitor").binary_erosion
    dilate = require("scipy.ndimage", "monitor").binary_dilation
    # The evidence without what erosion leaves of it is its border.
    line = evidence & ~erode(evidence, iterations=width)
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
