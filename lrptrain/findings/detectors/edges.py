"""Does the prediction follow what lies along the edges of images? It takes no annotation, and few samples."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from lrptrain.findings.detector import Candidate, DetectionConfig, Detector, register_detector
from lrptrain.findings.detectors.shares import high_share_finding
from lrptrain.findings.detectors.statistics import property_of
from lrptrain.findings.detectors.unlocated import evenly
from lrptrain.findings.evaluation import Evaluation
from lrptrain.findings.figures import objects_reach_the_edges
from lrptrain.findings.finding import Finding
from lrptrain.findings.scopes import OVERALL
from lrptrain.findings.wording import intervention_sentence
from lrptrain.intervention import Region
from lrptrain.intervention.edges import along_edges
from lrptrain.intervention.regions import images_of

MOST_JUDGED = 64
"""So many samples at most are changed, each by two forward passes.

No map has chosen any of them, so that none has to be kept apart. Changes deviate by about 0.35: the standard error of
the mean of 32 is 0.06, of 64 it is 0.04.
"""


class RelianceOnEdges(Detector):
    """The prediction follows what lies along the edges: a dot in any corner, a frame, the surroundings' tint or grain.

    Without annotations nobody has said where the objects are. They lie in the middle more often than not, so that what
    another image has along its edges tells a sound model little. It is tested in every evaluation of images without
    annotations, whatever the maps: a dot lies elsewhere in every image, and thirty-two images of six classes hold too
    few of any class to show what theirs have in common.

    A person judges it: an object may reach to the edge, and the sea around a ship be right. Where images show figures
    on a plain ground, it is seen whether most of what lies along their edges belongs to these: then nothing is tested.
    """

    kind = "reliance_on_edges"
    title = "The prediction relies on what lies along the edges"
    order = 57
    least_effect = 0.35
    reported_unconfirmed = False
    seen_at_places = True
    is_fault = False
    remedy = 'if wrong, guidance by "swap", swap="edges": docs/how-to/guidance.md'

    def place(self, finding: Finding) -> str:
        """Return what the model relies on, as a noun."""
        return "what lies along the image's edges"

    def intervention_sentence(self, finding: Finding) -> str:
        """Return what swapping the edges does."""
        return intervention_sentence(finding, "the edges of the image")

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return the images, if they have one shape and no annotation, and an intervention will follow."""
        annotated = any(explained.annotated is not None for explained in evaluation.samples)
        if annotated or evaluation.inputs is None or evaluation.grid is None or property_of(evaluation) is None:
            return
        plain = evaluation.plain_ground
        if plain is not None and objects_reach_the_edges(plain):
            return
        rows = evenly(len(evaluation.samples), MOST_JUDGED)
        image = images_of(evaluation.inputs)[0]
        covered = _covered((image.shape[1], image.shape[2]), evaluation.grid)
        finding = high_share_finding(
            self,
            evaluation,
            config,
            OVERALL,
            "the edges of the image",
            rows,
            evaluation.shares[rows] @ covered,
            reference=float(covered.mean()),
        )
        yield Candidate(finding, Region("edges"), rows)


def _covered(size: tuple[int, int], grid: tuple[int, int]) -> Float[np.ndarray, " tokens"]:
    """Return which part of every patch, in [0, 1], lies along the edges.

    Args:
        size: Height and width of the images in pixels.
        grid: Rows and columns of the patches.
    """
    edges = along_edges(size).numpy()
    # e.g. 10 rows of pixels in 4 of patches: the patch of row 3 is 3 * 4 // 10 = 1.
    rows, columns = (np.arange(side) * parts // side for side, parts in zip(size, grid, strict=True))
    patch = (rows[:, None] * grid[1] + columns).ravel()
    inside = np.bincount(patch, weights=edges.ravel(), minlength=grid[0] * grid[1])
    return inside / np.maximum(np.bincount(patch, minlength=grid[0] * grid[1]), 1)


register_detector(RelianceOnEdges())
