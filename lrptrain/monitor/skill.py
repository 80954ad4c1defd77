"""Whether a model tells classes apart, from one evaluation to the next: one that ceases to has collapsed."""

from collections.abc import Sequence

from lrptrain.metrics.by_chance import level_of_look
from lrptrain.monitor.collapse import single_answer, tells_classes_apart
from lrptrain.monitor.evaluation import Evaluation


class Skill:
    """What is known of a model's answers, whatever its maps look like.

    Attributes:
        learned: Whether it told classes apart in some evaluation.
        answer: The single answer that it gave in the last one, in words; "" if there was none.
        held_back: Why it does not learn, where its training says so and its answers bear it out; "" else.
        is_at_chance: Whether it told classes apart in some evaluation, and in the last one did not.
    """

    def __init__(self) -> None:
        self.learned = False
        self._looks = 0
        self.is_at_chance = False
        self.answer = ""
        self.held_back = ""

    @property
    def collapsed(self) -> bool:
        """Whether it told classes apart, and now gives one answer; or does not come to learn anything."""
        return self._has_lost or bool(self.held_back)

    @property
    def _has_lost(self) -> bool:
        return self.learned and bool(self.answer)

    @property
    def text(self) -> str:
        """What is to be said of a model that gives one answer, or is kept from learning; "" of any other."""
        if self.held_back:
            return f"NOT LEARNED: {self.held_back}."
        if not self.answer:
            return ""
        if not self.learned:
            return f"The model has not learned to tell classes apart: {self.answer}."
        return (
            f"COLLAPSED: the model told classes apart before, and now {self.answer}. Mend its training before you read "
            "its maps: a lower learning rate, or a lower weight of the guidance."
        )

    def update(
        self, evaluation: Evaluation, class_names: Sequence[str], confidence: float, held_back: str = ""
    ) -> bool:
        """Take an evaluation into account; return whether the model has lost what it knew since the one before.

        Args:
            evaluation: The samples.
            class_names: The name of each class, in the order of the logits.
            confidence: As for `tells_classes_apart`.
            held_back: Why its training says that it does not learn, without a full stop; "" if it does not say so.
        """
        before = self._has_lost
        self.answer = single_answer(evaluation, class_names, confidence)
        # Labels of one class, or none, say nothing about that.
        labels = {each.sample.label for each in evaluation.samples if each.sample.label >= 0}
        self._looks += 1
        level = level_of_look(self._looks, 1 - confidence)
        self.learned |= len(labels) > 1 and tells_classes_apart(evaluation, 1 - level)
        tells_apart = tells_classes_apart(evaluation, confidence)
        self.is_at_chance = self.learned and not tells_apart
        # The training has said so itself: it is not said twice, but kept for the page and the end of the run.
        self.held_back = "" if tells_apart else held_back
        return self._has_lost and not before
