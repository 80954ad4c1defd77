"""Do the images of one class have something drawn at the same place: a watermark, a caption, a ruler?

The images themselves show it, and no map has to: what is half transparent, or lies in the middle of images, on their
objects, no map singles out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from lrptrain.findings.detector import Candidate, DetectionConfig, Detector, register_detector
from lrptrain.findings.detectors.positions import describe, lies_in_the_middle, part_of_image
from lrptrain.findings.detectors.shares import high_share_finding
from lrptrain.findings.detectors.unlocated import evenly
from lrptrain.findings.evaluation import Evaluation
from lrptrain.findings.finding import Finding
from lrptrain.findings.scopes import Scope
from lrptrain.findings.wording import intervention_sentence
from lrptrain.intervention import Region
from lrptrain.intervention.common import FEWEST_IMAGES
from lrptrain.cues.painting import dilate
from lrptrain.intervention.regions import images_of

SIDE = 48
"""Images are made smaller by a whole factor, as long as they keep so many cells a side: strokes become lines."""
LEAST_DEVIATION = 0.1
"""The detail of a cell deviates by so much at least, of about 0.5 in photographs: a ground of one colour has none."""
LEAST_PEAK = 10.0
"""Something is drawn where the mean of squared z-values over 3 x 3 cells, which is 1 by chance, reaches this. Of clean
photographs, 48 to 256 of them in three to ten classes, the largest value of any class was 9.2; half of it, mostly."""
LEAST_GOES_ON = 4.0
"""It goes on to neighbouring cells that reach this: of clean photographs, a fiftieth of the cells do."""
REACH = 2
"""Over gaps of so many cells, as between letters."""
LEAST_SHARE = 0.75
"""So much of the class's images must look more like the others of their class there than nine in ten other images do.
Of clean photographs, less than 0.7 do in a class of 12 or more."""
MORE_THAN = 0.9
TELLING_CELLS = 0.05
"""How alike they are is told by this share of the cells."""
MOST_OF_THE_CLASSES = 1 / 3
"""Where more of the classes stand out, each has a shape of its own at one place, as digits have: there is no mark."""
MOST_OF_THE_IMAGE = 0.5
FEWEST_CLASSES = 3
"""Of two classes, the other one stands out as much as the one that is marked."""
MOST_JUDGES = 64
"""What is found is drawn on so many images at most, each by two forward passes."""


class FixedMarkOfClass(Detector):
    """Something is drawn at the same place in the images of one class, and in few others.

    The images are searched, by their detail: what differs from image to image averages out. Classes are those of the
    labels, where there are labels: a model of which the mark is one cue among others reads a third of the images as
    another class. What the images of the class have in common there is then drawn on images that are read as other
    classes, rightly or not. It counts by how much the probability of the class rises, more than with what the images of
    a third class have in common there.

    In the middle, a mark may be a part of the object, as a logo is: for a person to judge. Where objects may lie at any
    place, as in scans, some of it has to be all but the same picture in each class.
    """

    kind = "fixed_mark_of_class"
    title = "The images of a class have the same mark at one place"
    order = 53
    least_effect = 0.05
    reported_unconfirmed = False
    verb = "reads"

    def place(self, finding: Finding) -> str:
        """Return what the model reads, as a noun."""
        return f"what is drawn on all images of the class at {part_of_image(finding.where)}"

    def intervention_sentence(self, finding: Finding) -> str:
        """Return what drawing it on other images does."""
        return intervention_sentence(finding, "what other images show there")

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return the marks of classes, annotated or not: surroundings that are exchanged hardly show one of a class."""
        grid = evaluation.grid
        if grid is None or evaluation.inputs is None:
            return
        images = images_of(evaluation.inputs)
        if len(images) < len(evaluation.inputs) or len({image.shape for image in images}) > 1:
            return
        predicted = np.array([explained.predicted for explained in evaluation.samples])
        labels = evaluation.labels
        marked = evaluation.marked_patches
        for mark in find_fixed_marks(images, labels):
            patches = _patches(mark.cells, grid)
            if marked is not None and not marked.any_of(patches):
                continue
            rows = np.flatnonzero(labels == mark.label)
            finding = high_share_finding(
                self,
                evaluation,
                config,
                Scope("class", config.class_names[mark.label]),
                describe(patches, grid),
                rows,
                evaluation.shares[rows][:, list(patches)].sum(1),
                reference=len(patches) / (grid[0] * grid[1]),
            )
            cells = np.flatnonzero(mark.cells)
            finding = replace(finding, may_be_evidence=lies_in_the_middle(cells, mark.cells.shape))
            others = np.flatnonzero((labels != mark.label) & (predicted != mark.label))
            region = Region("common", (mark.label, *mark.cells.shape, *cells.tolist()))
            yield Candidate(finding, region, others[evenly(len(others), MOST_JUDGES)])


