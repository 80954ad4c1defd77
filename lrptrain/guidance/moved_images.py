"""The check of a step that moves the images of its batch: annotations would mark other places."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lrptrain.batch import IMAGES
from lrptrain.guidance.places import displaced_samples, moved_samples
from lrptrain.guidance.voice import Voice

MOVED_SHARE = 0.25
"""Of the images that can be compared: from this share on, those that the model sees moved end the run."""
BATCHES_LOOKED_UP = 3
"""In so many guided batches at first, patches of what the model sees are looked up in the images of the batch."""
SAMPLES_LOOKED_UP = 16
"""And in so many samples of each of them."""


class MovedImages:
    """Compares what a model is given with the images of the batch, thoroughly in the first batches.

    Args:
        voice: Warns of images that are not found again.
    """

    def __init__(self, voice: Voice) -> None:
        self._voice = voice
        self.start_over()

    def start_over(self) -> None:
        """Forget the batches of an earlier training."""
        self._looked_up = 0

    def check(self, batch: Mapping[str, Any], seen: Tensor, model: str) -> None:
        """Reject a step that moves the pixels of its batch.

        Args:
            batch: The batch, in the contract's form.
            seen: What the model is given.
            model: What the model is called.

        Raises:
            ValueError: With the way out.
        """
        image = next((batch[name] for name in IMAGES if name in batch), None)
        if image is None or image.ndim != 4 or seen.ndim != 4:
            return
        moved = self._how_many(seen, image, model)
        if moved:
            raise ValueError(
                f"the training step gives {model} other images than its batch holds: {moved} are flipped, cropped or "
                "otherwise moved, and the annotations are not. Augment images and masks together, in the dataset, or "
                "in Lightning's on_after_batch_transfer (torchvision's v2 transforms and tv_tensors do both)"
            )

    def _how_many(self, seen: Tensor, image: Tensor, model: str) -> str:
        """Return how many images of the batch the model sees moved, if these are more than a few odd ones."""
        moved, telling = moved_samples(seen, image)
        # One odd image is no sign of an augmentation; one that flips each image with a chance of a half moves many.
        if int(moved.sum()) >= max(2, MOVED_SHARE * int(telling.sum())):
            return f"{int(moved.sum())} of {len(moved)}"
        if self._looked_up >= BATCHES_LOOKED_UP:
            return ""
        self._looked_up += 1
        displaced, unmatched = displaced_samples(seen[:SAMPLES_LOOKED_UP], image[:SAMPLES_LOOKED_UP])
        if int(displaced.sum()) >= max(2.0, MOVED_SHARE * len(displaced)):
            return f"{int(displaced.sum())} of {len(displaced)}"
        if int(unmatched.sum()) >= max(2.0, len(unmatched) / 2):
            self._voice.warn_once(
                f"in {int(unmatched.sum())} of {len(unmatched)} images, nothing of what the batch holds is found in "
                f"what {model} is given. If the training step crops or turns them, their annotations mark the wrong "
                "places: augment images and masks together",
                "unmatched",
            )
        return ""
