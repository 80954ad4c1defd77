"""Is the relevance on a small mark that looks the same wherever it lies: a dot, a tag, a sticker in random places?"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lrptrain.batch import Sample
from lrptrain.batch.parts import InputPart, MarkPicture
from lrptrain.findings.detector import Candidate, DetectionConfig, Detector, register_detector
from lrptrain.findings.detectors.positions import lies_in_the_middle
from lrptrain.findings.detectors.shares import high_share_finding
from lrptrain.findings.detectors.unlocated import evenly
from lrptrain.findings.evaluation import Evaluation
from lrptrain.findings.extent import reached_box
from lrptrain.findings.figures import goes_on_beyond
from lrptrain.findings.finding import Finding
from lrptrain.findings.halves import judging, suspecting
from lrptrain.findings.scopes import Scope
from lrptrain.intervention import Region
from lrptrain.cues.boxes import Box
from lrptrain.intervention.pieces import CELL, SIDE, TOLERANCE, Reduced, factors, places_of, reduced, within
from lrptrain.intervention.regions import images_of

PEAKS = 2
"""Pieces are taken at so many of the most relevant patches of every image."""
MIN_LEAD = 0.5
"""A piece is suspect if it is in so much larger a share of its class's images than of the others. In development runs,
planted dots have 0.8 and more in three of four classes, and 1.0 in three of five of other images; of clean photographs
of two to ten classes, 32 to 128 of them, the best piece has up to 0.44, and 0.55 in a class of few images. Such a piece
is suspected, and was refuted when it was pasted: the bound spares tests, and does not decide."""
MIN_LEAD_OF_SMALL = 0.7
"""The same of a piece of half the size, of which more are alike by chance. Of a dot of 4 of 48 pixels, the pieces lead
by 0.8 and more in most classes (experiments/detection)."""
MIN_LEAD_AT_PEAKS = 0.25
"""It is looked for all over the images if it is in so much larger a share of its class's, near the most relevant
patches alone: of a wide mark, each image is read at another part."""
MIN_MEMBERS = 5
MOST_AT_ONE_PATCH = 0.5
"""A larger share of the matches at one patch is a fixed place, which another kind of finding says."""
MOSTLY_IN_THE_MIDDLE = 2 / 3
"""A mark that lies there in a larger share of its images may be printed on the object. Of marks all over the images a
bit less than a half do: with a half as the bound, a few more by chance would make them a matter of judgement.
"""
LEAST_EFFECT_IN_THE_MIDDLE = 0.3
"""The least mean change of a probability that confirms a mark by taking it away where it may be a part of an object."""
ABOUT_THERE = 1 / 8
"""Where objects lie alike, a part of them is never farther from its usual place than by this part of the sides of an
image, but for less than half of the images; a mark anywhere is, in most."""
PIECE_OF_FIGURES = 0.75
"""On a plain ground, what goes on beyond the mark in so large a share of its images is a piece of a larger figure. A
dot anywhere lies on the object in half of them or fewer."""
MOST_SOURCES = 64
"""Pieces of so many images at most, as many of each class, are compared with those of all images."""
MOST_MARKS = 4
MOST_JUDGES = 48
"""So many marks at most are pasted into so many images each: every one takes two forward passes. With 16, the mark of
one class of ten, which moves others' answers by 15 points in the mean and most of them by nothing, was not told from
chance. Where nothing moves, the first half of them ends it."""


class MarkAnywhere(Detector):
    """The relevance lies on a small piece that is nearly the same picture in the images of a predicted class.

    An object's own parts are read wherever they lie, too, but no two of them are the same picture. Pasted into images
    that are read as other classes, the piece has to take the answer away from their class, and further than another
    piece of the same image does: so it is chosen by the images of its class, and judged in none of them. From
    `SPLIT_FROM` samples on, one half suspects and the other half judges. The piece is as large as the picture around it
    is the same in these images: a word of several letters is pasted as a whole.

    Where objects lie alike, or on a plain ground, what always lies about there, and a piece of a larger figure, is no
    mark: strokes of digits look the same in many of them.

    Where it lies in the middle of two thirds of its images, it may be printed on the object, as a logo is: for a person
    to judge. What lies at their edges, or all over them, is a fault.
    """

    kind = "mark_anywhere"
    title = "The relevance lies on a small mark, wherever it is"
    order = 55
    least_effect = 0.1
    reported_unconfirmed = False
    verb = "reads"

    def place(self, finding: Finding) -> str:
        """Return what the model reads, as a noun."""
        return "a small mark, wherever it lies"

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return the marks of predicted classes, if no sample has an annotation: with those, others know more."""
        grid = evaluation.grid
        annotated = any(explained.annotated is not None for explained in evaluation.samples)
        if grid is None or evaluation.inputs is None or annotated:
            return
        images = _stacked(evaluation.inputs)
        if images is None:
            return
        predicted = np.array([explained.predicted for explained in evaluation.samples])
        shares = evaluation.shares
        everyone = np.arange(len(predicted))
        suspects = suspecting(everyone)
        suspects = suspects[~np.isnan(shares[suspects]).any(1)]
        marks = find_marks(images[suspects], torch.from_numpy(shares[suspects]), grid, predicted[suspects])
        if evaluation.any_place_may_hold_objects:
            plain = evaluation.plain_ground
            figures = None if plain is None else plain.figure[suspects]
            marks = [mark for mark in marks if not _is_part_of_objects(mark, images[suspects], figures, grid)]
        for mark in marks[:MOST_MARKS]:
            judges = judging(everyone)
            others = judges[predicted[judges] != mark.predicted]
            rows = suspects[mark.members]
            finding = high_share_finding(
                self,
                evaluation,
                config,
                Scope("class", config.class_names[mark.predicted]),
                f"a mark of {mark.box.bottom - mark.box.top} x {mark.box.right - mark.box.left} pixels",
                rows,
                (shares[rows] * mark.covered).sum(1),
                reference=float(mark.covered.mean()),
            )
            finding = replace(finding, may_be_evidence=lies_in_the_middle(mark.patches, grid, MOSTLY_IN_THE_MIDDLE))
            source = images[suspects[mark.image]][None]
            named = f"{finding.where} in {finding.scope}"
            seen = picture_of(mark, torch.cat([source, images[suspects]]), grid)
            finding = replace(finding, part=InputPart("mark", named, mark=seen))
            region = Region("mark", (int(suspects[mark.image]), *mark.box))
            yield Candidate(finding, region, others[evenly(len(others), MOST_JUDGES)])
            members = judges[predicted[judges] == mark.predicted]
            boxes = mark_in(images[members], images[suspects[mark.image]], mark, grid)
            if any(boxes):
                everywhere: list[Box | None] = [None] * len(predicted)
                for row, box in zip(members, boxes, strict=True):
                    everywhere[row] = box
                has_it = np.array([box is not None for box in boxes])
                taken_away = Region("boxes", boxes=tuple(everywhere))
                yield Candidate(replace(finding, kind=MarkOfClass.kind), taken_away, members[has_it])


