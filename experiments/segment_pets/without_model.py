"""Maps that need no model: the pet is in the middle, or it is what stands out."""

from functools import lru_cache
from itertools import product

import numpy as np
import torch
from jaxtyping import Float
from scipy.ndimage import gaussian_filter, uniform_filter
from torch import Tensor

from experiments.segment_pets.photographs import SIZE, Photographs, load, scored, tuned

CENTRES, WIDTHS = (0.45, 0.5, 0.55), (0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
"""Of the Gaussian, as shares of the image."""
BLUR = 2.5
"""Standard deviation in pixels of the blur of the residual on images of 64 pixels, as published."""


def gaussian(y: float, x: float, height: float, width: float) -> Float[Tensor, "height width"]:
    """With its centre and standard deviations as shares of the image; 1 at its top."""
    at = (torch.arange(SIZE) + 0.5) / SIZE
    return torch.exp(-(((at - y) / height) ** 2)[:, None] / 2 - (((at - x) / width) ** 2)[None] / 2)


@lru_cache(1)
def centre_prior(seed: int) -> Float[Tensor, "height width"]:
    """The Gaussian that is best on the validation masks, at its own best threshold; it may stand above or below."""
    val = load(seed)["val"]
    candidates = [gaussian(y, 0.5, height, width) for y, height, width in product(CENTRES, WIDTHS, WIDTHS)]
    return max(candidates, key=lambda prior: _fit(prior, val))


def _fit(prior: Float[Tensor, "height width"], val: Photographs) -> float:
    maps = prior.expand(len(val.labels), -1, -1)
    return scored(maps, val.labels, val, tuned(maps, val)).breeds


def spectral_residual(rgb: Float[Tensor, "n 3 height width"]) -> Float[Tensor, "n height width"]:
    """What a smooth spectrum lacks: Hou & Zhang 2007, "Saliency detection: a spectral residual approach"."""
    grey = rgb.mean(1).double().numpy()
    spectrum = np.fft.fft2(grey)
    log = np.log(np.abs(spectrum) + 1e-9)
    residual = log - uniform_filter(log, (0, 3, 3), mode="wrap")
    saliency = np.abs(np.fft.ifft2(np.exp(residual + 1j * np.angle(spectrum)))) ** 2
    smooth = torch.from_numpy(gaussian_filter(saliency, (0, BLUR, BLUR))).float()
    return smooth / smooth.amax((1, 2), keepdim=True)
