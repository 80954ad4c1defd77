"""Whether a model tells classes apart, from one evaluation to the next: one that ceases to has collapsed."""

from collections.abc import Sequence

from lrptrain.findings.collapse import single_answer
from lrptrain.findings.evaluation import Evaluation
from lrptrain.findings.suspicion import tells_classes_apart

SURELY_LEARNED = 0.999
"""The least level at which a model counts as one that has told classes apart. It is tested in each evaluation: at 0.95,
38 of 100 models that only guess would pass once in ten, and be said to have collapsed when they give one answer.
"""


class Skill:
    """What is known of a model's answers, whatever its maps look like.

    Attributes:
        learned: Whether it told classes apart in some evaluation.
        answer: The single answer that it gave in the last one, in words; "" if there was none.
    """

    def __init__(self) -> None:
        self.learned = False
        self.answer = ""

    @property
    def collapsed(self) -> bool:
        """Whether it told classes apart, and now gives one answer."""
        return self.learned and bool(self.answer)

    @property
    def text(self) -> str:
        """What is to be said of a model that gives one answer; "" of any other."""
        if not self.answer:
            return ""
        if not self.learned:
            return f"The model has not learned to tell classes apart: {self.answer}."
        return (
            f"COLLAPSED: the model told classes apart before, and now {self.answer}. Mend its training before you read "
            "its maps: a lower learning rate, or a lower weight of the guidance."
        )

    def update(self, evaluation: Evaluation, class_names: Sequence[str], confidence: float) -> bool:
        """Take an evaluation into account; return whether the model has collapsed since the one before.

        Args:
            evaluation: The samples.
            class_names: The name of each class, in the order of the logits.
            confidence: As for `tells_classes_apart`.
        """
        before = self.collapsed
        self.answer = single_answer(evaluation, class_names, confidence)
        # Labels of one class, or none, say nothing about that.
        labels = {each.sample.label for each in evaluation.samples if each.sample.label >= 0}
        self.learned |= len(labels) > 1 and tells_classes_apart(evaluation, max(SURELY_LEARNED, confidence))
        return self.collapsed and not before
