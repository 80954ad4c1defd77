"""Refinements of seeds: functions `(images in 0..1, maps in 0..1) -> maps`, by name."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from lrptrain.relevance.types import unknown_name
from lrptrain.segmentation.config import REFINEMENTS
from lrptrain.segmentation.refinement.guided_filter import guided_filter
from lrptrain.segmentation.refinement.pixel_adaptive import pixel_adaptive

__all__ = ["Refinement", "guided_filter", "pixel_adaptive", "refinement"]

Refinement = Callable[[Tensor, Tensor], Tensor]
_BY_NAME: dict[str, Callable[..., Tensor]] = dict(zip(REFINEMENTS, (guided_filter, pixel_adaptive), strict=True))


def refinement(name: str, **options: Any) -> Refinement:
    """Return the refinement of a name, with its options.

    Returns:
        `refine(images, maps)`: images `[batch, 3, height, width]` in 0..1, maps `[batch, classes, height, width]`.

    Raises:
        ValueError: If the name or an option is unknown.
    """
    if name in ("attention_affinity", "dense_crf"):
        raise ValueError(f"{name} is no refinement any more; write pixel_adaptive")
    if name not in _BY_NAME:
        raise ValueError(unknown_name("refinement", name, REFINEMENTS))
    allowed = list(inspect.signature(_BY_NAME[name]).parameters)[2:]
    for option in sorted(set(options) - set(allowed)):
        raise ValueError(unknown_name(f"option of {name}", option, allowed))
    return partial(_BY_NAME[name], **options)
