"""Does a weight of the user's own keep the task from being learned? A map that looks right would hide it."""

import math
from collections import deque
from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from lrptrain.batch.matters import LEVEL
from lrptrain.metrics.by_chance import Agreement, agreement, level_of_look

BOUND_EVERY_N_BATCHES = 10
"""In one batch of so many gradients are compared, for the bound or for what is said here: a choice, for time."""
IN_A_ROW = 3
"""So many comparisons, or evaluations, in a row must show it. That of the first batch, before anything is learned, is
none of them. A model that has lost a shortcut may be at chance for one or two, before it learns what is harder."""


class Dominance:
    """Watches a guidance that the task's gradient does not bound.

    It is told of in two cases. The model has learned nothing, and the guidance's gradient is longer than the task's (in
    the geometric mean of the last comparisons): either is no fault by itself, for a trained model that is mended has
    hardly any gradient of the task left, and one that is trained from random weights takes its time. Or the model had
    learned the task, and its answers are right by chance alone again.

    Args:
        watches: Whether there is anything to watch.

    Attributes:
        text: What is to be said of it while it is so, without a full stop; "" else.
        losses: The names of all that guides the model, for whoever watches it.
    """

    text: str
    _answers: deque[tuple[Int[Tensor, " n"], Int[Tensor, " n"]]]
    _ratios: deque[float]

    def __init__(self, watches: bool) -> None:
        self.watches = watches
        self.losses: Sequence[str] = ()
        self.start_over()

    def start_over(self) -> None:
        """Forget what was measured."""
        self.text = ""
        self._has_learned = False
        self._looks = 0
        self._by_chance = True
        self._answers = deque(maxlen=BOUND_EVERY_N_BATCHES)
        self._ratios = deque(maxlen=IN_A_ROW)

    def judges(self, batch_idx: int) -> bool:
        """Return whether to look at the answers after this batch."""
        return self.watches and batch_idx % BOUND_EVERY_N_BATCHES == 0

    def compares(self, batch_idx: int) -> bool:
        """Return whether to compare gradients in this batch: in those of `judges`, while nothing is learned."""
        return self._by_chance and not self._has_learned and self.judges(batch_idx)

    def note(self, answers: Int[Tensor, " n"], labels: Int[Tensor, " n"]) -> None:
        """Keep what the model answered in a guided batch; a negative label is none."""
        self._answers.append((answers, labels))

    def agreement(self) -> Agreement:
        """Return how often the answers of this process were right in the last guided batches."""
        if not self._answers:
            return Agreement(0.0, 0.0, 0.0, 0.0)
        answers, labels = (torch.cat(column).cpu() for column in zip(*self._answers, strict=True))
        return agreement(answers, labels)

    def update(self, found: Agreement, ratio: float | None, is_first: bool) -> bool:
        """Take the last answers into account; return whether there is something to be said that was not so before.

        Args:
            found: The answers of all processes in the last guided batches.
            ratio: The norm of the guidance's gradient, as it is applied, over that of the task's; None where they were
                not compared.
            is_first: Whether this is before the first step of the training.
        """
        before = bool(self.text)
        self._looks += 1
        self._by_chance = found.judged > 0 and found.p_value > LEVEL
        if not self._by_chance:
            self._ratios.clear()
        elif ratio is not None and not is_first and math.isfinite(ratio) and ratio > 0:
            self._ratios.append(ratio)
        self._has_learned |= found.p_value <= level_of_look(self._looks)
        self.text = self._reason() if self._by_chance else ""
        return bool(self.text) and not before

    def _reason(self) -> str:
        """Return why answers are right by chance alone; "" where it is not known to be the guidance."""
        way_out = "Leave out its weights, and the task's gradient bounds it; or give smaller ones"
        if self._has_learned:
            return f"under the guidance, the model has lost what it had learned of its task. {way_out}"
        ratio = math.exp(sum(map(math.log, self._ratios)) / max(len(self._ratios), 1))
        if len(self._ratios) < IN_A_ROW or ratio <= 1:
            return ""
        return (
            f"the guidance keeps the task from being learned: its gradient is {ratio:.1f} times as long as the task's, "
            f"and the answers are right by chance alone. {way_out}"
        )