class MarkOfClass(MarkAnywhere):
    """The same mark, taken away from the images of its class that have it.

    Where one class of several is marked, the mark seldom outweighs what speaks for another class in an image of that
    one, though the answers for its own class rest on it: pasted at random places it moved the answers of such models by
    5 to 22 points, and taken away by 16 to 41. What shows in either way is one and the same fact.
    """

    kind = "mark_of_class"
    fact = MarkAnywhere.kind
    order = 56
    least_effect = 0.15

    def least_effect_of(self, finding: Finding) -> float:
        """Return what a mark takes that may be a part of the object; of others `least_effect`."""
        return LEAST_EFFECT_IN_THE_MIDDLE if finding.may_be_evidence else self.least_effect

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return nothing: `MarkAnywhere` looks for marks once, and has them tested in both ways."""
        return iter(())


class Mark(NamedTuple):
    """A piece that is the same picture in many images of a predicted class, and in few others.

    Attributes:
        predicted: The class.
        image: The image that it is taken from.
        piece: Row and column where the piece begins there, in the pixels of the smaller images that are compared.
        box: Where the mark lies there, with a rim around it, in pixels of the images.
        members: The images of the class that have it, this one included.
        patches: The patch at which each of them is read, of those that it covers.
        covered: The patches that it covers in each of them, in whole or in part.
        lead: By how much the share of the class's images that have it exceeds that of the others, in [-1, 1].
        factor: By how much the images that are compared are smaller.
    """

    predicted: int
    image: int
    piece: tuple[int, int]
    box: Box
    members: Int[np.ndarray, " members"]
    patches: Int[np.ndarray, " members"]
    covered: Bool[np.ndarray, "members tokens"]
    lead: float
    factor: int


def find_marks(
    images: Float[Tensor, "n channels height width"],
    shares: Float[Tensor, "n tokens"],
    grid: tuple[int, int],
    predicted: Int[np.ndarray, " n"],
) -> list[Mark]:
    """Find at most one mark per predicted class, those that are the surest signs of their class first.

    Args:
        images: The images.
        shares: The share of each image's positive relevance at each patch.
        grid: Rows and columns of the patches.
        predicted: The predicted class of each image.
    """
    if len(images) < 2 * MIN_MEMBERS:
        return []
    marks: list[Mark] = []
    for factor in factors((images.shape[2], images.shape[3]), grid):
        # A piece of half the size fits into a mark that is smaller than a piece. Whatever is larger was found before.
        marks += _marks_at(factor, images, shares, grid, predicted, {mark.predicted for mark in marks})
    return sorted(marks, key=lambda mark: -mark.lead)


def _marks_at(
    factor: int,
    images: Float[Tensor, "n channels height width"],
    shares: Float[Tensor, "n tokens"],
    grid: tuple[int, int],
    predicted: Int[np.ndarray, " n"],
    marked: Collection[int],
) -> list[Mark]:
    """Find at most one mark of each predicted class that has none yet, by pieces of one size; see `find_marks`."""
    picture = reduced(images.float(), factor, grid)
    if min(picture.places) < 3:
        return []
    corners = _corners(shares, grid, picture)
    pieces = _pieces(picture, corners)  # [n, pieces, values]
    # Wherever a mark lies, some of these pieces of it lie as one of that coarser grid does in some image.
    starts = np.flatnonzero((_offsets(picture) % picture.step == 0).all(1).repeat(min(PEAKS, shares.shape[1])).numpy())
    count, per_image, width = pieces.shape
    classes = np.unique(predicted)
    marks = []
    for label in classes:
        of_class = predicted == label
        if label in marked or of_class.sum() < MIN_MEMBERS or not (~of_class).any():
            continue
        at_peaks = None
        most = max(MIN_MEMBERS, MOST_SOURCES // len(classes))
        for image in np.flatnonzero(of_class)[evenly(int(of_class.sum()), most)]:
            # [pieces of this image, images, their pieces]: how far each piece is from all those of every image.
            distances = torch.cdist(pieces[image, starts], pieces.reshape(-1, width)).view(-1, count, per_image)
            has_it = (distances / width**0.5).min(2).values <= TOLERANCE
            leads = _leads(has_it, of_class, int(image))
            piece = int(leads.argmax())
            if at_peaks is None or float(leads[piece]) > at_peaks[0]:
                at_peaks = (float(leads[piece]), int(image), corners[image, starts[piece]])
        if at_peaks is not None and at_peaks[0] >= MIN_LEAD_AT_PEAKS:
            mark = _mark_anywhere(picture, shares, of_class, *at_peaks[1:], grid, int(label))
            least = MIN_LEAD if picture.cell == CELL else MIN_LEAD_OF_SMALL
            if mark.lead >= least and not _lies_at_one_patch(mark.patches):
                marks.append(mark._replace(box=_with_rim(mark.box, picture, (images.shape[2], images.shape[3]))))
    return marks


def _leads(has_it: Bool[Tensor, "pieces n"], of_class: Bool[np.ndarray, " n"], image: int) -> Float[Tensor, " pieces"]:
    """Return by how much the share of the class's other images that have a piece exceeds that of other classes."""
    others = torch.from_numpy(of_class & (np.arange(len(of_class)) != image))
    return has_it[:, others].float().mean(1) - has_it[:, torch.from_numpy(~of_class)].float().mean(1)


