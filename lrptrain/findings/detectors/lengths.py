"""Does the prediction follow the length of a text? It takes no map and no annotation."""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Int
from torch import Tensor

from lrptrain.batch import Sample
from lrptrain.findings.detector import Candidate, DetectionConfig, register_detector
from lrptrain.findings.detectors.unlocated import UnlocatedReliance, goes_with_the_answer, judged_rows
from lrptrain.findings.evaluation import Evaluation
from lrptrain.intervention import Region
from lrptrain.intervention.lengths import are_single_texts, inner_tokens


class RelianceOnLength(UnlocatedReliance):
    """The prediction follows how long a text is, as where one class was collected from longer texts.

    It is only tested where lengths go with the predicted classes: on most data they do not, and it costs nothing.
    """

    kind = "reliance_on_length"
    title = "The prediction relies on the length of texts"
    order = 75
    remedy = 'if wrong, guidance by swap="length": docs/how-to/guidance.md'
    changed = "the length"

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return half of the texts, if an intervention will follow and their lengths go with the answers."""
        is_text = all(explained.content_ids is not None for explained in evaluation.samples)
        if evaluation.inputs is None or not is_text or not has_single_segments(evaluation.inputs):
            return
        predicted = np.array([explained.predicted for explained in evaluation.samples])
        if goes_with_the_answer(lengths(evaluation.inputs), predicted, config.confidence):
            finding = self.finding(evaluation, config, "the length of texts")
            yield Candidate(finding, Region("length"), judged_rows(len(evaluation.samples)))


def lengths(samples: Sequence[Sample]) -> Int[np.ndarray, " n"]:
    """Return the number of tokens of every text, without the special ones at its ends."""
    return np.array([int(inner_tokens(_alone(sample)).sum()) for sample in samples])


def has_single_segments(samples: Sequence[Sample]) -> bool:
    """Return whether no text is a pair, such as a question and an answer: which of the two is too long is open."""
    return are_single_texts([_alone(sample) for sample in samples])


def _alone(sample: Sample) -> dict[str, Tensor]:
    """Return a batch of one text."""
    return {name: values[None] for name, values in sample.tensors.items()}


register_detector(RelianceOnLength())
