"""Does the prediction follow how large the annotated object appears?"""

from collections.abc import Iterator

import numpy as np

from lrptrain.findings.detector import Candidate, DetectionConfig, register_detector
from lrptrain.findings.detectors.unlocated import (
    UnlocatedReliance,
    annotated_objects,
    goes_with_the_answer,
    judged_rows,
)
from lrptrain.findings.evaluation import Evaluation
from lrptrain.findings.finding import Finding
from lrptrain.intervention import Region


class RelianceOnSize(UnlocatedReliance):
    """The prediction follows how large the annotated object appears, as where one class was photographed from nearby.

    It is only tested where the size goes with the predicted classes, and a person judges it: whales are large.
    In trials (experiments/detection) the answers of clean models moved up to 0.07 further than under the control, and
    those of models that read the size 0.08 to 0.48.
    """

    kind = "reliance_on_size"
    title = "The prediction relies on the size of the annotated object"
    order = 74
    least_effect = 0.15
    remedy = "if wrong, random scales as augmentation"
    changed = "the size of the object"

    def relevance_sentence(self, finding: Finding) -> str:
        """Return that no map could show it."""
        return "no map can show it, for the relevance lies on the object whatever its size"

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return some annotated images, if an intervention will follow and their size goes with the answers."""
        rows, boxes = annotated_objects(evaluation)
        predicted = np.array([evaluation.samples[row].predicted for row in rows])
        if goes_with_the_answer([box.height * box.width for box in boxes], predicted, config.confidence):
            finding = self.finding(evaluation, config, "how large the annotated object is")
            yield Candidate(finding, Region("size"), rows[judged_rows(len(rows))])


register_detector(RelianceOnSize())
