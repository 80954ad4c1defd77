"""Does the prediction follow how strong an image's finest detail is: sharpness, noise, grain? It takes no map."""

from collections.abc import Iterator

import numpy as np

from lrptrain.findings.detector import Candidate, DetectionConfig, register_detector
from lrptrain.findings.detectors.statistics import property_of
from lrptrain.findings.detectors.unlocated import UnlocatedReliance, goes_with_the_answer, judged_rows
from lrptrain.findings.evaluation import Evaluation
from lrptrain.intervention import Region
from lrptrain.intervention.detail import strength_of_detail
from lrptrain.intervention.regions import images_of


class RelianceOnDetail(UnlocatedReliance):
    """The prediction follows sharpness or noise, as of another camera, scanner or compression.

    It is tested where the strength of the detail goes with the answer. In trials (experiments/detection) the answers of
    clean models moved up to 0.04 further than under the control, and those of models that read noise 0.14 to 0.54.
    """

    kind = "reliance_on_detail"
    title = "The prediction relies on sharpness or noise"
    order = 72
    least_effect = 0.15
    remedy = 'if wrong, guidance by "swap", swap="detail": docs/how-to/guidance.md'
    changed = "the strength of the finest detail"

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return half of the images, if an intervention will follow and their detail goes with the answers."""
        if evaluation.inputs is None or property_of(evaluation) is None:
            return
        strengths = [strength_of_detail(image) for image in images_of(evaluation.inputs)]
        predicted = np.array([explained.predicted for explained in evaluation.samples])
        if goes_with_the_answer(strengths, predicted, config.confidence):
            finding = self.finding(evaluation, config, "sharpness and noise")
            yield Candidate(finding, Region("detail"), judged_rows(len(evaluation.samples)))


register_detector(RelianceOnDetail())