class FixedMark(NamedTuple):
    """What is drawn at one place in the images of a class.

    Attributes:
        label: The class.
        cells: Where: of a grid of cells that covers the images.
        peak: The largest evidence of any of these cells; see `LEAST_PEAK`.
        share: See `LEAST_SHARE`.
    """

    label: int
    cells: Bool[np.ndarray, "rows columns"]
    peak: float
    share: float


def find_fixed_marks(
    images: Sequence[Float[Tensor, "channels height width"]], labels: Int[np.ndarray, " n"]
) -> list[FixedMark]:
    """Find at most one mark per class, those that stand out most first.

    Args:
        images: The images, of one shape.
        labels: The class of each image.
    """
    detail = _detail(images)
    finite = detail.flatten(1).isfinite().all(1).numpy()
    detail = detail[torch.from_numpy(finite)]
    labels = labels[finite]
    classes, counts = np.unique(labels, return_counts=True)
    candidates = classes[counts >= FEWEST_IMAGES].tolist()
    if len(candidates) < FEWEST_CLASSES:
        return []
    marks = []
    tested = len(candidates)
    stand_out = 0
    # Without the images of a class that stands out, or another one would, by what it lacks.
    left: Bool[np.ndarray, " n"] = np.ones(len(labels), bool)
    while len(candidates) > 1:
        within = detail[torch.from_numpy(left)]
        totals = _sums(within)
        evidence = {each: _evidence(_deviations(within, labels[left] == each, totals)) for each in candidates}
        best = max(candidates, key=lambda each: float(evidence[each].max()))
        peak = float(evidence[best].max())
        if peak < LEAST_PEAK:
            break
        stand_out += 1
        share = _share_alike(within, labels[left] == best)
        cells = _mark_around_peaks(evidence[best])
        if share >= LEAST_SHARE and cells.mean() <= MOST_OF_THE_IMAGE:
            marks.append(FixedMark(int(best), cells, peak, share))
        left &= labels != best
        candidates.remove(best)
    return marks if stand_out <= max(1, MOST_OF_THE_CLASSES * tested) else []


