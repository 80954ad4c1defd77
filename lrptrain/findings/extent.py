"""How far does a mark reach? What is suspected is a patch or two of it; it is taken away, or pasted, as a whole."""

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from lrptrain.batch import Sample
from lrptrain.findings.content import (
    SURE_EXPLAINED_VARIANCE,
    is_planted,
    is_same_picture,
    place_contents,
    sure_share,
)
from lrptrain.findings.evaluation import Evaluation
from lrptrain.findings.figures import belongs_to_objects
from lrptrain.intervention import Region
from lrptrain.cues.boxes import Box
from lrptrain.intervention.regions import images_of, pixels

MOST_OF_THE_IMAGE = 0.5
"""What would reach over a larger share of the image is no mark: it is left as it was suspected."""
MOST_PATCHES = 1 / 3
"""Where more of the patches hold all but the same picture in each class, the object itself looks the same in all of its
images, as printed letters do, or the ground does: none of them is a place that tells anything."""
STANDS_OUT = 2.0
USUAL = 0.9
"""A patch stands out if its share exceeds that which USUAL of all patches stay below this many times. Of drawn chests
with a letter in a corner, moved by a pixel, it is 0.14 to 0.22 there and 0.04 at most usually; of digits and clothes,
0.4 at most and 0.3 usually."""


class PlantedPatches:
    """Says of each patch whether the predicted class explains what it holds: its pixels, or their detail.

    The detail is how pixels differ from the patch's own mean. It shows what is half transparent, which on photographs
    of all colours hardly changes the pixels themselves. A patch is looked at once, and only if it is asked for.

    Args:
        samples: The samples with their images.
        grid: Rows and columns of the patches.
        predicted: The predicted class of each sample.
    """

    def __init__(self, samples: Sequence[Sample], grid: tuple[int, int], predicted: Int[np.ndarray, " n"]) -> None:
        self.samples = samples
        self.grid = grid
        self.predicted = predicted
        self._planted: dict[int, bool] = {}

    def __contains__(self, patch: int) -> bool:
        if patch not in self._planted:
            contents = place_contents(self.samples, Region("patches", (patch,)), self.grid)
            self._planted[patch] = contents is not None and self._look_at(patch, contents)
        return self._planted[patch]

    def _look_at(self, patch: int, contents: Float[Tensor, "n channels pixels"]) -> bool:
        detail = contents - contents.mean(2, keepdim=True)
        return any(is_planted(values.flatten(1).numpy(), self.predicted) for values in (contents, detail))


class MarkedPatches(PlantedPatches):
    """Says of each patch whether it holds a mark where objects are expected at every place.

    It has to hold all but the same picture within each class, whether by the labels or as predicted: of a model that
    reads a mark among other cues, many answers are not what the mark says. Or it lies at the very edge, and goes with
    the labels far more surely than other patches. What belongs to objects on a plain ground is no mark.

    Args:
        evaluation: An evaluation with inputs.
        grid: Rows and columns of the patches.
    """

    def __init__(self, evaluation: Evaluation, grid: tuple[int, int]) -> None:
        predicted = np.array([explained.predicted for explained in evaluation.samples])
        super().__init__(evaluation.inputs or (), grid, predicted)
        self.labels = evaluation.labels
        self.plain = evaluation.plain_ground

    def any_of(self, positions: Sequence[int]) -> bool:
        """Return whether one of some patches holds a mark, and no more than `MOST_PATCHES` of all patches do."""
        count = self.grid[0] * self.grid[1]
        return any(patch in self for patch in positions) and sum(each in self for each in range(count)) <= (
            MOST_PATCHES * count
        )

    def _look_at(self, patch: int, contents: Float[Tensor, "n channels pixels"]) -> bool:
        if self.plain is not None:
            image = images_of(self.samples[:1])[0]
            inside = pixels(Region("patches", (patch,)), {"image": image[None]}, self.grid)[0]
            if belongs_to_objects(self.plain, inside.cpu().numpy()):
                return False
        same = any(is_same_picture(contents.numpy(), classes) for classes in (self.labels, self.predicted))
        return same or self._stands_out(patch)

    def _stands_out(self, patch: int) -> bool:
        """Return whether a patch at the very edge goes with the classes far more surely than places elsewhere do."""
        row, column = divmod(patch, self.grid[1])
        at_the_edge = row in (0, self.grid[0] - 1) or column in (0, self.grid[1] - 1)
        if not at_the_edge:
            return False
        usual = float(np.quantile(self._sure_shares, USUAL))
        return bool(self._sure_shares[patch] >= max(SURE_EXPLAINED_VARIANCE, STANDS_OUT * usual))

    @cached_property
    def _sure_shares(self) -> Float[np.ndarray, " patches"]:
        """The lower end of the share of each patch's variance that the labels explain; 0 where there is none."""
        shares = np.zeros(self.grid[0] * self.grid[1])
        for patch in range(len(shares)):
            contents = place_contents(self.samples, Region("patches", (patch,)), self.grid)
            if contents is not None:
                shares[patch] = sure_share(contents.flatten(1).numpy(), self.labels)
        return np.nan_to_num(shares)


