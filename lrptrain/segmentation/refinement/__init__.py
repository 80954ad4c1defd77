"""Refinements of seeds: functions `(images in 0..1, maps in 0..1) -> maps`, by name."""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from lrptrain.relevance.types import unknown_name
from lrptrain.segmentation.config import REFINEMENTS
from lrptrain.segmentation.refinement.attention_affinity import attention_affinity
from lrptrain.segmentation.refinement.guided_filter import guided_filter
from lrptrain.segmentation.refinement.pixel_adaptive import pixel_adaptive

__all__ = ["Refinement", "attention_affinity", "guided_filter", "pixel_adaptive", "refinement", "refinements"]

Refinement = Callable[[Tensor, Tensor], Tensor]
_BY_NAME: dict[str, Callable[..., Tensor]] = dict(
    zip(REFINEMENTS, (attention_affinity, guided_filter, pixel_adaptive), strict=True)
)
# Parameters that `refinement` or its caller fills: a config cannot set them as options.
_NOT_OPTIONS = {"images", "maps", "model", "mean", "std"}


def refinements() -> tuple[str, ...]:
    """Return the names of all refinements."""
    return tuple(_BY_NAME)


def refinement(
    name: str,
    model: nn.Module | None = None,
    mean: Sequence[float] = (0.0, 0.0, 0.0),
    std: Sequence[float] = (1.0, 1.0, 1.0),
    **options: Any,
) -> Refinement:
    """Return the refinement of a name, with its options.

    Args:
        name: One of `refinements()`.
        model: The classifier, for refinements that read its attention.
        mean: The mean of each channel, which is subtracted from images in 0..1 before the model sees them.
        std: The standard deviation of each channel, by which the difference is divided.
        **options: Options of the refinement.

    Returns:
        `refine(images, maps)`: images `[batch, 3, height, width]` in 0..1, maps `[batch, classes, height, width]`.

    Raises:
        ValueError: If the name or an option is unknown, or the model is missing.
    """
    if name == "dense_crf":
        raise ValueError("dense_crf is no refinement any more; use pixel_adaptive, which needs no compiler")
    if name not in _BY_NAME:
        raise ValueError(unknown_name("refinement", name, refinements()))
    function = _BY_NAME[name]
    parameters = inspect.signature(function).parameters
    allowed = [option for option in parameters if option not in _NOT_OPTIONS]
    for option in sorted(set(options) - set(allowed)):
        raise ValueError(unknown_name(f"option of {name}", option, allowed))
    if "model" not in parameters:
        return partial(function, **options)
    if model is None:
        raise ValueError(f"{name} reads the attention of a model: pass model=...")
    return partial(function, model=model, mean=mean, std=std, **options)
