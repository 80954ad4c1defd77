"""Does the prediction follow how light falls across an image: from a side, say? It takes no map."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from lrptrain.findings.association import association
from lrptrain.findings.detector import Candidate, DetectionConfig, register_detector
from lrptrain.findings.detectors.statistics import property_of
from lrptrain.findings.detectors.unlocated import UnlocatedReliance, any_goes_with_the_answer, judged_rows
from lrptrain.findings.evaluation import Evaluation
from lrptrain.intervention import Region
from lrptrain.intervention.regions import images_of
from lrptrain.intervention.shading import shading


class RelianceOnShading(UnlocatedReliance):
    """The prediction follows how light falls across the image, as where one class was taken under another lamp.

    It is tested where the shading goes with the answer, and a person judges it: the sky is above ships. In trials
    (experiments/detection) the answers of clean models moved up to 0.14 further than under the control, and those of
    models that read where a lamp stands 0.20 to 0.46. Of a clean model of ten classes, on photographs of four of them
    of which the shading tells nothing, they moved by 0.29: there it takes more. Images that are laid out alike, or show
    figures on a plain ground, are not tested: small digits moved by 0.42.
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
        # There, what differs between the sides of an image is the shape of its object, and no light.
        if evaluation.any_place_may_hold_objects:
            return
        terms = shading(torch.stack(images_of(evaluation.inputs)).float()).mean(1).cpu().numpy()
        predicted = np.array([explained.predicted for explained in evaluation.samples])
        if any_goes_with_the_answer(terms.T, predicted, config.confidence):
            finding = self.finding(evaluation, config, "how light falls across the image")
            finding = replace(finding, association=association(terms, evaluation.labels))
            yield Candidate(finding, Region("shading"), judged_rows(len(evaluation.samples)))


register_detector(RelianceOnShading())
