"""Has training come to nothing: does a model give one answer to nearly everything?"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from lrptrain.findings.evaluation import Evaluation
from lrptrain.findings.suspicion import tells_classes_apart
from lrptrain.findings.wording import percent

ONE_ANSWER = 0.9
"""From this share of the samples on, an answer is the only one that counts."""


ORDERS = 999
"""So many random orders of the answers are compared with the one that was given."""


def single_answer(evaluation: Evaluation, class_names: Sequence[str], confidence: float) -> str:
    """Return in words which answer a model gives to nearly all samples, if that is right by chance alone; else "".

    Whatever the maps of such a model look like, they show nothing that it has learned. The labels must be of several
    classes: of samples of one class, one answer is right.

    Args:
        evaluation: The samples.
        class_names: The name of each class, in the order of the logits.
        confidence: `1 - confidence` is the level of the test in `tells_classes_apart`.
    """
    labelled = [each for each in evaluation.samples if each.sample.label >= 0]
    if len({each.sample.label for each in labelled}) < 2 or tells_classes_apart(evaluation, confidence):
        return ""
    answer, count = Counter(each.predicted for each in labelled).most_common(1)[0]
    share = count / len(labelled)
    labels = np.array([each.sample.label for each in labelled])
    answers = np.array([each.predicted for each in labelled])
    if share < ONE_ANSWER or _surely_knows(labels, answers, confidence):
        return ""
    accuracy = float((answers == labels).mean())
    return (
        f"it answers '{class_names[answer]}' for {percent(share)} of the samples, and is right in {percent(accuracy)}, "
        "as by chance"
    )


def _surely_knows(labels: Int[np.ndarray, " n"], answers: Int[np.ndarray, " n"], confidence: float) -> bool:
    """Return whether the few other answers are right more often than by chance, by a permutation test.

    A model that finds 8 of 64 rare positives, and none that is not there, is right in 56 %: its accuracy does not tell
    it from chance, but only 3 in 1000 orders of its answers are as often right.
    """
    right = (answers == labels).sum()
    rng = np.random.default_rng(0)
    as_often = sum((rng.permutation(answers) == labels).sum() >= right for _ in range(ORDERS))
    # The observed order is one of them, or a p-value could be 0.
    return bool((as_often + 1) / (ORDERS + 1) <= 1 - confidence)
