"""How well a property of the samples tells their class: where it does not, a model has little to gain by reading it."""

import numpy as np
from jaxtyping import Bool, Float, Int

from lrptrain.extras import require

PARTS = 5
"""The samples are split into so many parts, and each is told by what the others teach."""
FEWEST = 32
"""Of fewer samples, the share that is told rightly has a standard error of 0.09 and more."""


def association(numbers: Float[np.ndarray, "n numbers"], labels: Int[np.ndarray, " n"]) -> float:
    """Return how well numbers of each sample tell its class: 0 for guessing or worse, 1 for always.

    That is how far the share told rightly, in the mean over the classes, lies above guessing, as a share of the way to
    1 (Cohen's kappa, of classes of one size). Classes are told by linear discriminants with the shrinkage of Ledoit and
    Wolf, which many numbers of few samples need, and each sample by those that were fitted on others.

    Args:
        numbers: The numbers of every sample.
        labels: The classes; negative where a sample's is not known.

    Returns:
        0 too of fewer than `FEWEST` samples in two classes with `PARTS` of them at least: they show nothing.
    """
    if not can_be_told(labels):
        return 0.0
    is_frequent = _are_frequent(labels)
    truth = labels[is_frequent]
    varying = numbers[is_frequent][:, np.ptp(numbers[is_frequent], axis=0) > 0]
    if not varying.shape[1]:
        return 0.0
    share = require("sklearn.metrics", "monitor").balanced_accuracy_score(truth, _told(varying, truth), adjusted=True)
    return max(0.0, float(share))


def _told(numbers: Float[np.ndarray, "n numbers"], truth: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Return the class that each sample is told to be, by what was fitted on others."""
    model_selection = require("sklearn.model_selection", "monitor")
    if all(np.ptp(numbers[truth == label], axis=0).max() == 0 for label in np.unique(truth)):
        # No spread to measure distances by: a sample is of the first class that has the same numbers.
        _, first, group = np.unique(numbers, axis=0, return_index=True, return_inverse=True)
        answers: np.ndarray = truth[first[group]]
        return answers
    priors = np.full(len(np.unique(truth)), 1 / len(np.unique(truth)))
    discriminants = require("sklearn.pipeline", "monitor").make_pipeline(
        require("sklearn.preprocessing", "monitor").StandardScaler(),
        require("sklearn.discriminant_analysis", "monitor").LinearDiscriminantAnalysis(
            solver="lsqr", shrinkage="auto", priors=priors
        ),
    )
    parts = model_selection.StratifiedKFold(PARTS, shuffle=True, random_state=0)
    answers = model_selection.cross_val_predict(discriminants, numbers, truth, cv=parts)
    return answers


def can_be_told(labels: Int[np.ndarray, " n"]) -> bool:
    """Return whether there are `FEWEST` samples in two classes with `PARTS` of them at least.

    Args:
        labels: The classes; negative where a sample's is not known.
    """
    frequent = labels[_are_frequent(labels)]
    return len(frequent) >= FEWEST and len(np.unique(frequent)) > 1


def _are_frequent(labels: Int[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
    """Return which samples are of a known class that has one in every part."""
    classes, counts = np.unique(labels[labels >= 0], return_counts=True)
    return np.isin(labels, classes[counts >= PARTS])
