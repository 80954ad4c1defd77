"""What findings on a property of the whole input share: it lies nowhere, so that no map suspects it."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from lrptrain.extras import require
from lrptrain.findings.detector import DetectionConfig, Detector
from lrptrain.findings.evaluation import Evaluation
from lrptrain.findings.finding import Finding
from lrptrain.findings.scopes import OVERALL
from lrptrain.findings.wording import intervention_sentence
from lrptrain.cues.boxes import Box
from lrptrain.intervention.placement import evidence_boxes
from lrptrain.intervention.regions import images_of

MOST_JUDGED = 32
"""So many samples at most are changed, each by two forward passes.

Changes lie in [-1, 1]: with a deviation of 0.3, the standard error of the mean of 32 is 0.05, far below the least
effect.
"""
TELLING = 0.5
"""From this association on, a property tells the class. In development runs (experiments/detection), what lies along
the edges of clean photographs has up to 0.52, of two classes of animals, and that of planted patterns 0.62 and more."""


class UnlocatedReliance(Detector):
    """The prediction follows a property of the whole input.

    A sound model may use it, too, and its answers move a little: hence the large `least_effect`; and where the property
    tells the classes apart rightly, the finding is right and no fault, which a person has to judge.

    Attributes:
        changed: What the intervention swaps, in words.
        least_effect_if_telling: The `least_effect` where the property tells the class of these images: there is much to
            gain by reading it, while a sound model follows what tells little by accident. None for no other one.
        nowhere: Why no map can show it.
        told_by: Which part of the images tells the class by the property, in words.
    """

    least_effect = 0.3
    reported_unconfirmed = False
    is_fault = False
    changed: str
    least_effect_if_telling: float | None = None
    nowhere = "it lies at no place"
    told_by = "it"

    def least_effect_of(self, finding: Finding) -> float:
        """Return how far the answers have to move, depending on how well the property tells the class."""
        if self.least_effect_if_telling is None or not tells(finding):
            return self.least_effect
        return self.least_effect_if_telling

    def relevance_sentence(self, finding: Finding) -> str:
        """Return that no map could show it, and whether it tells the class of these images."""
        sentence = f"no map can show it, for {self.nowhere}"
        if not tells(finding):
            return sentence
        return f"{sentence}; {self.told_by} tells the class of these images (kappa {finding.association:.2f})"

    def intervention_sentence(self, finding: Finding) -> str:
        """Return what swapping the property does."""
        return intervention_sentence(finding, self.changed)

    def finding(self, evaluation: Evaluation, config: DetectionConfig, where: str) -> Finding:
        """Return the finding on all samples, suspected.

        Args:
            evaluation: What was explained, and when.
            config: The level of intervals and tests.
            where: The property, in words.
        """
        return Finding(
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


def tells(finding: Finding) -> bool:
    """Return whether a property is known to tell the class of the images."""
    return finding.association is not None and finding.association >= TELLING


def annotated_objects(evaluation: Evaluation) -> tuple[Int[np.ndarray, " annotated"], list[Box]]:
    """Return which images have an annotated object, and the box of each.

    There are none where no intervention will follow, of texts, and of images that differ in shape: no object could be
    put where that of another image lies.
    """
    none: tuple[Int[np.ndarray, " 0"], list[Box]] = (np.empty(0, int), [])
    # Without a grid, what is called an image may be a table or a series.
    if evaluation.inputs is None or evaluation.grid is None:
        return none
    images = images_of(evaluation.inputs)
    if len({image.shape for image in images}) != 1 or len(images) < len(evaluation.inputs):
        return none
    boxes = {i: box for i, box in enumerate(evidence_boxes(evaluation.inputs, evaluation.grid)) if box is not None}
    return np.array([*boxes], int), [*boxes.values()]


def judged_rows(count: int) -> Int[np.ndarray, " judged"]:
    """Return all rows of a few, of more every second one, and of many an even choice.

    The samples of an evaluation stand in the order of their classes: every second one leaves the classes their shares.
    The half of a few would be too few: of 16, a mean of 0.1 lies above 0.25 now and then.
    """
    rows = np.arange(0, count, 2) if count >= 2 * MOST_JUDGED else np.arange(count)
    return np.asarray(rows[evenly(len(rows), MOST_JUDGED)])


def evenly(count: int, most: int) -> Int[np.ndarray, " chosen"]:
    """Return at most so many indices, evenly spread."""
    return np.asarray(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def any_goes_with_the_answer(
    properties: Sequence[Sequence[float]] | Float[np.ndarray, "properties n"],
    predicted: Int[np.ndarray, " n"],
    confidence: float,
) -> bool:
    """Return whether one of several numbers of each sample tells anything of its predicted class.

    All tests together are wrong no more often than a single one would be (Bonferroni).

    Args:
        properties: The numbers of all samples, one property after the other.
        predicted: The predicted class of each sample.
        confidence: `1 - confidence` is the level of all tests together.
    """
    level = 1 - (1 - confidence) / len(properties)
    return any(goes_with_the_answer(values, predicted, level) for values in properties)


def goes_with_the_answer(
    values: Sequence[float] | Float[np.ndarray, " n"], predicted: Int[np.ndarray, " n"], confidence: float
) -> bool:
    """Return whether a number of each sample tells anything of its predicted class: it costs no forward pass.

    What a model relies on goes with its answers. By the test of Kruskal and Wallis (1952), on ranks.

    Args:
        values: The number, such as the length of a text.
        predicted: The predicted class of each sample.
        confidence: `1 - confidence` is the level of the test.
    """
    numbers = np.asarray(values, dtype=float)
    groups = [numbers[predicted == label] for label in np.unique(predicted)]
    # Of equal numbers there are no ranks to compare.
    if len(groups) < 2 or np.ptp(numbers) == 0:
        return False
    return bool(require("scipy.stats", "monitor").kruskal(*groups).pvalue <= 1 - confidence)
