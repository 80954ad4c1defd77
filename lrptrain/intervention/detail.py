"""The detail swap: the fine detail of an image becomes as strong, and gets the pattern, that it is in another image.

What such a swap moves is the reliance on sharpness, noise, grain and patterns, which are everywhere, or anywhere: a
scanner's noise, a camera out of focus, images that were made larger, the lines of a screen, scratches, the coloured
fringes of a lens. What the image shows stays where it is, and its colours stay what they are.

A pattern is how the detail of a pixel goes with that of its neighbours, in its own channel and in the others. Of a
Gaussian texture, these correlations say everything (Galerne, Gousseau and Morel 2011, "Random phase textures"). The
detail of an image is filtered by the linear map that gives it the donor's correlations and changes its pixels least:
frequency by frequency, the optimal transport between two Gaussian distributions (Xia et al. 2014, "Synthesizing and
mixing stationary Gaussian texture models").
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Complex, Float
from torch import Tensor
from torch.nn import functional as F

from lrptrain.cues.painting import Images
from lrptrain.intervention.statistics import ValueRange, clamped

LEVELS = 2
"""Scales of detail: what is finer than 2 pixels, and than 4. In trials (experiments/detection) a third one moved clean
models more than it told of others."""
BANDS = 3 * LEVELS
MOST_GAIN = 8.0
"""Detail is strengthened no further: an image that is out of focus has hardly any but the rounding of its pixels."""
REACH = 8
"""The detail of pixels that are farther apart is taken to be unrelated."""
FLOOR = 1e-3
"""Of the power of the detail of an image and its donor, so much is added at every frequency: there may be none."""
FARTHEST = 2
"""A pattern is told by pixels of the detail that are so many rows and columns apart at most."""
TINY = 1e-12
"""The least power that has a logarithm, of pixels that have been normalised or lie in 0..1."""
Spectra = Complex[Tensor, "batch rows columns channels channels"]


def swap_detail(images: Images, donors: Images, valid: ValueRange | None = None) -> Images:
    """Give the detail of an image the spectrum that it has in the donor, and the cross-spectra of its channels.

    Channels are made comparable first, so that the swap commutes with the normalisation of the pixels.

    Args:
        images: The images to change.
        donors: The donor of every image; its size may differ, its channels may not.
        valid: The values that pixels can have; what lies beyond is brought to the nearest of them. None for no bounds.
    """
    wide = torch.promote_types(images.dtype, torch.float32)
    pixels = images.to(wide)
    detail = detail_of(pixels)
    wanted = detail_of(donors.to(wide))
    power = (detail.square().mean((2, 3)) + wanted.square().mean((2, 3))) / 2
    # A channel without any detail in either image has nothing to be made comparable by.
    scale = torch.where(power > 0, power, 1.0).sqrt()[..., None, None]
    # Not every accelerator decomposes complex matrices; these are small.
    place = images.device if images.device.type in ("cpu", "cuda") else torch.device("cpu")
    transport = _transport(spectra(detail / scale).to(place), spectra(wanted / scale).to(place)).to(images.device)
    swapped = pixels + scale * _filtered(detail / scale, transport)
    return clamped(swapped, valid).to(images.dtype)


def detail_of(images: Images) -> Images:
    """Return the detail of all bands together."""
    return torch.stack(detail_bands(images)).sum(0)


def detail_bands(images: Images) -> list[Images]:
    """Return the bands of an undecimated wavelet transform with binomial weights, three of each level.

    Of a level, finest first: what changes across and not down, what changes in both directions, and what changes down
    and not across (Holschneider et al. 1989, "à trous"). With the smooth rest they add up to the images. Beyond the
    edge, pixels are as at the edge.
    """
    bands = []
    smooth = images
    for level in range(LEVELS):
        across = smooth - _smoothed(smooth, 3, 2**level)
        across_alone = _smoothed(across, 2, 2**level)
        without = smooth - across
        smooth = _smoothed(without, 2, 2**level)
        bands += [across_alone, across - across_alone, without - smooth]
    return bands


def _smoothed(images: Images, axis: int, step: int) -> Images:
    """Return the mean of every pixel and those `step` before and behind it along an axis, with binomial weights."""
    padding = (step, step, 0, 0) if axis == 3 else (0, 0, step, step)
    padded = F.pad(images, padding, mode="replicate")
    length = images.shape[axis]
    before, middle, behind = (padded.narrow(axis, i * step, length) for i in range(3))
    return (before + behind) / 4 + middle / 2


def spectra(detail: Images) -> Spectra:
    """Return the power spectrum of every channel, and the cross-spectra of all pairs, at few frequencies.

    That is the Fourier transform of the correlations between pixels, of which those count less that are farther apart
    (Blackman and Tukey 1958). Of each frequency, the matrix of the channels is Hermitian without negative eigenvalues.
    """
    height, width = detail.shape[2:]
    padded = (height + REACH, width + REACH)  # else a lag would reach around the edge to the other side
    transformed = torch.fft.rfft2(detail, padded)
    products = transformed[:, :, None] * transformed[:, None].conj()
    correlations = torch.fft.irfft2(products, padded) / (height * width)
    lags = torch.arange(-REACH, REACH, device=detail.device)
    # A triangle is a box convolved with itself: its transform is a square, so that no eigenvalue becomes negative.
    weights = 1 - lags.abs().to(detail.dtype) / REACH
    near = correlations[..., lags[:, None] % padded[0], lags % padded[1]] * weights[:, None] * weights
    return torch.fft.fft2(torch.fft.ifftshift(near, (-2, -1))).permute(0, 3, 4, 1, 2)


def _transport(own: Spectra, wanted: Spectra) -> Spectra:
    """Return the map of every frequency: S^-1/2 (S^1/2 W S^1/2)^1/2 S^-1/2 brings the spectra S to W."""
    floor = FLOOR * torch.eye(own.shape[-1], dtype=own.dtype, device=own.device)
    root = _mapped(own + floor, torch.sqrt)
    inverse = _mapped(own + floor, torch.rsqrt)
    middle = _mapped(root @ (wanted + floor) @ root, torch.sqrt)
    return _mapped(inverse @ middle @ inverse, lambda gains: gains.clamp(max=MOST_GAIN))


def _mapped(matrices: Spectra, function: Callable[[Tensor], Tensor]) -> Spectra:
    """Return a function of Hermitian matrices, which is that of their eigenvalues."""
    # An image whose pixels are not finite makes numbers that are none: it must not end the step of the others.
    finite = torch.where(matrices.isfinite(), matrices, 0)
    values, vectors = torch.linalg.eigh((finite + finite.mH) / 2)
    # Rounding makes an eigenvalue of 0 negative now and then.
    mapped: Spectra = (vectors * function(values.clamp(min=torch.finfo(values.dtype).tiny))[..., None, :]) @ vectors.mH
    return mapped


def _filtered(detail: Images, transport: Spectra) -> Images:
    """Return by how much the maps of all frequencies change the detail; beyond the edge, it is as at the edge."""
    height, width = detail.shape[2:]
    change = transport - torch.eye(transport.shape[-1], dtype=transport.dtype, device=transport.device)
    kernels = torch.fft.ifft2(change, dim=(1, 2)).real.permute(0, 3, 4, 1, 2)  # [batch, to, from, lags, lags]
    padded = F.pad(detail, (REACH,) * 4, mode="replicate")
    size = (padded.shape[2], padded.shape[3])
    lags = torch.arange(-REACH, REACH, device=detail.device)
    spread = kernels.new_zeros((*kernels.shape[:3], *size))
    spread[..., lags[:, None] % size[0], lags % size[1]] = torch.fft.fftshift(kernels, (-2, -1))
    products = torch.fft.rfft2(spread) * torch.fft.rfft2(padded)[:, None]
    filtered = torch.fft.irfft2(products.sum(2), size)
    return filtered[..., REACH : REACH + height, REACH : REACH + width]


def strengths(bands: Sequence[Images]) -> list[Float[Tensor, "batch channels"]]:
    """Return the standard deviation of every channel of every band."""
    return [band.std((2, 3), correction=0) for band in bands]


def strengths_of_detail(images: Images) -> Float[Tensor, "batch bands"]:
    """Return the strength of every image's detail in every band, the root of the mean square over its channels."""
    return torch.stack([each.square().mean(1).sqrt() for each in strengths(detail_bands(images))], 1)


