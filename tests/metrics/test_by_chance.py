"""Answers that are right more often than by chance, against all orders of the answers."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import hypergeom

from lrptrain.batch.matters import LEVEL
from lrptrain.metrics.by_chance import Agreement, agreement, level_of_look


@pytest.mark.parametrize(
    ("answers", "labels"),
    [([0, 0, 1, 2, 2], [0, 1, 1, 2, 0]), ([1, 1, 1, 1], [0, 1, 1, 0]), ([3, 0, 0, 1, 1, 0], [0, 0, 1, 1, 0, 1])],
)
def test_chance_is_all_orders_of_the_answers(answers, labels):
    right = [sum(map(int.__eq__, order, labels)) for order in itertools.permutations(answers)]
    found = agreement(torch.tensor([*answers, 1]), torch.tensor([*labels, -1]))
    assert found.right == sum(map(int.__eq__, answers, labels))
    assert found.expected == pytest.approx(np.mean(right))
    assert found.variance == pytest.approx(np.var(right), abs=1e-12)
    assert found.judged == len(labels)


def test_a_single_label_tells_nothing():
    found = agreement(torch.tensor([1, 1, 0]), torch.tensor([1, 1, 1]))
    assert found == Agreement(0.0, 0.0, 0.0, 0.0)
    assert found.p_value == 1.0


def test_one_answer_to_all_is_chance_however_often_it_is_right():
    assert agreement(torch.ones(50).long(), torch.tensor([0] * 3 + [1] * 47)).p_value == 1.0


@pytest.mark.parametrize("classes", [2, 5])
def test_the_p_value_is_that_of_random_orders(classes):
    """Of 4000 orders a share of 0.05 has a standard error of 0.0035; the form of it may be off by as much again."""
    rng = np.random.default_rng(0)
    labels, answers = (rng.integers(0, classes, 64) for _ in range(2))
    right = np.array([(rng.permutation(answers) == labels).sum() for _ in range(4000)])
    for number in np.unique(right):
        expected = (right >= number).mean()
        found = agreement(torch.from_numpy(answers), torch.from_numpy(labels))._replace(right=float(number)).p_value
        if expected < 0.3:  # above, nobody asks
            assert expected - 0.01 <= found <= expected + 0.08


@pytest.mark.parametrize(("samples", "positives", "answered"), [(128, 1, 1), (128, 2, 2), (128, 6, 10), (64, 32, 6)])
def test_a_lucky_hit_of_a_rare_class_is_no_skill(samples, positives, answered):
    """One hit of 1 in 128 is luck in one run of 128; by a normal number of the same variance, in one of 10^8."""
    labels = torch.arange(samples) < positives
    exact = hypergeom(samples, positives, answered)
    for hits in range(1, min(positives, answered) + 1):
        answers = torch.zeros(samples, dtype=torch.long)
        answers[:hits] = answers[positives : positives + answered - hits] = 1
        assert agreement(answers, labels.long()).p_value >= 0.95 * min(float(exact.sf(hits - 1)), LEVEL)
    assert agreement(labels.long(), labels.long()).p_value <= LEVEL


def test_luck_passes_as_often_in_all_looks_of_a_run_as_in_one_test():
    levels = [level_of_look(number) for number in range(1, 10**5)]
    assert sum(levels) < 0.05
    assert sum(levels) == pytest.approx(0.05, rel=1e-4)
