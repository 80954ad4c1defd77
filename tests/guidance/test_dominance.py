"""Whether a guidance that nothing bounds keeps a model from learning."""

import math

import torch

from lrptrain.guidance.dominance import BOUND_EVERY_N_BATCHES, IN_A_ROW, Dominance
from lrptrain.metrics.by_chance import Agreement, agreement

CHANCE = Agreement(50.0, 50.0, 25.0, 100.0)
SOME = Agreement(62.0, 50.0, 25.0, 100.0)  # 2.4 standard deviations: no chance, and no proof
LEARNED = Agreement(95.0, 50.0, 25.0, 100.0)
UNKNOWN = Agreement(0.0, 0.0, 0.0, 0.0)


def test_samples_without_a_label_do_not_count():
    watch = Dominance(True)
    watch.note(torch.tensor([0, 1, 1]), torch.tensor([0, 1, -1]))
    watch.note(torch.tensor([1, 0]), torch.tensor([1, -1]))
    assert watch.agreement() == agreement(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 1]))


def test_answers_are_looked_at_once_in_so_many_batches_and_only_where_it_watches():
    batches = [number for number in range(100) if Dominance(True).judges(number)]
    assert batches == list(range(0, 100, BOUND_EVERY_N_BATCHES))
    assert not Dominance(False).judges(0)


def told(*evidence):
    """After which updates something is said: (answers, ratio) each, the first before any step."""
    watch = Dominance(True)
    return [watch.update(found, ratio, i == 0) for i, (found, ratio) in enumerate(evidence)], watch


def test_it_takes_comparisons_in_a_row():
    lines, watch = told(*[(CHANCE, 3.0)] * (IN_A_ROW + 2))
    assert lines == [False] * IN_A_ROW + [True, False]  # the first comparison does not count, and it is said once
    assert "its gradient is 3.0 times as long as the task's" in watch.text
    assert not any(told((CHANCE, 9.0), (CHANCE, 9.0), (SOME, 9.0), (CHANCE, 9.0), (CHANCE, 9.0))[0])


def test_neither_a_short_gradient_nor_a_model_that_learns_is_told_of():
    assert not any(told(*[(CHANCE, 0.9)] * 9)[0])
    assert not any(told(*[(CHANCE, ratio) for ratio in (1.0, 2.3, 0.6, 0.1)])[0])  # digits at a weight of 10
    assert not any(told(*[(LEARNED, 50.0)] * 9)[0])
    assert not any(told(*[(UNKNOWN, 50.0)] * 9)[0])
    assert not any(told(*[(CHANCE, math.nan)] * 9)[0])
    assert not any(told(*[(CHANCE, None)] * 9)[0])


def test_what_was_learned_and_is_lost_is_told_at_once_and_again():
    lines, watch = told((CHANCE, 0.1), (LEARNED, None), (CHANCE, None), (LEARNED, None), (CHANCE, None))
    assert lines == [False, False, True, False, True]
    assert watch.text.startswith("under the guidance, the model has lost what it had learned")
    # A lucky guess is nothing that could be lost.
    assert not any(told((CHANCE, 0.1), (SOME, None), (CHANCE, None))[0])


def test_gradients_are_compared_until_something_is_learned():
    watch = Dominance(True)
    assert [batch for batch in range(41) if watch.compares(batch)] == [0, 10, 20, 30, 40]
    watch.update(LEARNED, None, False)
    assert not any(watch.compares(batch) for batch in range(41))
    assert [batch for batch in range(41) if watch.judges(batch)] == [0, 10, 20, 30, 40]
    assert not any(Dominance(False).judges(batch) for batch in range(41))
    watch.update(CHANCE, None, False)
    watch.start_over()
    assert watch.compares(0)
    assert not watch.text
