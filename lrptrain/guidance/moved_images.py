"""The check of a step that moves the images of its batch: annotations would mark other places."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lrptrain.batch import IMAGES
from lrptrain.batch.in_place import in_place, turned
from lrptrain.guidance.voice import Voice

WAY_OUT = (
    "Augment images and masks together, in the dataset, or in Lightning's on_after_batch_transfer (torchvision's v2 "
    "transforms and tv_tensors do both)"
)


def check_in_place(batch: Mapping[str, Any], seen: Tensor, model: str, voice: Voice) -> None:
    """Reject a step that mirrors or turns the images of its batch; of other changes warn once.

    Args:
        batch: The batch, in the contract's form.
        seen: What the model is given.
        model: What the model is called.
        voice: Warns.

    Raises:
        ValueError: With the way out.
    """
    image = next((batch[name] for name in IMAGES if name in batch), None)
    if image is None or image.ndim != 4 or seen.ndim != 4:
        return
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
