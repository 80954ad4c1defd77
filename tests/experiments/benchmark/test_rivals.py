"""The rivals find what they are made for, and nothing in noise."""

import numpy as np

from experiments.benchmark.rivals import error_slice, image_properties, spectral_purity, spurious_correlation

RNG = np.random.default_rng(0)
LABELS = np.repeat(np.arange(4), 50)
PICTURES = RNG.random((200, 12, 12, 3))


def test_a_property_that_goes_with_the_class_is_found():
    darker = PICTURES * (0.4 + 0.2 * LABELS)[:, None, None, None]
    assert spurious_correlation(image_properties(darker), LABELS) > 0.95
    assert spurious_correlation(image_properties(PICTURES), LABELS) < 0.2


def test_clusters_of_maps_that_go_with_the_answer_are_pure():
    maps = RNG.random((200, 36)) * 0.1
    maps[np.arange(200), LABELS * 9] += 1
    assert spectral_purity(maps, LABELS) > 0.95
    assert abs(spectral_purity(maps, RNG.permutation(LABELS))) < 0.1
    assert spectral_purity(maps, np.zeros(200, int)) == 0


def test_a_slice_of_errors_that_the_embedding_shows_is_worse_than_scattered_ones():
    embeddings = RNG.normal(size=(200, 16))
    embeddings[:30] += 4
    probabilities = np.eye(4)[LABELS] * 0.9 + 0.025
    together, scattered = probabilities.copy(), probabilities.copy()
    together[:20] = together[:20, [1, 0, 2, 3]]
    rows = RNG.choice(np.arange(30, 200), 20, replace=False)
    scattered[rows] = 0.2 + 0.2 * np.eye(4)[(LABELS[rows] + 1) % 4]
    assert error_slice(embeddings, LABELS, together) > error_slice(embeddings, LABELS, scattered)
    assert error_slice(embeddings, LABELS, probabilities) == 0
