"""Does the prediction follow an image's fine detail: sharpness, noise, a pattern? It takes no map."""

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
from lrptrain.intervention.detail import pattern, strengths_of_detail
from lrptrain.intervention.edges import along_edges
from lrptrain.intervention.regions import images_of

LEAST_ASSOCIATION = 0.2
"""What tells less of the class along the edges is tested only where its strength goes with the answers."""

AT_A_TIME = 8
"""So many images stay in a processor's cache, which makes it five times as fast as all together."""


class RelianceOnDetail(UnlocatedReliance):
    """The prediction follows sharpness, noise or a pattern, as of another camera, scanner or screen, of scratches.

    It is tested where the detail tells the class along the edges of the images, or where its strength goes with the
    answer, and a person judges it: frogs may be sharper than ships. In trials (experiments/detection) the answers of
    clean models moved up to 0.13 further than under the control, and those of models that read lines, lattices,
    scratches, fringes of colour, noise or sharpness 0.15 to 0.81. The edges show less of what images
    are about than the rest of them: what tells the class there is seldom a part of it.
    """

    kind = "reliance_on_detail"
    title = "The prediction relies on sharpness, noise or a pattern"
    order = 72
    least_effect = 0.25
    least_effect_if_telling: float | None = 0.2
    remedy = 'if wrong, guidance by "swap", swap="detail": docs/how-to/guidance.md'
    changed = "the fine detail's strength and pattern"
    told_by = "along the edges alone, it"

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return some images, if an intervention will follow and their detail tells the class, or the answers."""
        if evaluation.inputs is None or property_of(evaluation) is None:
            return
        images = torch.stack(images_of(evaluation.inputs)).float()
        edges = along_edges((images.shape[2], images.shape[3])).to(images.device)
        parts = torch.split(images, AT_A_TIME)
        patterns = torch.cat([pattern(part, edges) for part in parts])
        strengths = torch.cat([strengths_of_detail(part) for part in parts])
        along_edges_alone = association(patterns.cpu().numpy(), evaluation.labels)
        predicted = np.array([explained.predicted for explained in evaluation.samples])
        if along_edges_alone >= LEAST_ASSOCIATION or any_goes_with_the_answer(
            strengths.T.cpu().numpy(), predicted, config.confidence
        ):
            finding = self.finding(evaluation, config, "sharpness, noise and patterns")
            yield Candidate(
                replace(finding, association=along_edges_alone), Region("detail"), judged_rows(len(evaluation.samples))
            )


register_detector(RelianceOnDetail())
