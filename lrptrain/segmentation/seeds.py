"""Seeds of a segmentation: relevance maps of the classes that an image is known to show."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lrptrain.relevance import UnsupportedModelError, attribute
from lrptrain.relevance.default import check_method
from lrptrain.relevance.model.preserve import unwrap
from lrptrain.relevance.propagation.propagator import at_least_float32
from lrptrain.segmentation.config import CHUNK, SCALES
from lrptrain.segmentation.sizes import any_size, native_size, patch_size, scaled_size


def seed_maps(
    model: nn.Module,
    images: Float[Tensor, "batch 3 height width"],
    present: Bool[Tensor, "batch some"],
    method: str | None = None,
    options: Mapping[str, Any] | None = None,
    scales: Sequence[float] = SCALES,
    flip: bool = True,
    chunk: int = CHUNK,
    classes: Int[Tensor, " some"] | None = None,
) -> Float[Tensor, "batch some height width"]:
    """Return relevance maps of the present classes of every image, at the images' size.

    An image is brought to every scale (in whole patches) and, with `flip`, mirrored. The positive relevance of each
    view is divided by its maximum and brought back to the image's size; so is the mean of the views (Ahn & Kwak 2018).

    Args:
        model: As `lrptrain.attribute` takes it, in evaluation mode.
        images: Images, normalised as the model expects.
        present: Whether each image shows each class.
        method: One of `lrptrain.methods()`, or None, as in `lrptrain.attribute`.
        options: Options of the method.
        scales: Factors by which images are resized.
        flip: Whether mirror images are averaged in.
        chunk: The number of maps in one forward pass: memory grows with it, and not with the number of maps beyond it.
        classes: The classes of the columns of `present`, where they are some of many; None for 0, 1, ...

    Returns:
        Maps in 0..1 with a maximum of 1; 0 for absent classes, and where no relevance is positive and finite.

    Raises:
        ValueError: If shapes do not fit, a scale or `chunk` is not positive.
        UnsupportedModelError: If the model does not take images of the scaled sizes.
    """
    if present.dtype != torch.bool or present.ndim != 2 or len(present) != len(images):
        raise ValueError(
            f"present must be bool of shape [{len(images)}, classes], not {present.dtype} of {list(present.shape)}"
        )
    if not scales or min(scales) <= 0 or chunk < 1:
        raise ValueError(f"scales must be positive numbers and chunk at least 1, not {tuple(scales)} and {chunk}")
    model, size, options = unwrap(model), images.shape[-2:], dict(options or {})
    # An unknown method or option is refused before anything is computed.
    check_method(method, options)
    # present [[1, 0], [1, 1]] gives rows [0, 1, 1] and columns [0, 0, 1]: a map for each pair.
    pairs = present.nonzero()
    maps = at_least_float32(images).new_zeros(*present.shape, *size)
    with torch.no_grad():
        for rows, columns in (part.unbind(1) for part in pairs.split(chunk) if len(part)):
            targets = columns if classes is None else classes[columns]
            for view, mirrored in _views(model, images[rows], scales, flip):
                try:
                    scores = _positive(model, view, targets, method, options)
                except Exception as error:
                    if view.shape[-2:] == size:
                        raise
                    raise UnsupportedModelError(
                        f"the model does not take images of {' x '.join(map(str, view.shape[-2:]))} pixels: pass "
                        "images of its own size, and scales=(1,)"
                    ) from error
                # Resized before it is mirrored back: a view has its own number of patches.
                resized = F.interpolate(scores[:, None], size, mode="bilinear", align_corners=False)[:, 0]
                maps[rows, columns] += resized.flip(-1) if mirrored else resized
        # The sum over views, scaled to a maximum of 1, is the same as their scaled mean.
        return unit(maps)


def unit(maps: Float[Tensor, "*maps height width"]) -> Float[Tensor, "*maps height width"]:
    """Return each map divided by its maximum; maps of 0 stay 0."""
    top = maps.amax((-2, -1), keepdim=True)
    return torch.where(top > 0, maps / top, 0.0)


def _views(
    model: nn.Module, images: Float[Tensor, "batch 3 height width"], scales: Sequence[float], flip: bool
) -> Iterator[tuple[Tensor, bool]]:
    """Yield the images at every scale and, with `flip`, their mirror images, and whether they are mirrored."""
    patch, own = patch_size(model), (images.shape[-2], images.shape[-1])
    for scale in scales:
        is_native = scale == 1 and own == native_size(model)  # whatever its patches are
        size = own if is_native else scaled_size(own, scale, patch)
        view = F.interpolate(images, size, mode="bilinear", align_corners=False) if size != own else images
        yield view, False
        if flip:
            yield view.flip(-1), True


def _positive(
    model: nn.Module, images: Tensor, classes: Tensor, method: str | None, options: Mapping[str, Any]
) -> Float[Tensor, "batch rows columns"]:
    is_native = tuple(images.shape[-2:]) == native_size(model)
    with nullcontext() if is_native else any_size(model):
        relevance = attribute(model, images, classes, method, **options)
    if relevance.grid is None:
        raise UnsupportedModelError("seeds are made of images: the model takes no patches")
    # clamp leaves nan and +inf; they become 0, so that one bad value does not scale all others to 0.
    return unit(relevance.scores.clamp(min=0).nan_to_num(0.0, 0.0, 0.0).unflatten(1, relevance.grid))