def pattern(images: Images, where: Bool[Tensor, "height width"]) -> Float[Tensor, "batch numbers"]:
    """Return numbers that tell the pattern of the detail in a part of every image.

    They are the logarithm of the power of every channel, in all and in every band, and the correlations between pixels
    of all channels at most `FARTHEST` rows and columns apart, in [-1, 1]. What is constant there has none.

    Args:
        images: The images.
        where: The pixels of this part, the same in every image.
    """
    bands = detail_bands(images)
    detail = torch.stack(bands).sum(0)
    powers = [_mean_there(each.square(), where) for each in (detail, *bands)]
    deviation = powers[0].sqrt()
    products = (deviation[:, :, None] * deviation[:, None]).clamp(min=TINY)
    numbers = [power.clamp(min=TINY).log() for power in powers]
    height, width = where.shape
    # With zeros around them, the products of pixels that do not both lie there add nothing.
    there = F.pad(detail * where, (FARTHEST, FARTHEST, 0, FARTHEST))
    is_there = F.pad(where.to(detail.dtype), (FARTHEST, FARTHEST, 0, FARTHEST))
    first = there[..., :height, FARTHEST : FARTHEST + width].flatten(2)
    for down, across in _lags():
        window = (slice(down, down + height), slice(FARTHEST + across, FARTHEST + across + width))
        pairs = (is_there[window] * where).sum().clamp(min=1)
        together = first @ there[..., *window].flatten(2).mT
        numbers.append((together / pairs / products).flatten(1))
    return torch.cat(numbers, 1)


def _lags() -> list[tuple[int, int]]:
    """Return rows down and columns across from one pixel to another; of two opposite ways, one says all."""
    every = [(down, across) for down in range(FARTHEST + 1) for across in range(-FARTHEST, FARTHEST + 1)]
    return [lag for lag in every if lag >= (0, 0)]


def _mean_there(values: Images, where: Bool[Tensor, "height width"]) -> Float[Tensor, "batch channels"]:
    return torch.einsum("bchw,hw->bc", values, where.to(values.dtype)) / where.sum()
