"""Does the prediction follow the mean and the spread of an image's channels? It takes no map and no annotation."""

from collections.abc import Iterator, Sequence

from lrptrain.batch import Sample
from lrptrain.findings.detector import Candidate, DetectionConfig, register_detector
from lrptrain.findings.detectors.unlocated import UnlocatedReliance, judged_rows
from lrptrain.findings.evaluation import Evaluation
from lrptrain.intervention import Region
from lrptrain.intervention.regions import images_of


class RelianceOnStatistics(UnlocatedReliance):
    """The prediction follows colour and contrast, as with a tint, a scanner's brightness or a camera's white balance.

    It is tested in every evaluation, on half of the samples. In experiments/detection the answers of clean models moved
    up to 0.16 further than under the control, and those of models that read a tint 0.9.
    """

    kind = "reliance_on_statistics"
    title = "The prediction relies on colour and contrast"
    order = 70
    remedy = 'if wrong, RelevanceGuidance(swap="statistics"): docs/how-to/guidance.md'
    changed = "mean and spread of the channels"

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return half of the images, if an intervention will follow and they have one shape."""
        channels = None if evaluation.inputs is None else _channels(evaluation.inputs)
        # Without a grid, what is called an image may be a table or a series: it has no channels.
        if channels is None or evaluation.grid is None:
            return
        # Not 'colour' where there is but one channel.
        where = "colour and contrast" if channels > 1 else "brightness and contrast"
        finding = self.finding(evaluation, config, where)
        yield Candidate(finding, Region("statistics"), judged_rows(len(evaluation.samples)))


def _channels(samples: Sequence[Sample]) -> int | None:
    """Return the number of channels of images that have one shape; None for texts, and for images that differ."""
    images = images_of(samples)
    shapes = {image.shape for image in images}
    shape = shapes.pop() if len(shapes) == 1 else None
    return int(shape[0]) if shape is not None and len(images) == len(samples) else None


register_detector(RelianceOnStatistics())
