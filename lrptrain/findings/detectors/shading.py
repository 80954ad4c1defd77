"""Does the prediction follow how light falls across an image: from a side, say? It takes no map."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from lrptrain.findings.association import association
from lrptrain.findings.detector import Candidate, DetectionConfig, register_detector
from lrptrain.findings.detectors.statistics import property_of
from lrptrain.findings.detectors.unlocated import UnlocatedReliance, any_goes_with_the_answer, judged_rows
from lrptrain.findings.evaluation import Evaluation
from lrptrain.intervention import Region
from lrptrain.intervention.regions import images_of
from lrptrain.intervention.shading import shading

CELLS = 8
"""Images are made smaller by a whole factor, as long as they keep so many cells a side: light has no finer shape."""
NOTHING_BUT_LIGHT = 0.85
"""So much of what the classes differ by is light where it is. Of digits, clothes and cells it is 0.64 at most, and with
light from a side, another one for each class, 0.85 and more (cells and drawn chests, draws of 32 and 128)."""


class RelianceOnShading(UnlocatedReliance):
    """The prediction follows how light falls across the image, as where one class was taken under another lamp.

    It is tested where the shading goes with the answer, and a person judges it: the sky is above ships. In trials
    (experiments/detection) the answers of clean models moved up to 0.14 further than under the control, and those of
    models that read where a lamp stands 0.20 to 0.46. Of a clean model of ten classes, on photographs of four of them
    of which the shading tells nothing, they moved by 0.29: there it takes more. Images that are laid out alike, or show
    figures on a plain ground, are tested if light is all that their classes differ by: small digits moved by 0.42.
    """

    kind = "reliance_on_shading"
    title = "The prediction relies on how light falls across the image"
    order = 75
    least_effect = 0.35
    least_effect_if_telling = 0.25
    nowhere = "it lies all over the image"
    remedy = 'if wrong, guidance by "swap", swap="shading": docs/how-to/guidance.md'
    changed = "how light falls across the image"

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return some images, if an intervention will follow and their shading goes with the answers."""
        if evaluation.inputs is None or property_of(evaluation) is None:
            return
        images = torch.stack(images_of(evaluation.inputs)).float().cpu()
        # There, what differs between the sides of an image is the shape of its object, unless it is nothing but light.
        if evaluation.any_place_may_hold_objects and share_of_light(images, evaluation.labels) < NOTHING_BUT_LIGHT:
            return
        terms = shading(images).mean(1).numpy()
        predicted = np.array([explained.predicted for explained in evaluation.samples])
        if any_goes_with_the_answer(terms.T, predicted, config.confidence):
            finding = self.finding(evaluation, config, "how light falls across the image")
            finding = replace(finding, association=association(terms, evaluation.labels))
            yield Candidate(finding, Region("shading"), judged_rows(len(evaluation.samples)))


def share_of_light(images: Float[Tensor, "n channels height width"], labels: Int[np.ndarray, " n"]) -> float:
    """Return how much of what the classes of images differ by, place by place, is how light falls across them.

    Both sums of squares between classes are freed of what chance adds to them, by the spread within classes.

    Args:
        images: The images.
        labels: The class of each.

    Returns:
        The share, about in [0, 1]: of few images also a little beyond; 0 where classes do not differ.
    """
    cells = F.avg_pool2d(images, max(1, min(images.shape[2:]) // CELLS))
    cells = cells - cells.mean((2, 3), keepdim=True)
    # The surfaces have a mean square of 1: a term's square counts at every place.
    of_light = _between(shading(cells).flatten(1).double().numpy(), labels) * cells.shape[2] * cells.shape[3]
    of_all = _between(cells.flatten(1).double().numpy(), labels)
    return of_light / of_all if of_all > 0 else 0.0


def _between(values: Float[np.ndarray, "n numbers"], labels: Int[np.ndarray, " n"]) -> float:
    """Return the sum of squares between classes, less what it would be if classes did not differ."""
    classes, index, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    if len(values) <= len(classes):
        return 0.0
    member = np.eye(len(classes))[index]
    means = member.T @ values / sizes[:, None]
    between = float((sizes[:, None] * np.square(means - values.mean(0))).sum())
    within = float(np.square(values - means[index]).sum())
    return between - (len(classes) - 1) * within / (len(values) - len(classes))


register_detector(RelianceOnShading())
