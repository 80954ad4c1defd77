"""The swaps of the evidence's place and of its size: an image's annotated thing takes either from another, its donor.

What such a swap moves is the reliance on where the thing lies, or on how large it appears: a scanner that centres one
class, a photographer who comes closer to another. It lies within the annotation, so that no swap of the surroundings
shows it. The thing is cut out with a margin, its place is painted over, and it is put where, or made as large as, the
donor's is. The surroundings stay what they are.
"""

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lrptrain.batch import Sample
from lrptrain.cues.boxes import Box, bounding_box
from lrptrain.intervention.images import Images, Pixels, dilate, inpainted
from lrptrain.intervention.regions import Region, pixels
from lrptrain.intervention.swap import default_margin

MOST_SCALE = 4.0
"""A thing is made no more than so many times as large, or as small: beyond, little of it would be left to be seen."""


def at_place_of(thing: Box, donor: Box, size: tuple[int, int]) -> Box:
    """Return the box of a thing with its middle where the donor's is, as far as it stays within the image.

    Args:
        thing: The box of the thing.
        donor: The box of the donor's thing.
        size: Height and width of the image.
    """
    down = (donor.top + donor.bottom - thing.top - thing.bottom) // 2
    across = (donor.left + donor.right - thing.left - thing.right) // 2
    return _within(Box(thing.top + down, thing.left + across, thing.bottom + down, thing.right + across), size)


def as_large_as(thing: Box, donor: Box, size: tuple[int, int]) -> Box:
    """Return the box of a thing with its middle and shape, and with the donor's area, as far as the image has room.

    Sides are whole pixels, so that shape and area are those that were asked for up to half a pixel of each.

    Args:
        thing: The box of the thing.
        donor: The box of the donor's thing.
        size: Height and width of the image.
    """
    scale = math.sqrt(donor.height * donor.width / (thing.height * thing.width))
    scale = min(max(scale, 1 / MOST_SCALE), MOST_SCALE, size[0] / thing.height, size[1] / thing.width)
    height = max(1, round(scale * thing.height))
    width = max(1, round(scale * thing.width))
    top = (thing.top + thing.bottom - height) // 2
    left = (thing.left + thing.right - width) // 2
    return _within(Box(top, left, top + height, left + width), size)


def _within(box: Box, size: tuple[int, int]) -> Box:
    """Return a box moved into the image."""
    top = min(max(box.top, 0), size[0] - box.height)
    left = min(max(box.left, 0), size[1] - box.width)
    return Box(top, left, top + box.height, left + box.width)


def swap_placement(
    images: Images, evidence: Pixels, donor_evidence: Pixels, placed: Callable[[Box, Box, tuple[int, int]], Box]
) -> Images:
    """Put the evidence of every image where, or make it as large as, that of its donor is.

    Args:
        images: The images to change; those without evidence, or with a donor without, stay as they are.
        evidence: Where their evidence lies.
        donor_evidence: Where that of their donors lies, in images of the same size.
        placed: `at_place_of` or `as_large_as`.
    """
    size = (images.shape[2], images.shape[3])
    # Masks seldom hold the very edge of a thing: what is left of it at its old place would still tell where it was.
    thing = dilate(evidence, default_margin(size))
    donor_thing = dilate(donor_evidence, default_margin(size))
    everything = Box(0, 0, *size)
    sources = [bounding_box(each) for each in thing]
    donors = [bounding_box(each) for each in donor_thing]
    targets = [
        placed(box, donor, size) if box is not None and donor is not None else None
        for box, donor in zip(sources, donors, strict=True)
    ]
    changed = _moved(images, thing, [box or everything for box in sources], [box or everything for box in targets])
    has_both = torch.tensor([box is not None for box in targets], device=images.device)
    return torch.where(has_both[:, None, None, None], changed, images)


def _moved(images: Images, thing: Pixels, sources: list[Box], targets: list[Box]) -> Images:
    """Return the images with their things painted over, and what lies in one box put into another."""
    # Coordinates in 16 bits would be off by pixels.
    values = images.to(torch.promote_types(images.dtype, torch.float32))
    grid = _origins(sources, targets, (images.shape[2], images.shape[3])).to(values)
    copied = F.grid_sample(values, grid, mode="bilinear", padding_mode="border", align_corners=False)
    covered = F.grid_sample(thing[:, None].to(values), grid, mode="nearest", padding_mode="zeros", align_corners=False)
    return torch.where(covered > 0.5, copied, inpainted(values, thing)).to(images.dtype)


def _origins(sources: list[Box], targets: list[Box], size: tuple[int, int]) -> Float[Tensor, "batch height width 2"]:
    """Return for each pixel which point of the image comes there, as `grid_sample` wants it: across, then down.

    Coordinates run from -1 at one edge of the image to 1 at the other.
    """
    source = torch.tensor(sources, dtype=torch.float64)
    target = torch.tensor(targets, dtype=torch.float64)

    def along(axis: int) -> Float[Tensor, "batch length"]:
        # e.g. rows: the middle of pixel i lies at i + 0.5, and comes from as far down in the source as in the target.
        middles = torch.arange(size[axis], dtype=torch.float64) + 0.5
        scale = (source[:, 2 + axis] - source[:, axis]) / (target[:, 2 + axis] - target[:, axis])
        points = source[:, axis, None] + (middles - target[:, axis, None]) * scale[:, None]
        return 2 * points / size[axis] - 1

    across = along(1)[:, None, :].expand(-1, size[0], -1)
    down = along(0)[:, :, None].expand(-1, -1, size[1])
    return torch.stack([across, down], 3)


def evidence_boxes(samples: Sequence[Sample], grid: tuple[int, int]) -> list[Box | None]:
    """Return the box of every image's evidence; None where nothing is annotated as such.

    Args:
        samples: Samples with images.
        grid: Rows and columns of the patches.
    """
    boxes: list[Box | None] = []
    for sample in samples:
        batch = {name: values[None] for name, values in sample.tensors.items()}
        boxes.append(bounding_box(pixels(Region("location"), batch, grid)[0]))
    return boxes
