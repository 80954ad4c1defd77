"""How well a property tells the class: beside a computation by hand, and where nothing is known."""

import numpy as np
import pytest
from sklearn.covariance import ledoit_wolf
from sklearn.model_selection import StratifiedKFold

from lrptrain.findings.association import FEWEST, PARTS, association


def drawn(apart, count=90, seed=0):
    """Two numbers of three classes, of which the first lies so many deviations apart."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 3
    numbers = rng.standard_normal((count, 2))
    numbers[:, 0] += apart * labels
    return 5 * numbers + 7, labels


def written_out(numbers, labels):
    """The class whose mean is nearest, by the shrunken covariance within the classes of the other parts."""
    answers = np.empty_like(labels)
    for train, test in StratifiedKFold(PARTS, shuffle=True, random_state=0).split(numbers, labels):
        centre, spread = numbers[train].mean(0), numbers[train].std(0)
        seen, asked = ((numbers[rows] - centre) / spread for rows in (train, test))
        means = np.array([seen[labels[train] == label].mean(0) for label in np.unique(labels)])
        within = []
        for label in np.unique(labels):
            own = seen[labels[train] == label]
            deviations = own.std(0)
            covariance, _ = ledoit_wolf((own - own.mean(0)) / deviations)
            within.append(deviations[:, None] * covariance * deviations)
        inverse = np.linalg.inv(np.mean(within, 0))
        scores = asked @ inverse @ means.T - 0.5 * np.einsum("ci,ij,cj->c", means, inverse, means)
        answers[test] = scores.argmax(1)
    right = np.mean([(answers[labels == label] == label).mean() for label in np.unique(labels)])
    return (right - 1 / 3) / (1 - 1 / 3)


@pytest.mark.parametrize("apart", [1.0, 2.0, 4.0])
def test_it_is_cohens_kappa_of_linear_discriminants_on_other_samples(apart):
    numbers, labels = drawn(apart)
    assert association(numbers, labels) == pytest.approx(written_out(numbers, labels), abs=1e-12)


def test_it_lies_between_guessing_and_always():
    assert association(*drawn(50.0)) == 1.0
    chance = [association(*drawn(0.0, seed=seed)) for seed in range(20)]
    assert min(chance) == 0.0
    assert np.mean(chance) < 0.1


def test_rare_classes_and_unknown_labels_do_not_count():
    numbers, labels = drawn(2.0)
    rare = np.concatenate([labels, [7] * (PARTS - 1), [-1] * 20])
    more = np.concatenate([numbers, np.zeros((PARTS - 1 + 20, 2))])
    assert association(more, rare) == association(numbers, labels)


def test_numbers_without_any_spread_within_a_class_tell_the_classes_that_they_differ_in():
    labels = np.arange(90) % 3
    assert association(labels[:, None].astype(float), labels) == 1
    # Classes 0 and 2 have the same number: one of the two is always mistaken for the other.
    assert association((labels == 1)[:, None].astype(float), labels) == pytest.approx((2 / 3 - 1 / 3) / (1 - 1 / 3))


def test_where_nothing_is_known_it_is_that_of_guessing():
    numbers, labels = drawn(50.0, FEWEST)
    assert association(numbers, labels) > 0.9
    assert association(numbers[1:], labels[1:]) == 0.0
    assert association(np.ones((90, 4)), np.arange(90) % 3) == 0.0
    assert association(np.random.default_rng(0).standard_normal((90, 4)), np.zeros(90, int)) == 0.0
