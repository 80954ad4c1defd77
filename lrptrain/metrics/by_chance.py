"""Are answers right more often than by chance? One test, whoever asks: a guided training, and each evaluation."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from lrptrain.batch.matters import LEVEL


class Agreement(NamedTuple):
    """How often answers are right, beside how often they would be in a random order; sums over several processes add.

    Attributes:
        right: The answers that are right.
        expected: The mean of that over all orders of the answers.
        variance: Its variance over all orders.
        judged: The labelled samples; 0 where all have one label, of which no answer can be told from chance.
    """

    right: float
    expected: float
    variance: float
    judged: float

    @property
    def p_value(self) -> float:
        """How often as many answers would be right, if they ignored the samples; 1 where all answers are one.

        Two answers that change places move the number of right ones by up to 2. In such steps it is taken for a Poisson
        number of the same variance: of rare classes that is nearly so (Barbour, Holst & Janson 1992), where a normal
        number would take one lucky hit for skill, and of frequent ones it is on the safe side.
        """
        steps = (self.right - self.expected + self.variance / 2) / 2
        if self.variance <= 0 or steps <= 0:
            return 1.0
        # The chance that a Poisson number is at least `steps`, also between whole numbers.
        return float(torch.special.gammainc(torch.tensor(steps).double(), torch.tensor(self.variance / 4).double()))


def agreement(answers: Int[Tensor, " n"], labels: Int[Tensor, " n"]) -> Agreement:
    """Return how often answers are right, and what it would be if they stood in a random order.

    The mean and the variance over all orders are exact (Hoeffding 1951).
    """
    answers, labels = answers[labels >= 0], labels[labels >= 0]
    count = len(labels)
    classes = torch.cat([answers, labels]).unique()
    answered = (answers[:, None] == classes).double().sum(0)
    wanted = (labels[:, None] == classes).double().sum(0)
    if int((wanted > 0).sum()) < 2:
        return Agreement(0.0, 0.0, 0.0, 0.0)
    expected = float(answered @ wanted) / count
    # Of the matrix that is 1 where an answer is a label: what is left of it less the means of its rows and columns.
    # Samples of one class have equal rows and columns, so that those of the classes do.
    rest = torch.eye(len(classes), dtype=torch.double) - wanted[:, None] / count - answered / count + expected / count
    variance = float((answered[:, None] * wanted * rest**2).sum()) / (count - 1)
    return Agreement(float((answers == labels).sum()), expected, variance, float(count))


def level_of_look(number: int, level: float = LEVEL) -> float:
    """Return the level of one look among all of a run, in which luck passes for skill as often as `level` says.

    Shares of the level fall with the square of the number: 1 + 1/4 + 1/9 ... is pi^2 / 6, however long a run continues.
    """
    return level * 6 / (math.pi * number) ** 2
