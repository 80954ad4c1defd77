"""Figures on a plain ground, as in line drawings, scans of digits, or photographs of products that are cut out.

Where the ground is of one colour, all that differs from it is the object, or a mark beside it. So the images themselves
show what no map can: which pixels belong to one figure.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy import ndimage
from torch import Tensor

from lrptrain.cues.boxes import Box
from lrptrain.intervention.edges import along_edges

LEVELS = 16
"""The commonest colour is looked for among so many levels of each channel."""
SIDE = 64
"""Among the pixels of a grid of about so many rows and columns."""
CHANNELS = 8
"""Of more channels than these, the first ones tell which pixels have one colour."""
TOLERANCE = 0.02
"""A pixel is of the ground if no channel differs from it by more than this part of the range of pixels."""
OUTLIERS = 0.01
"""The range leaves out so many of the pixels at either end: a few that are far brighter than all others, as metal is in
a scan, would make all else one ground."""
PLAIN_FROM = 0.45
"""The ground is plain if it takes up so much of an image, in the median of all. Of scanned digits it is 0.83, of
clothes 0.52, of drawn cells with noise 0.28, of photographs of things, pets and birds 0.07 at most."""
MOSTLY_INSIDE = 0.8
"""A mark has so much of its figure inside of its box; a piece of a stroke has not."""
MOST_OF_A_PLACE = 0.5
"""A place belongs to the objects if more of the figures there are theirs."""
LEAST_AT_THE_EDGES = 0.05
"""Objects reach the edges if they cover more than this part of them."""
MIDDLE = 0.6
"""How far the middle of an image reaches towards its edges: where objects lie."""
TOUCHING = np.ones((3, 3), int)
"""Pixels that touch at a corner belong to one figure, too."""


class PlainGround(NamedTuple):
    """Images with figures on a plain ground.

    Attributes:
        ground: The colour of each image's ground, in the units of its pixels.
        figure: Where each image shows something else.
        objects: Where it shows figures of which a part lies in the middle.
    """

    ground: Float[Tensor, "n channels"]
    figure: Bool[np.ndarray, "n height width"]
    objects: Bool[np.ndarray, "n height width"]


def plain_ground(images: Sequence[Float[Tensor, "channels height width"]]) -> PlainGround | None:
    """Return the ground and the figures of images; None unless most of them have a plain ground, and all one shape."""
    if len({image.shape for image in images}) != 1:
        return None
    low, spread = _usual_range(images)
    if not 0 < spread < float("inf"):  # images of one colour, or of nan
        return None
    # One by one: all images in 32 bits are hundreds of megabytes.
    grounds = []
    figures = []
    for image in images:
        pixels = image.detach().cpu().float()
        ground = _commonest_colour(pixels, low, spread)
        grounds.append(ground)
        figures.append(((pixels - ground[:, None, None]).abs() > TOLERANCE * spread).any(0).numpy())
    figure = np.stack(figures)
    plain = bool(np.median(1 - figure.mean((1, 2))) >= PLAIN_FROM)
    return PlainGround(torch.stack(grounds), figure, np.stack([*_through_the_middle(figure)])) if plain else None


def _usual_range(images: Sequence[Float[Tensor, "channels height width"]]) -> tuple[float, float]:
    """Return the least value of pixels and how far they reach beyond it, without `OUTLIERS`."""
    values = np.concatenate([_on_a_grid(image).flatten().detach().cpu().float().numpy() for image in images])
    low, high = np.quantile(values, [OUTLIERS, 1 - OUTLIERS])
    # Of thin strokes all may be outliers.
    return (float(low), float(high - low)) if high > low else (float(values.min()), float(np.ptp(values)))


def _on_a_grid(image: Float[Tensor, "channels height width"]) -> Float[Tensor, "channels rows columns"]:
    step = max(1, min(image.shape[1:]) // SIDE)
    return image[:, ::step, ::step]


def colours(
    images: Sequence[Float[Tensor, "channels height width"]], plain: PlainGround
) -> Float[np.ndarray, "n numbers"]:
    """Return the colour of the ground of every image, and the median one of its figure; without one, the ground's."""
    rows = []
    for image, ground, figure in zip(images, plain.ground, plain.figure, strict=True):
        shown = image.detach().cpu().float()[:, torch.from_numpy(figure)]
        rows.append(torch.cat([ground, shown.median(1).values if figure.any() else ground]))
    return torch.stack(rows).double().numpy()


def _commonest_colour(
    image: Float[Tensor, "channels height width"], low: float, spread: float
) -> Float[Tensor, " channels"]:
    """Return the median colour of the pixels whose levels are the commonest in the image."""
    colours = _on_a_grid(image).flatten(1)  # [channels, pixels]
    levels = ((colours[:CHANNELS] - low) / spread * LEVELS).long().clamp(0, LEVELS)
    _, group, count = np.unique(_number(levels).numpy(), return_inverse=True, return_counts=True)
    return colours[:, torch.from_numpy(group == count.argmax())].median(1).values


def _number(levels: Int[Tensor, "channels pixels"]) -> Int[Tensor, " pixels"]:
    """Return a number for every combination of levels, which are 0 to `LEVELS`."""
    place = (LEVELS + 1) ** torch.arange(len(levels))
    return (levels * place[:, None]).sum(0)


def goes_on_beyond(figure: Bool[np.ndarray, "height width"], box: Box) -> bool:
    """Return whether most of what a box holds of figures goes on outside of it: a piece of a stroke, no mark.

    Args:
        figure: Where an image shows something other than its ground.
        box: A part of the image.
    """
    parts, _ = ndimage.label(figure, TOUCHING)
    held = np.bincount(parts[box.top : box.bottom, box.left : box.right].ravel(), minlength=int(parts.max()) + 1)
    whole = np.bincount(parts.ravel(), minlength=len(held))
    held[0] = 0  # the ground
    if not held.any():
        return False
    largest = int(held.argmax())
    return bool(held[largest] < MOSTLY_INSIDE * whole[largest])


def objects_reach_the_edges(plain: PlainGround) -> bool:
    """Return whether most of what lies along the edges of images belongs to their objects, and whether that is much."""
    edges = along_edges((plain.figure.shape[1], plain.figure.shape[2])).numpy()
    area = int(edges.sum()) * len(plain.figure)
    return belongs_to_objects(plain, edges) and int(plain.objects[:, edges].sum()) > LEAST_AT_THE_EDGES * area


def belongs_to_objects(plain: PlainGround, inside: Bool[np.ndarray, "height width"]) -> bool:
    """Return whether most of what a place holds, in all images together, belongs to their objects.

    Args:
        plain: The images' figures.
        inside: The pixels of the place.
    """
    return int(plain.objects[:, inside].sum()) > MOST_OF_A_PLACE * int(plain.figure[:, inside].sum())


def _middle(side: int) -> slice:
    return slice(round((1 - MIDDLE) / 2 * side), round((1 + MIDDLE) / 2 * side))


def _through_the_middle(figure: Bool[np.ndarray, "n height width"]) -> Iterator[Bool[np.ndarray, "height width"]]:
    """Yield, of each image, the pixels of all figures of which a part lies in the middle."""
    middle = np.zeros(figure.shape[1:], bool)
    height, width = figure.shape[1:]
    middle[_middle(height), _middle(width)] = True
    for image in figure:
        parts, count = ndimage.label(image, TOUCHING)
        is_in_the_middle = np.bincount(parts[middle], minlength=count + 1) > 0
        is_in_the_middle[0] = False
        yield is_in_the_middle[parts]
