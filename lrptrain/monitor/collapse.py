"""Does a model tell classes apart, or has training come to nothing: one answer to nearly everything?"""

from collections import Counter
from collections.abc import Sequence

import torch

from lrptrain.findings.sentences import percent
from lrptrain.metrics.by_chance import agreement
from lrptrain.monitor.evaluation import Evaluation

ONE_ANSWER = 0.9
"""From this share of the samples on, an answer is the only one that counts: a choice."""


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
    if share < ONE_ANSWER:
        return ""
    accuracy = sum(each.predicted == each.sample.label for each in labelled) / len(labelled)
    # Logits of the steps between grades fall from one to the next.
    hint = "; of grades with a logit a step say task=lrptrain.Ordinal()" if answer == 0 and len(class_names) > 2 else ""
    return (
        f"it answers '{class_names[answer]}' for {percent(share)} of the samples, and is right in {percent(accuracy)}, "
        f"as by chance{hint}"
    )


def tells_classes_apart(evaluation: Evaluation, confidence: float) -> bool:
    """Return whether a model is surely right more often than its answers would be if they ignored the samples.

    Without labels of two classes, nothing can be tested: then the model only has to give more than one answer, unless
    all labels are one class.

    Args:
        evaluation: The samples.
        confidence: `1 - confidence` is the level of the test; of several labels, of all of them together.
    """
    if several := evaluation.num_labels:
        level = 1 - (1 - confidence) / several
        return any(tells_classes_apart(evaluation.of(label), level) for label in range(several))
    labels = torch.tensor([each.sample.label for each in evaluation.samples])
    answers = torch.tensor([each.predicted for each in evaluation.samples])
    classes = labels[labels >= 0].unique()
    if len(classes) < 2:
        return len(classes) == 1 or len(answers.unique()) > 1
    return agreement(answers, labels).p_value <= 1 - confidence
