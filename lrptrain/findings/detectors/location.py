"""Does the prediction follow where the annotated object lies in the image?"""

from collections.abc import Iterator

import numpy as np

from lrptrain.findings.detector import Candidate, DetectionConfig, register_detector
from lrptrain.findings.detectors.unlocated import (
    UnlocatedReliance,
    annotated_objects,
    any_goes_with_the_answer,
    judged_rows,
)
from lrptrain.findings.evaluation import Evaluation
from lrptrain.findings.finding import Finding
from lrptrain.intervention import Region


class RelianceOnLocation(UnlocatedReliance):
    """The prediction follows where the annotated object lies, as where one class was always photographed in the middle.

    It is only tested where the place goes with the predicted classes: on most data it does not, and it costs nothing.
    In trials (experiments/detection) the answers of clean models moved up to 0.04 further than under the control, and
    those of models that read the place 0.19 to 0.60.
    """

    kind = "reliance_on_location"
    title = "The prediction relies on where the annotated object lies"
    order = 73
    least_effect = 0.15
    remedy = "if wrong, random crops and shifts as augmentation"
    changed = "the place of the object"

    def relevance_sentence(self, finding: Finding) -> str:
        """Return that no map could show it."""
        return "no map can show it, for the relevance lies on the object wherever that is"

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return some annotated images, if an intervention will follow and their place goes with the answers."""
        rows, boxes = annotated_objects(evaluation)
        predicted = np.array([evaluation.samples[row].predicted for row in rows])
        # Twice the middle, which is a whole number.
        middles = ([box.top + box.bottom for box in boxes], [box.left + box.right for box in boxes])
        if any_goes_with_the_answer(middles, predicted, config.confidence):
            finding = self.finding(evaluation, config, "where the annotated object lies")
            yield Candidate(finding, Region("location"), rows[judged_rows(len(rows))])


register_detector(RelianceOnLocation())
