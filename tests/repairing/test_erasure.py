"""Erasing a shortcut leaves a linear layer that cannot read it, and reads the rest as before."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.covariance import ledoit_wolf

from lrptrain.repairing.erasure import erase
from lrptrain.repairing.fitting import LinearFit, Table

WIDTH = 6


def table(rows: int = 400, seed: int = 0) -> Table:
    """Feature 0 tells the class, feature 1 the shortcut, feature 2 both; the shortcut goes with the class."""
    rng = np.random.default_rng(seed)
    label = np.arange(rows) % 3
    shortcut = np.where(rng.random(rows) < 0.6, label, rng.integers(0, 3, rows))
    features = rng.normal(size=(rows, WIDTH)) @ rng.normal(size=(WIDTH, WIDTH))
    features[:, 0] += 4 * label
    features[:, 1] += 4 * shortcut
    features[:, 2] += label - shortcut**2
    return Table(features, label, rng.uniform(0.5, 1.5, rows), np.arange(rows), shortcut)


def old_layer() -> LinearFit:
    rng = np.random.default_rng(1)
    return LinearFit(rng.normal(size=(3, WIDTH)), rng.normal(size=3))


def centred(columns: np.ndarray, samples: Table) -> np.ndarray:
    """Less the weighted mean of the class."""
    means = {k: np.average(columns[samples.label == k], 0, samples.weight[samples.label == k]) for k in range(3)}
    return columns - np.stack([means[k] for k in samples.label])


def test_within_a_class_no_answer_goes_with_the_shortcut_any_more():
    samples = table()
    old = old_layer()
    indicators = centred(np.eye(3)[samples.shortcut], samples)
    shared = {}
    for name, layer in (("old", old), ("new", erase(samples, old, with_bias=True))):
        logits = centred(samples.features @ layer.weight.T + layer.bias, samples)
        shared[name] = np.abs(logits.T @ (indicators * samples.weight[:, None])).max() / samples.weight.sum()
    assert shared["old"] > 0.1
    # Sums of 400 products of numbers up to some 100, through two changes of basis.
    assert shared["new"] < 1e-10


def test_it_is_the_oblique_projection_of_the_textbook():
    """A = C (C' S^-1 C)^+ C' S^-1, with C the covariance of features and shortcut, and S that of features."""
    samples = replace(table(), weight=np.ones(400))
    old = old_layer()
    features = centred(samples.features, samples)
    shared = features.T @ centred(np.eye(3)[samples.shortcut], samples) / 400
    inverse = np.linalg.inv(ledoit_wolf(features, assume_centered=True)[0])
    erasure = shared @ np.linalg.pinv(shared.T @ inverse @ shared, rcond=1e-10) @ shared.T @ inverse
    expected = old.weight @ (np.eye(WIDTH) - erasure)
    layer = erase(samples, old, with_bias=False)
    # Two inverses of a matrix whose condition is below 1e4.
    np.testing.assert_allclose(layer.weight, expected, rtol=0, atol=1e-10)
    assert np.array_equal(layer.bias, old.bias)


def test_the_mean_answer_stays_and_nothing_else_is_lost():
    samples = table()
    old = old_layer()
    new = erase(samples, old, with_bias=True)
    mean = np.average(samples.features, 0, samples.weight)
    np.testing.assert_allclose(new.weight @ mean + new.bias, old.weight @ mean + old.bias, rtol=1e-12)
    # Three values of a shortcut have two directions: those of WIDTH in which answers do not change are the others.
    assert np.linalg.matrix_rank(np.eye(WIDTH) - _erasure_of(samples), tol=1e-9) == WIDTH - 2


def _erasure_of(samples: Table) -> np.ndarray:
    """Read it off a layer that returns its features."""
    return np.eye(WIDTH) - erase(samples, LinearFit(np.eye(WIDTH), np.zeros(WIDTH)), with_bias=False).weight


def test_a_feature_that_never_moves_does_no_harm():
    samples = table()
    samples.features[:, 5] = 3.0
    new = erase(samples, old_layer(), with_bias=True)
    assert np.isfinite(new.weight).all()
    assert new.weight[0, 5] == pytest.approx(old_layer().weight[0, 5], rel=1e-6)


def test_a_shortcut_in_all_features_is_refused():
    samples = replace(table(), shortcut=np.arange(400) % 7)
    with pytest.raises(ValueError, match="move all 6 features of the last layer: nothing would be left"):
        erase(samples, old_layer(), with_bias=True)