def _detail(images: Sequence[Float[Tensor, "channels height width"]]) -> Float[Tensor, "n channels rows columns"]:
    """Return by how much each cell differs from those around it, in units of how much cells differ there at all.

    By these units, an object's strong edge counts little more than the edge of a faint letter. Half of a unit is how
    much they differ in the image as a whole, so that the noise of a smooth sky is not drawn out.
    """
    factor = max(1, min(images[0].shape[1:]) // SIDE)
    # Each by itself: all images in 32 bits are hundreds of megabytes.
    cells = torch.stack([F.avg_pool2d(image.detach().cpu().float()[None], factor)[0] for image in images])
    difference = cells - _around(cells)
    power = difference.square().mean(1, keepdim=True)
    unit = _around(power).sqrt() + power.mean((2, 3), keepdim=True).sqrt()
    return difference / torch.where(unit > 0, unit, 1.0)


def _around(values: Float[Tensor, "n channels rows columns"]) -> Float[Tensor, "n channels rows columns"]:
    """Return the mean over 3 x 3 cells; beyond the edge, cells are as at the edge."""
    return F.avg_pool2d(F.pad(values, (1, 1, 1, 1), mode="replicate"), 3, 1)


def _deviations(
    detail: Float[Tensor, "n channels rows columns"],
    member: Bool[np.ndarray, " n"],
    totals: tuple[Float[Tensor, "channels rows columns"], Float[Tensor, "channels rows columns"]],
) -> Float[Tensor, "channels rows columns"]:
    """Return the z-values of the difference between the mean of members and that of the others.

    Args:
        detail: The detail of all images.
        member: True for those of the class.
        totals: The sums of all images and of their squares, which are the same for all classes.
    """
    of_class = detail[torch.from_numpy(member)]
    total, squares = (of_all - of_members for of_all, of_members in zip(totals, _sums(of_class), strict=True))
    others = _others(total, squares, len(detail) - len(of_class))
    return _z_values(of_class.mean(0), len(of_class), others)


def _sums(
    detail: Float[Tensor, "n channels rows columns"],
) -> tuple[Float[Tensor, "channels rows columns"], Float[Tensor, "channels rows columns"]]:
    """Return the sum of some images, and that of their squares."""
    return detail.sum(0), detail.square().sum(0)


class _Others(NamedTuple):
    """The images of other classes.

    Attributes:
        mean: Their mean.
        deviation: Their standard deviation, that of neighbouring cells and of all channels in one: of few images, that
            of a single cell is small by chance now and then, and any difference large by its measure.
        number: The number of them.
    """

    mean: Float[Tensor, "channels rows columns"]
    deviation: Float[Tensor, "1 rows columns"]
    number: int


def _others(
    total: Float[Tensor, "channels rows columns"], squares: Float[Tensor, "channels rows columns"], count: int
) -> _Others:
    """Return what sums over images say of them."""
    mean = total / count
    variance = (squares / count - mean.square()).clamp(min=0).mean(0)
    return _Others(mean, _around(variance[None, None])[0].sqrt().clamp(min=LEAST_DEVIATION), count)


def _z_values(
    mean: Float[Tensor, "channels rows columns"], count: int, others: _Others
) -> Float[Tensor, "channels rows columns"]:
    """Return the z-values of the mean over so many images, compared with others."""
    # By the deviation of the others: by its own, an image alone of its class would count as much as all of it.
    z_values: Float[Tensor, "channels rows columns"] = (mean - others.mean) / (
        others.deviation * (1 / count + 1 / others.number) ** 0.5
    )
    return z_values


def _evidence(deviations: Float[Tensor, "channels rows columns"]) -> Float[Tensor, "rows columns"]:
    """Return the mean squared z-value of all channels over 3 x 3 cells: a stroke is not one cell alone."""
    return _around(deviations.square().mean(0)[None, None])[0, 0]


def _share_alike(detail: Float[Tensor, "n channels rows columns"], member: Bool[np.ndarray, " n"]) -> float:
    """Return in which share of a class's images there is, at one place, what the others of the class have in common.

    Each image is compared with what all others of its class have, so that none is a witness of itself.
    """
    of_class = detail[torch.from_numpy(member)]
    others = detail[torch.from_numpy(~member)]
    compared = _others(*_sums(others), len(others))
    total = of_class.sum(0)
    alike = []
    for image in of_class:
        z_values = _z_values((total - image) / (len(of_class) - 1), len(of_class) - 1, compared)
        evidence = _evidence(z_values)
        telling = evidence >= torch.quantile(evidence.flatten(), 1 - TELLING_CELLS)
        picture = (z_values * telling).flatten()
        alike.append(bool((others.flatten(1) @ picture < image.flatten() @ picture).float().mean() >= MORE_THAN))
    return float(np.mean(alike))


def _mark_around_peaks(evidence: Float[Tensor, "rows columns"]) -> Bool[np.ndarray, "rows columns"]:
    """Return the cells of a mark, with a rim of one: those that go on from where something surely is drawn."""
    goes_on = (evidence >= LEAST_GOES_ON)[None]
    mark = (evidence >= LEAST_PEAK)[None]
    while True:
        grown = goes_on & dilate(mark, REACH)
        if torch.equal(grown, mark):
            return dilate(mark, 1)[0].numpy()
        mark = grown


def _patches(cells: Bool[np.ndarray, "rows columns"], grid: tuple[int, int]) -> tuple[int, ...]:
    """Return the patches, row by row, in which any of the cells begins."""
    rows, columns = cells.nonzero()
    down = rows * grid[0] // cells.shape[0]
    across = columns * grid[1] // cells.shape[1]
    return tuple(np.unique(down * grid[1] + across).tolist())


register_detector(FixedMarkOfClass())
