"""Does the prediction follow the mean and the spread of an image's channels? It takes no map and no annotation."""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Int

from lrptrain.batch import Sample
from lrptrain.findings.detector import Candidate, DetectionConfig, Detector, register_detector
from lrptrain.findings.evaluation import Evaluation
from lrptrain.findings.finding import Finding
from lrptrain.findings.scopes import OVERALL
from lrptrain.findings.wording import intervention_sentence
from lrptrain.intervention import Region
from lrptrain.intervention.regions import images_of

MOST_JUDGED = 32
"""So many samples at most are changed, each by two forward passes.

Changes lie in [-1, 1]: with a deviation of 0.3, the standard error of the mean of 32 is 0.05, far below the least
effect.
"""


class RelianceOnStatistics(Detector):
    """The prediction follows colour and contrast, as with a tint, a scanner's brightness or a camera's white balance.

    No map suspects it, since it lies nowhere: it is tested in every evaluation, on half of the samples. A sound model
    uses colour, too, and its answers move a little: in experiments/detection those of clean models moved up to 0.16
    further than under the control, and those of models that read a tint 0.9. Hence the large `least_effect`; and where
    colour tells the classes apart rightly, the finding is right and no fault, which a person has to judge.
    """

    kind = "reliance_on_statistics"
    title = "The prediction relies on colour and contrast"
    order = 70
    least_effect = 0.3
    reported_unconfirmed = False
    is_fault = False
    remedy = 'if wrong, RelevanceGuidance(swap="statistics"): docs/how-to/guidance.md'

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return half of the images, if an intervention will follow and they have one shape."""
        channels = None if evaluation.inputs is None else _channels(evaluation.inputs)
        # Without a grid, what is called an image may be a table or a series: it has no channels.
        if channels is None or evaluation.grid is None:
            return
        # Not 'colour' where there is but one channel.
        where = "colour and contrast" if channels > 1 else "brightness and contrast"
        finding = Finding(
            kind=self.kind,
            title=self.title,
            scope=OVERALL,
            where=where,
            target=evaluation.targets[0],
            relevance=None,
            confidence=config.confidence,
            epoch=evaluation.epoch,
            step=evaluation.step,
            first_epoch=evaluation.epoch,
        )
        yield Candidate(finding, Region("statistics"), judged_rows(len(evaluation.samples)))

    def relevance_sentence(self, finding: Finding) -> str:
        """Return that no map could show it."""
        return "no map can show it, for it lies at no place"

    def intervention_sentence(self, finding: Finding) -> str:
        """Return what swapping mean and spread does."""
        return intervention_sentence(finding, "mean and spread of the channels")


def judged_rows(count: int) -> Int[np.ndarray, " judged"]:
    """Return every second row, and of many an even choice.

    The samples of an evaluation stand in the order of their classes: every second one leaves the classes their shares.
    """
    rows = np.arange(0, count, 2)
    chosen = np.linspace(0, len(rows) - 1, min(MOST_JUDGED, len(rows))).round().astype(int)
    return np.asarray(rows[chosen])


def _channels(samples: Sequence[Sample]) -> int | None:
    """Return the number of channels of images that have one shape; None for texts, and for images that differ."""
    images = images_of(samples)
    shapes = {image.shape for image in images}
    shape = shapes.pop() if len(shapes) == 1 else None
    return int(shape[0]) if shape is not None and len(images) == len(samples) else None


register_detector(RelianceOnStatistics())
