"""Does a single class's prediction follow colour and contrast? Of many classes, all together would hardly show it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int

from lrptrain.extras import require
from lrptrain.findings.detector import Candidate, DetectionConfig, register_detector
from lrptrain.findings.detectors.statistics import RelianceOnStatistics, property_of
from lrptrain.findings.detectors.unlocated import MOST_JUDGED, evenly
from lrptrain.findings.evaluation import Evaluation
from lrptrain.findings.figures import PlainGround, colours
from lrptrain.findings.finding import Finding
from lrptrain.findings.scopes import Scope
from lrptrain.intervention import Region
from lrptrain.intervention.regions import images_of

FEWEST_CLASSES = 3
"""Of two classes, a swap moves as many answers of both as it does of either."""
FEWEST_IMAGES = 8
MOST_IMAGES = 16
"""A class is tested on so many of its images."""
LEAST_AUROC = 0.9
"""A class stands out if a statistic tells its images from the others so well, in [0.5, 1]. In the trials of
experiments/detection, those of a tinted class reach 0.99, those of photographs without a tint 0.93 at most."""


class ClassRelianceOnStatistics(RelianceOnStatistics):
    """The prediction of one class follows colour and contrast, as where one class was taken by another camera.

    Only the class whose images stand out most by a statistic of their own is tested, if any does: that costs no forward
    pass to find out. In experiments/detection the answers of clean models for such a class moved up to 0.46 further
    than under the control, and those for a tinted class 0.85.
    """

    kind = "class_reliance_on_statistics"
    title = "The prediction of a class relies on colour and contrast"
    order = 71
    fact = RelianceOnStatistics.kind
    least_effect = 0.6

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return the class that stands out, if an intervention will follow and the images have one shape."""
        where = property_of(evaluation)
        predicted = np.array([explained.predicted for explained in evaluation.samples])
        if where is None or evaluation.inputs is None or len(np.unique(predicted)) < FEWEST_CLASSES:
            return
        label = outstanding_class(statistics(images_of(evaluation.inputs), evaluation.plain_ground), predicted)
        if label is not None:
            rows = np.flatnonzero(predicted == label)
            finding = replace(self.finding(evaluation, config, where), scope=Scope("class", config.class_names[label]))
            yield Candidate(finding, Region("statistics"), rows[evenly(len(rows), MOST_IMAGES)])


class StatisticsOfClass(RelianceOnStatistics):
    """Other images become those of a class by its colour and contrast alone.

    A tint on one class of several is seldom all that its images are told by, so that another class's colours take less
    of their answer away than `ClassRelianceOnStatistics` demands. But it draws images of all other classes: in
    development runs with ten classes of photographs their probability of a tinted class rose by 26 to 33 points more
    than with the colours of a third class, though hardly anybody sees that tint, and that of any class of clean models
    by 15 at most. In the test that followed airplanes, which are seen before the sky, had 23 to 27: hence the bound.
    """

    kind = "statistics_of_class"
    title = "A class is told by its colour and contrast"
    order = 72
    fact = RelianceOnStatistics.kind
    least_effect = 0.3
    changed = "colour and contrast of other images for those of the class"

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return the class that stands out, to be tested on images of others."""
        where = property_of(evaluation)
        if where is not None and evaluation.inputs is not None:
            values = statistics(images_of(evaluation.inputs), evaluation.plain_ground)
            finding = self.finding(evaluation, config, where)
            yield from given_to_others(finding, values, evaluation, config, Region("statistics"), LEAST_AUROC)


def given_to_others(
    finding: Finding,
    values: Float[np.ndarray, "n numbers"],
    evaluation: Evaluation,
    config: DetectionConfig,
    region: Region,
    least: float,
) -> Iterator[Candidate]:
    """Return the class that a number of its images tells from all others, for its property to be given to others.

    Args:
        finding: The finding on all samples.
        values: Numbers of each image that tell the property.
        evaluation: What was explained.
        config: Names the classes.
        region: The property.
        least: As for `outstanding_class`.
    """
    predicted = np.array([explained.predicted for explained in evaluation.samples])
    if len(np.unique(predicted)) < FEWEST_CLASSES:
        return
    label = outstanding_class(values, predicted, least)
    if label is not None:
        others = np.flatnonzero(predicted != label)
        of_class = replace(finding, scope=Scope("class", config.class_names[label]))
        yield Candidate(of_class, replace(region, which=(label,)), others[evenly(len(others), MOST_JUDGED)])


def statistics(
    images: Sequence[Float[torch.Tensor, "channels height width"]], plain: PlainGround | None = None
) -> Float[np.ndarray, "n statistics"]:
    """Return mean and spread of the channels of every image, and how the means differ: a cast, however bright.

    Of figures on a plain ground, the mean and the spread are how large the figure is. There, it is the colour of the
    ground and that of the figure.
    """
    if plain is not None:
        return colours(images, plain)
    first, second = torch.triu_indices(len(images[0]), len(images[0]), 1)
    rows = []
    for image in images:
        # Sums over all pixels in 16 bits would lose what tells images apart.
        wide = image.to(torch.promote_types(image.dtype, torch.float32))
        spread, mean = torch.std_mean(wide, (1, 2))
        rows.append(torch.cat([mean, spread, mean[first] - mean[second]]))
    return torch.stack(rows).double().cpu().numpy()


def outstanding_class(
    values: Float[np.ndarray, "n statistics"], predicted: Int[np.ndarray, " n"], least: float = LEAST_AUROC
) -> int | None:
    """Return the class that one of the statistics tells best from all others; None if none does so well.

    How well is the area under the ROC curve: the chance that a random image of the class has a larger value than a
    random other one, or a smaller one (Mann and Whitney 1947).

    Args:
        values: The statistics of each image.
        predicted: The predicted class of each image.
        least: The area from which on a class stands out, in [0.5, 1].
    """
    ranks = require("scipy.stats", "monitor").rankdata(values, axis=0)
    best = None
    highest = least
    for label in np.unique(predicted):
        member = predicted == label
        count = int(member.sum())
        if count < FEWEST_IMAGES or count == len(member):
            continue
        # The sum of the ranks, less the least that it can be, as a part of the most.
        area = (ranks[member].sum(0) - count * (count + 1) / 2) / (count * (len(member) - count))
        reached = float(np.maximum(area, 1 - area).max())
        if reached >= highest:
            best = int(label)
            highest = reached
    return best


register_detector(ClassRelianceOnStatistics())
register_detector(StatisticsOfClass())
