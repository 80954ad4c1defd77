"""What the images of a class have in common at a place, drawn on other images: does the class's probability rise?

Objects differ from image to image, and average out; what is drawn at the same place in all of them stays, half
transparent or not (Dekel et al. 2017, "On the effectiveness of visible watermarks"). To take the place of one image
over instead would bring a part of its object along: in trials with ten classes of photographs, a quarter of an image,
from its middle, raised the class's probability by up to 32 points in clean models, and what its images have in common
there by no more than 3.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lrptrain.cues.painting import Images, inpainted
from lrptrain.intervention.statistics import ValueRange

FEWEST_IMAGES = 8
"""Of fewer images of a class, what they have in common is not known: their objects do not average out."""


def pictures_in_common(
    images: Sequence[Float[Tensor, "channels height width"]],
    labels: Int[np.ndarray, " n"],
    label: int,
    inside: Bool[Tensor, "height width"],
) -> dict[int, Float[Tensor, "channels height width"]]:
    """Return, for a class and every other one of enough images, what its images have in common at a place.

    It is by how much their mean differs from that of other images, less how much it does around the place: a sea or a
    sky reaches beyond it. No image of the class itself counts among the others of the other classes, or they would be
    told by what they lack.

    Args:
        images: All images, of one shape.
        labels: The class of each image.
        label: The class.
        inside: The place.

    Raises:
        ValueError: If the other images are of too few classes: of these, those of a third class are the control.
    """
    classes, counts = np.unique(labels, return_counts=True)
    others = [int(each) for each in classes[counts >= FEWEST_IMAGES] if each != label]
    if len(others) < 2:
        raise ValueError(f"fewer than two other classes have {FEWEST_IMAGES} of these samples")
    return {
        each: _in_common(images, labels == each, (labels != each) & (labels != label), inside)
        for each in (label, *others)
    }


def _in_common(
    images: Sequence[Float[Tensor, "channels height width"]],
    members: Bool[np.ndarray, " n"],
    others: Bool[np.ndarray, " n"],
    inside: Bool[Tensor, "height width"],
) -> Float[Tensor, "channels height width"]:
    """Return by how much the mean of members differs from that of others at a place, more than around it."""
    difference = (_mean(images, members) - _mean(images, others))[None]
    place = inside[None].to(difference.device)
    return torch.where(place, difference - inpainted(difference, place), 0.0)[0]


def _mean(
    images: Sequence[Float[Tensor, "channels height width"]], chosen: Bool[np.ndarray, " n"]
) -> Float[Tensor, "channels height width"]:
    """Return the mean of some images, of every pixel over those where it is a number."""
    total = torch.zeros_like(images[0], dtype=torch.float32)
    count = torch.zeros_like(total)
    for row in np.flatnonzero(chosen).tolist():  # one by one: stacked, they would be as much memory as all samples
        finite = images[row].isfinite()
        total += torch.where(finite, images[row].float(), 0.0)
        count += finite
    return total / count.clamp(min=1)


def drawn_at_random(
    pictures: Mapping[int, Float[Tensor, "channels height width"]],
    label: int,
    predicted: Int[np.ndarray, " batch"],
    draws: Sequence[float],
) -> Float[Tensor, "batch channels height width"]:
    """Return for every image the picture of a random third class: neither `label` nor the one it is read as.

    Args:
        pictures: What the images of each class have in common.
        label: The class whose picture is tested.
        predicted: The class that each image is read as.
        draws: A number in [0, 1) for every image.
    """
    chosen = []
    for answer, draw in zip(predicted.tolist(), draws, strict=True):
        thirds = [each for each in pictures if each not in (label, answer)]
        chosen.append(pictures[thirds[int(draw * len(thirds))]])
    return torch.stack(chosen)


def with_picture(images: Images, pictures: Float[Tensor, "batch channels height width"], valid: ValueRange) -> Images:
    """Return images with pictures drawn on them, within the values that pixels can have.

    Args:
        images: The images.
        pictures: What is added to each.
        valid: The values that pixels have in all images.
    """
    low, high = (bound.to(images.device, torch.float32)[:, None, None] for bound in valid)
    drawn = (images.float() + pictures.to(images.device)).clamp(low, high)
    return torch.where(pictures.to(images.device) != 0, drawn.to(images.dtype), images)
