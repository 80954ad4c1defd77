"""Does the prediction follow how strong an image's fine detail is: sharpness, noise, grain? It takes no map."""

from collections.abc import Iterator

import numpy as np
import torch

from lrptrain.findings.detector import Candidate, DetectionConfig, register_detector
from lrptrain.findings.detectors.statistics import property_of
from lrptrain.findings.detectors.unlocated import UnlocatedReliance, any_goes_with_the_answer, judged_rows
from lrptrain.findings.evaluation import Evaluation
from lrptrain.intervention import Region
from lrptrain.intervention.detail import strength_of_detail
from lrptrain.intervention.regions import images_of


class RelianceOnDetail(UnlocatedReliance):
    """The prediction follows sharpness, noise or a regular pattern, as of another camera, scanner or screen.

    It is tested where the strength of the detail goes with the answer, and a person judges it: frogs may be sharper
    than ships. In trials (experiments/detection) the answers of clean models moved up to 0.09 further than under the
    control, of pets in 32 images up to 0.24, and those of models that read noise 0.21 to 0.61.
    """

    kind = "reliance_on_detail"
    title = "The prediction relies on sharpness, noise or texture"
    order = 72
    least_effect = 0.25
    remedy = 'if wrong, guidance by "swap", swap="detail": docs/how-to/guidance.md'
    changed = "the strength of fine detail"

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return some images, if an intervention will follow and their detail goes with the answers."""
        if evaluation.inputs is None or property_of(evaluation) is None:
            return
        strengths = torch.stack([strength_of_detail(image) for image in images_of(evaluation.inputs)])
        predicted = np.array([explained.predicted for explained in evaluation.samples])
        if any_goes_with_the_answer(strengths.T.cpu().numpy(), predicted, config.confidence):
            finding = self.finding(evaluation, config, "sharpness, noise and texture")
            yield Candidate(finding, Region("detail"), judged_rows(len(evaluation.samples)))


register_detector(RelianceOnDetail())
