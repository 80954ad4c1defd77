"""Whether a model tells classes apart, from one evaluation to the next, and how sure it is beside how often right."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lrptrain.batch.logits import are_beyond, features
from lrptrain.extras import require
from lrptrain.findings.sentences import percent
from lrptrain.metrics.by_chance import agreement, level_of_look
from lrptrain.monitor.evaluation import Evaluation, ExplainedSample

ONE_ANSWER = 0.9
"""From this share of the samples on, an answer is the only one that counts: a choice."""
MOST_DOUBT = 0.1
"""A model is taken as it is while its mean confidence is at most so much below its accuracy: a choice."""
MOST_CONFIDENCE = 0.99
"""Where a model is always right, it is to be as sure as this: a choice, as no power makes it wholly sure."""
MOST_SHARPNESS = 1e4
"""It tells probabilities apart that differ by a ten thousandth of themselves; what differs by less is rounding."""


class Skill:
    """What is known of a model's answers, whatever its maps look like.

    Attributes:
        answer: The single answer that it gave in the last one, in words; "" if there was none.
        is_at_chance: Whether it told classes apart in some evaluation, and in the last one did not.
    """

    def __init__(self) -> None:
        self.learned = False
        self._looks = 0
        self.is_at_chance = False
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
            return f"The model has not learned to distinguish classes: {self.answer}."
        return (
            f"COLLAPSED: the model distinguished classes before, and now {self.answer}. Fix the training first, by a "
            "lower learning rate or a lower weight of the guidance."
        )

    def update(self, evaluation: Evaluation, class_names: Sequence[str], confidence: float) -> bool:
        """Take an evaluation into account; return whether the model has lost what it knew since the one before."""
        before = self.collapsed
        self.answer = single_answer(evaluation, class_names, confidence)
        # Labels of one class, or none, say nothing about that.
        labels = {each.sample.label for each in evaluation.samples if each.sample.label >= 0}
        self._looks += 1
        level = level_of_look(self._looks, 1 - confidence)
        self.learned |= len(labels) > 1 and tells_classes_apart(evaluation, 1 - level)
        self.is_at_chance = self.learned and not tells_classes_apart(evaluation, confidence)
        return self.collapsed and not before


def single_answer(evaluation: Evaluation, class_names: Sequence[str], confidence: float) -> str:
    """Return in words which answer a model gives to nearly all samples, if that is no better than guessing; else "".

    Whatever the maps of such a model look like, they show nothing that it has learned. The labels must be of several
    classes: of samples of one class, one answer is right.
    """
    labelled = [each for each in evaluation.samples if each.sample.label >= 0]
    if len({each.sample.label for each in labelled}) < 2 or tells_classes_apart(evaluation, confidence):
        return ""
    labels, answers = _told(labelled)
    if are_beyond(answers, labels):
        return features(len(class_names), int(labels.max()))
    answer, count = Counter(each.predicted for each in labelled).most_common(1)[0]
    share = count / len(labelled)
    if share < ONE_ANSWER:
        return ""
    accuracy = sum(each.predicted == each.sample.label for each in labelled) / len(labelled)
    # Logits of the steps between grades fall from one to the next.
    hint = "; of grades with a logit a step say task=lrptrain.Ordinal()" if answer == 0 and len(class_names) > 2 else ""
    return (
        f"it predicts '{class_names[answer]}' for {percent(share)} of the samples, and its accuracy of "
        f"{percent(accuracy)} is no better than guessing{hint}"
    )


def tells_classes_apart(evaluation: Evaluation, confidence: float) -> bool:
    """Return whether a model is significantly more often right than its answers would be if they ignored the samples.

    `1 - confidence` is the level of the test, of several labels that of all of them together. Without labels of two
    classes, nothing can be tested: then the model only has to give more than one answer, unless there is one class.
    """
    if several := evaluation.num_labels:
        level = 1 - (1 - confidence) / several
        return any(tells_classes_apart(evaluation.of(label), level) for label in range(several))
    labels, answers = _told(evaluation.samples)
    classes = labels[labels >= 0].unique()
    if are_beyond(answers, labels):
        return False
    if len(classes) < 2:
        return len(classes) == 1 or len(answers.unique()) > 1
    return agreement(answers, labels).p_value <= 1 - confidence


def guessing(evaluation: Evaluation) -> float:
    """Return how many answers would be right if the same ones stood in a random order, in [0, 1]; nan without labels.

    Of several labels it is the mean over them.
    """
    parts = [evaluation.of(label) for label in range(evaluation.num_labels)] or [evaluation]
    found = [agreement(*_told(part.samples)[::-1]) for part in parts]
    judged = sum(each.judged for each in found)
    return sum(each.expected for each in found) / judged if judged else math.nan


def _told(samples: Sequence[ExplainedSample]) -> tuple[Tensor, Tensor]:
    return torch.tensor([each.sample.label for each in samples]), torch.tensor([each.predicted for each in samples])


def sharpness(probabilities: Float[np.ndarray, "samples classes"], labels: Int[np.ndarray, " samples"]) -> float:
    """Return the power that makes the mean confidence of a doubtful model equal its accuracy.

    A model whose probabilities are all near each other moves by no more than a few points, whatever it relies on: a
    loss that punishes confident answers makes such models, and an effect measured in probabilities would find
    them to rely on nothing. Temperature scaling (Guo et al. 2017, "On calibration of modern neural networks") fits one
    number on the labelled samples; here it only ever sharpens.

    Returns:
        1 where the model is sure enough, or no label is known; else up to 1e4, for `sharpened`.
    """
    labelled = labels >= 0
    if not labelled.any():
        return 1.0
    of_labelled = probabilities[labelled]
    accuracy = float((of_labelled.argmax(1) == labels[labelled]).mean())
    if accuracy - of_labelled.max(1).mean() <= MOST_DOUBT:
        return 1.0
    wanted = min(accuracy, MOST_CONFIDENCE)

    def excess(exponent: float) -> float:
        return float(sharpened(of_labelled, float(np.exp(exponent))).max(1).mean() - wanted)

    # The mean confidence rises with the power.
    highest = float(np.log(MOST_SHARPNESS))
    if excess(highest) < 0:
        return MOST_SHARPNESS
    return float(np.exp(require("scipy.optimize", "monitor").brentq(excess, 0.0, highest)))


def sharpened(
    probabilities: Float[np.ndarray, "samples classes"], power: float
) -> Float[np.ndarray, "samples classes"]:
    """Return probabilities to a power, made to sum to 1 again: those of logits that are so many times as large."""
    if power == 1.0:
        return probabilities
    with np.errstate(divide="ignore"):
        logits = power * np.log(probabilities)
    raised = np.exp(logits - logits.max(1, keepdims=True))
    return raised / raised.sum(1, keepdims=True)
