"""Does the prediction follow the mean and the spread of an image's channels? It takes no map and no annotation."""

from collections.abc import Iterator

from lrptrain.findings.association import association, can_be_told
from lrptrain.findings.detector import Candidate, DetectionConfig, register_detector
from lrptrain.findings.detectors.unlocated import TELLING, UnlocatedReliance, judged_rows
from lrptrain.findings.evaluation import Evaluation
from lrptrain.findings.figures import colours
from lrptrain.intervention import Region
from lrptrain.intervention.regions import images_of


class RelianceOnStatistics(UnlocatedReliance):
    """The prediction follows colour and contrast, as with a tint, a scanner's brightness or a camera's white balance.

    It is tested in every evaluation. In experiments/detection the answers of clean models moved
    up to 0.16 further than under the control (of ten classes of photographs, 0.31), and those of models that read a
    tint 0.9.
    """

    kind = "reliance_on_statistics"
    title = "The prediction relies on colour and contrast"
    order = 70
    least_effect = 0.4
    remedy = 'if wrong, guidance by "swap", swap="statistics": docs/how-to/guidance.md'
    changed = "mean and spread of the channels"

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return some images, if an intervention will follow and they have one shape.

        Of figures on a plain ground, mean and spread are how large the figure is. There, the colours of ground and
        figure have to tell the class.
        """
        where = property_of(evaluation)
        if where is not None and not _tell_sizes(evaluation):
            finding = self.finding(evaluation, config, where)
            yield Candidate(finding, Region("statistics"), judged_rows(len(evaluation.samples)))


def _tell_sizes(evaluation: Evaluation) -> bool:
    """Return whether the statistics are those of figures whose colours surely do not tell the class."""
    plain = evaluation.plain_ground
    if plain is None or not can_be_told(evaluation.labels):
        return False
    return association(colours(images_of(evaluation.inputs or ()), plain), evaluation.labels) < TELLING


def property_of(evaluation: Evaluation) -> str | None:
    """Return what the statistics of images are, in words; None for what has none that could be swapped.

    That are texts, images that differ in shape, and evaluations without an intervention.
    """
    # Without a grid, what is called an image may be a table or a series: it has no channels.
    if evaluation.inputs is None or evaluation.grid is None:
        return None
    images = images_of(evaluation.inputs)
    shapes = {image.shape for image in images}
    if len(shapes) != 1 or len(images) < len(evaluation.inputs):
        return None
    # Not 'colour' where there is but one channel.
    return "colour and contrast" if shapes.pop()[0] > 1 else "brightness and contrast"


register_detector(RelianceOnStatistics())