def _mark_anywhere(
    picture: Reduced,
    shares: Float[Tensor, "n tokens"],
    of_class: Bool[np.ndarray, " n"],
    image: int,
    corner: Int[Tensor, " 2"],
    grid: tuple[int, int],
    label: int,
) -> Mark:
    """Return the mark that a piece is a part of, wherever in the images the piece is.

    In one image the first letter of a word may be the most relevant one, in another one the last.
    """
    columns = picture.places[1]
    every = picture.every_piece()  # [n, values, places]
    top, left = corner.tolist()
    piece = every[image, :, top * columns + left]
    nearest, where = (every - piece[:, None]).square().mean(1).sqrt().min(1)
    has_it = nearest <= TOLERANCE
    members = np.flatnonzero(has_it.numpy() & of_class)
    places = torch.stack([where // columns, where % columns], 1)[torch.from_numpy(members)]  # [members, 2]
    others = np.flatnonzero(~of_class)
    side = SIDE * picture.step
    size = (picture.pixels.shape[2], picture.pixels.shape[3])
    shifts = places.numpy() - [top, left]
    # Of a piece, the last pixel is as wide as a step only where the image goes on so far.
    first = np.minimum([top, left], np.array(size) - side)
    seed = Box(int(first[0]), int(first[1]), int(first[0]) + side, int(first[1]) + side)
    box = reached_box(picture.pixels, image, seed, members, first + shifts, others, TOLERANCE, MIN_LEAD)
    lead = float(_leads(has_it[None], of_class, image)[0])
    covered = _covered(box, shifts, grid, size)
    patches = (shares[members].numpy() * covered).argmax(1)
    return Mark(label, image, (top, left), box, members, patches, covered, lead, picture.factor)


def mark_in(
    images: Float[Tensor, "n channels height width"],
    source: Float[Tensor, "channels height width"],
    mark: Mark,
    grid: tuple[int, int],
) -> list[Box | None]:
    """Return where a mark lies in each of some images, with its rim; None in those without it.

    Args:
        images: The images, such as those of the mark's class that judge it.
        source: The image that the mark is taken from.
        mark: The mark.
        grid: Rows and columns of the patches.
    """
    return places_of(images, picture_of(mark, torch.cat([source[None], images]), grid))


def picture_of(mark: Mark, images: Float[Tensor, "n channels height width"], grid: tuple[int, int]) -> MarkPicture:
    """Return how a mark looks.

    Args:
        mark: The mark.
        images: The image that it is taken from, and others, by which pixels are measured.
        grid: Rows and columns of the patches.
    """
    picture = reduced(images.float(), mark.factor, grid)
    top, left = mark.piece
    piece = picture.every_piece()[0, :, top * picture.places[1] + left]
    corner = (top * picture.stride, left * picture.stride)
    reach = (
        mark.box.top - corner[0],
        mark.box.left - corner[1],
        mark.box.bottom - corner[0],
        mark.box.right - corner[1],
    )
    return MarkPicture(
        tuple(piece.tolist()),
        tuple(picture.spread.tolist()),
        picture.factor,
        picture.stride,
        picture.step,
        reach,
        (images.shape[2], images.shape[3]),
    )


def _is_part_of_objects(
    mark: Mark,
    images: Float[Tensor, "n channels height width"],
    figures: Bool[np.ndarray, "n height width"] | None,
    grid: tuple[int, int],
) -> bool:
    """Return whether a mark is a part of objects that lie alike: always about there, or a piece of a larger figure.

    Args:
        mark: The mark.
        images: The images that its members count.
        figures: Where each of them shows something other than its ground; None where that is not plain.
        grid: Rows and columns of the patches.
    """
    in_members = mark_in(images[torch.from_numpy(mark.members)], images[mark.image], mark, grid)
    boxes = {int(member): box for member, box in zip(mark.members, in_members, strict=True) if box is not None}
    middles = np.array([[box.top + box.bottom, box.left + box.right] for box in boxes.values()]) / 2
    away = np.abs(middles - np.median(middles, axis=0)) / [images.shape[2], images.shape[3]]
    if (away.max(1) <= ABOUT_THERE).mean() > MOST_AT_ONE_PATCH:
        return True
    if figures is None:
        return False
    return float(np.mean([goes_on_beyond(figures[member], box) for member, box in boxes.items()])) >= PIECE_OF_FIGURES


def _covered(
    mark: Box, shifts: Int[np.ndarray, "members 2"], grid: tuple[int, int], size: tuple[int, int]
) -> Bool[np.ndarray, "members tokens"]:
    """Return the patches that a shifted box covers, in whole or in part."""
    touched = []
    for axis in (0, 1):
        edges = np.arange(grid[axis] + 1) * size[axis] / grid[axis]
        start = mark[axis] + shifts[:, axis, None]
        end = mark[axis + 2] + shifts[:, axis, None]
        touched.append((start < edges[1:]) & (end > edges[:-1]))  # [members, rows or columns]
    down, across = touched
    return np.asarray((down[:, :, None] & across[:, None]).reshape(len(shifts), -1))


def _offsets(picture: Reduced) -> Int[Tensor, "pieces 2"]:
    """Return where the pieces that overlap a patch start, in pixels of the picture from its top left corner."""
    steps = torch.arange(1 - SIDE * picture.step, picture.cell * picture.step)
    return torch.cartesian_prod(steps, steps)


def _corners(shares: Float[Tensor, "n tokens"], grid: tuple[int, int], picture: Reduced) -> Int[Tensor, "n pieces 2"]:
    """Return the top left corner of every piece.

    All pieces that overlap one of the most relevant patches are taken, as a mark need not lie within the patch.
    """
    peaks = shares.topk(min(PEAKS, shares.shape[1]), dim=1).indices  # [n, peaks]
    cell = torch.tensor([picture.pixels.shape[2] / grid[0], picture.pixels.shape[3] / grid[1]])
    start = (torch.stack([peaks // grid[1], peaks % grid[1]], 2) * cell).long()  # [n, peaks, 2]
    last = torch.tensor(picture.places) - 1
    return torch.minimum((start[:, :, None] + _offsets(picture)).clamp(min=0), last).flatten(1, 2)


def _pieces(picture: Reduced, corners: Int[Tensor, "n pieces 2"]) -> Float[Tensor, "n pieces values"]:
    """Return the pixels of the pieces, those of all channels in a row."""
    every = picture.every_piece().transpose(1, 2)  # [n, places, values]
    place = corners[..., 0] * picture.places[1] + corners[..., 1]
    return every.gather(1, place[..., None].expand(-1, -1, every.shape[2]))


def _with_rim(mark: Box, picture: Reduced, size: tuple[int, int]) -> Box:
    """Return a box of smaller pixels in pixels of the images, with a rim of a square: a mark's edge is a part of it."""
    top, left = ((start - picture.step) * picture.stride for start in mark[:2])
    bottom, right = ((end + picture.step) * picture.stride for end in mark[2:])
    return within(Box(top, left, bottom, right), size)


def _lies_at_one_patch(patches: Int[np.ndarray, " members"]) -> bool:
    return bool(np.bincount(patches).max() > MOST_AT_ONE_PATCH * len(patches))


def _stacked(samples: Sequence[Sample]) -> Float[Tensor, "n channels height width"] | None:
    """Return the images of all samples; None for texts, and for images that differ in shape."""
    images = images_of(samples)
    if len(images) < len(samples) or len({image.shape for image in images}) > 1:
        return None
    return torch.stack(images)


register_detector(MarkAnywhere())
register_detector(MarkOfClass())
