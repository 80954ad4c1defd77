"""The evidence of a batch, brought to the images that the user's step gives the model."""

from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from jaxtyping import Shaped
from torch import Tensor

from lrptrain.batch import IMAGES
from lrptrain.batch.in_place import in_place, turned
from lrptrain.guidance.state import Voice

WAY_OUT = (
    "Augment images and masks together, in the dataset, or in Lightning's on_after_batch_transfer (torchvision's v2 "
    "transforms and tv_tensors do both)"
)


def matched_evidence(columns: Mapping[str, Any], seen: Tensor, model: str, voice: Voice) -> Shaped[Tensor, "batch ..."]:
    """Return the evidence in the size in which the step gives the model its images.

    Args:
        columns: The batch, in the contract's form, with its evidence.
        seen: What the model is given.
        model: What the model is called.
        voice: Warns once of a step that changes images otherwise.

    Raises:
        ValueError: If the step mirrors or turns images, and annotations would mark other places.
    """
    evidence: Tensor = columns["evidence"]
    image = next((columns[name] for name in IMAGES if name in columns), None)
    if image is None or image.ndim != 4 or seen.ndim != 4:
        return evidence
    if columns.keys() & {"mask", "boxes"}:
        _check_in_place(image, seen, model, voice)
    if seen.shape[2:] == image.shape[2:] or evidence.ndim != 3 or evidence.shape[1:] != image.shape[2:]:
        return evidence
    return F.interpolate(evidence[:, None].float(), seen.shape[2:], mode="nearest-exact")[:, 0].to(evidence.dtype)


def _check_in_place(image: Tensor, seen: Tensor, model: str, voice: Voice) -> None:
    there = in_place(seen, image)
    if there.all():
        return
    number = int((turned(seen, image) & ~there).sum())
    if number:
        raise ValueError(
            f"the training step gives {model} other images than its batch holds: {number} of {len(seen)} are flipped "
            f"or turned, and the annotations are not. {WAY_OUT}"
        )
    voice.warn_once(
        f"the training step gives {model} other images than its batch holds ({int((~there).sum())} of {len(seen)}). If "
        f"it crops, shifts or turns them, their annotations mark the wrong places. {WAY_OUT}",
        "other images",
    )