def reached_patches(positions: Sequence[int], planted: PlantedPatches) -> tuple[int, ...]:
    """Return positions together with all patches that go on with what is planted there, as the letters of a watermark.

    A patch belongs to it if it touches a patch that does, diagonally too, and something is planted in it.

    Args:
        positions: Indices of patches, row by row.
        planted: Where something is planted.

    Returns:
        The indices in ascending order; the positions alone where the images differ in size, or where it would be no
        mark any more.
    """
    grid = planted.grid
    reached = set(positions)
    seen = set(positions)
    waiting = list(positions)
    while waiting:
        for patch in _neighbours(waiting.pop(), grid):
            if patch in seen:
                continue
            seen.add(patch)
            if patch in planted:
                reached.add(patch)
                waiting.append(patch)
        if len(reached) > MOST_OF_THE_IMAGE * grid[0] * grid[1]:
            return tuple(sorted(positions))
    return tuple(sorted(reached))


def _neighbours(patch: int, grid: tuple[int, int]) -> Iterator[int]:
    """Yield the up to eight patches that touch one."""
    row, column = divmod(patch, grid[1])
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            inside = 0 <= row + down < grid[0] and 0 <= column + right < grid[1]
            if inside and (down or right):
                yield (row + down) * grid[1] + column + right


def reached_box(
    images: Float[Tensor, "n channels height width"],
    source: int,
    piece: Box,
    members: Int[np.ndarray, " members"],
    corners: Int[np.ndarray, "members 2"],
    others: Int[np.ndarray, " others"],
    tolerance: float,
    least_lead: float,
) -> Box:
    """Return how far the picture around a piece is the same in all images that have the piece.

    The images are laid over each other at their pieces. Where a piece of the same size, next to one that belongs to the
    mark, agrees with the source in most members and in few other images, the mark goes on. Where other images agree as
    well, as on a black ground, it is no part of it.

    Args:
        images: The images.
        source: The image that the piece is taken from.
        piece: Where it lies there.
        members: The images that have it.
        corners: Row and column at which each of them has it.
        others: Images of other classes.
        tolerance: Up to which root mean square difference two pieces are the same picture.
        least_lead: By how much the share of the members that agree must exceed that of the others, in (0, 1).

    Returns:
        The box around all that belongs to the mark; the piece itself where that would be no mark any more.
    """
    side = piece.bottom - piece.top
    height, width = images.shape[2:]
    shifts = corners - np.array([piece.top, piece.left])
    # Others have no piece to be laid over: they take the members' shifts in turn.
    lent = shifts[np.arange(len(others)) % len(shifts)]
    in_members = _share_alike(_distances(images, source, members, shifts, side), tolerance)
    in_others = _share_alike(_distances(images, source, others, lent, side), tolerance)
    top, left = _connected(in_members - in_others >= least_lead, (piece.top, piece.left), side)
    mark = Box(int(top.min()), int(left.min()), int(top.max()) + side, int(left.max()) + side)
    area = (mark.bottom - mark.top) * (mark.right - mark.left)
    return mark if area <= MOST_OF_THE_IMAGE * height * width else piece


def _distances(
    images: Float[Tensor, "n channels height width"],
    source: int,
    rows: Int[np.ndarray, " rows"],
    shifts: Int[np.ndarray, "rows 2"],
    side: int,
) -> Float[Tensor, "rows down across"]:
    """Return how far each image, shifted, is from the source at every piece; nan where it has no such piece.

    Args:
        images: The images.
        source: The image that the others are laid over.
        rows: The others.
        shifts: By how many rows and columns each of them is moved up and left.
        side: The rows and columns of a piece.
    """
    height, width = images.shape[2:]
    distances = images.new_full((len(rows), height - side + 1, width - side + 1), float("nan"))
    for number, (row, (down, across)) in enumerate(zip(rows.tolist(), shifts.tolist(), strict=True)):
        # Of the source, what the shifted image covers: e.g. moved up by 2, its rows 2 to the last lie over 0 to ...
        top = max(0, -down)
        left = max(0, -across)
        bottom = min(height, height - down)
        right = min(width, width - across)
        if bottom - top < side or right - left < side:
            continue
        covered = images[source, :, top:bottom, left:right]
        other = images[row, :, top + down : bottom + down, left + across : right + across]
        squares = F.avg_pool2d((covered - other).square().mean(0)[None], side, 1)[0]
        distances[number, top : bottom - side + 1, left : right - side + 1] = squares.sqrt()
    return distances


def _share_alike(distances: Float[Tensor, "rows down across"], tolerance: float) -> Float[Tensor, "down across"]:
    """Return in which share of the images that have a piece there it is the same; nan where hardly any has."""
    compared = (~distances.isnan()).sum(0)
    share = (distances <= tolerance).sum(0) / compared.clamp(min=1)
    return torch.where(compared >= len(distances) / 2, share, float("nan"))


def _connected(belongs: Bool[Tensor, "down across"], start: tuple[int, int], reach: int) -> tuple[Tensor, Tensor]:
    """Return rows and columns of what is connected with a start, over gaps of fewer than `reach`; the start at least.

    Args:
        belongs: What may be a part of it.
        start: Row and column of the start.
        reach: Two parts are connected if they lie so near to each other, in both directions.
    """
    component = torch.zeros_like(belongs)
    component[start] = True
    while True:
        near = F.max_pool2d(component[None, None].float(), 2 * reach + 1, 1, reach)[0, 0] > 0
        grown = component | (near & belongs)
        if bool((grown == component).all()):
            rows, columns = component.nonzero(as_tuple=True)
            return rows, columns
        component = grown
