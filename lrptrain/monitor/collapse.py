"""Does a model tell classes apart, or has training come to nothing: one answer to nearly everything?"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from lrptrain.extras import require
from lrptrain.findings.sentences import percent
from lrptrain.monitor.evaluation import Evaluation

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
    # Logits of the steps between grades fall from one to the next.
    hint = "; of grades with a logit a step say task=lrptrain.Ordinal()" if answer == 0 and len(class_names) > 2 else ""
    return (
        f"it answers '{class_names[answer]}' for {percent(share)} of the samples, and is right in {percent(accuracy)}, "
        f"as by chance{hint}"
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


def tells_classes_apart(evaluation: Evaluation, confidence: float) -> bool:
    """Return whether a model is surely right more often than its answers would be if they ignored the samples.

    If answers and labels had nothing to do with each other, the accuracy would be the sum over the classes of the share
    of the labels times the share of the answers (the agreement by chance in Cohen's kappa, 1960). The accuracy has to
    lie above it by an exact binomial test. Without labels of two classes, nothing can be tested: then the model only
    has to give more than one answer, unless all labels are one class.

    Args:
        evaluation: The samples.
        confidence: `1 - confidence` is the level of the test; of several labels, of all of them together.
    """
    if several := evaluation.num_labels:
        level = 1 - (1 - confidence) / several
        return any(tells_classes_apart(evaluation.of(label), level) for label in range(several))
    labels = np.array([each.sample.label for each in evaluation.samples])
    answers = np.array([each.predicted for each in evaluation.samples])
    labelled = labels >= 0
    classes = np.unique(labels[labelled])
    if len(classes) < 2:
        return len(classes) == 1 or len(np.unique(answers)) > 1
    labels = labels[labelled]
    answers = answers[labelled]
    # e.g. labels half and half, and one answer given to 90 % of the samples: 0.5 * 0.9 + 0.5 * 0.1 = 0.5.
    by_chance = float(sum((labels == each).mean() * (answers == each).mean() for each in classes))
    right = int((labels == answers).sum())
    if by_chance in (0.0, 1.0):  # no answer is a class that is there; or all are, with one label
        return by_chance == 0.0 and right > 0
    test = require("scipy.stats", "monitor").binomtest(right, len(labels), by_chance, alternative="greater")
    return bool(test.pvalue <= 1 - confidence)
