"""Has training come to nothing: does a model give one answer to nearly everything?"""

from collections import Counter
from collections.abc import Sequence

from lrptrain.findings.evaluation import Evaluation
from lrptrain.findings.suspicion import tells_classes_apart
from lrptrain.findings.wording import percent

ONE_ANSWER = 0.9
"""From this share of the samples on, an answer is the only one that counts."""


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
    return (
        f"it answers '{class_names[answer]}' for {percent(share)} of the samples, and is right in {percent(accuracy)}, "
        "as by chance"
    )
