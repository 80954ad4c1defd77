"""Logistic regression on the features of a last layer, with its penalty chosen by cross-validation."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Bool, Float, Int

from lrptrain.extras import require

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Inverse strengths of the L2 penalty on standardised features, from which cross-validation chooses."""
MOST_FOLDS = 5
MOST_ITERATIONS = 500


@dataclass(frozen=True)
class Table:
    """Samples for a last layer: one row each.

    Attributes:
        features: What the layer is given.
        label: The class of each row, from 0.
        weight: How much each row counts.
        sample: Which sample a row is of; rows of one sample are never on both sides of a fold.
    """

    features: Float[np.ndarray, "rows width"]
    label: Int[np.ndarray, " rows"]
    weight: Float[np.ndarray, " rows"]
    sample: Int[np.ndarray, " rows"]

    def rows(self, of_rows: Bool[np.ndarray, " rows"]) -> "Table":
        """Return some of the rows."""
        return Table(*(getattr(self, column.name)[of_rows] for column in fields(self)))


@dataclass(frozen=True)
class LinearFit:
    """A linear classifier.

    Attributes:
        weight: A row per class; a single one, that of class 1, where there are two.
        bias: A number per row; zeros where the layer has none.
    """

    weight: Float[np.ndarray, "classes width"]
    bias: Float[np.ndarray, " classes"]

    def predict(self, features: Float[np.ndarray, "rows width"]) -> Int[np.ndarray, " rows"]:
        """Return the class of each row."""
        logits = features @ self.weight.T + self.bias
        return (logits[:, 0] > 0).astype(int) if logits.shape[1] == 1 else logits.argmax(1)


def fit(table: Table, penalty: float, with_bias: bool) -> LinearFit:
    """Fit one classifier."""
    linear_model = require("sklearn.linear_model", "repair")
    # Features of networks differ in scale by orders of magnitude, and a penalty on raw weights would choose among them.
    total = table.weight.sum()
    mean = (table.weight[:, None] * table.features).sum(0) / total if with_bias else np.zeros(table.features.shape[1])
    spread = np.sqrt((table.weight[:, None] * (table.features - mean) ** 2).sum(0) / total)
    spread = np.where(spread > 1e-12 * max(spread.max(), 1e-300), spread, 1.0)
    classifier = linear_model.LogisticRegression(C=penalty, fit_intercept=with_bias, max_iter=MOST_ITERATIONS)
    # Weights of mean 1: the penalty then means the same whatever the samples count.
    classifier.fit((table.features - mean) / spread, table.label, table.weight * len(table.weight) / total)
    weight = classifier.coef_ / spread
    return LinearFit(weight, np.broadcast_to(classifier.intercept_, len(weight)) - weight @ mean)


def folds_of(table: Table, seed: int) -> list[Bool[np.ndarray, " rows"]]:
    """Return the rows that are held out in each fold; every class is in every fold, and no sample in two."""
    samples, first = np.unique(table.sample, return_index=True)
    classes = table.label[first]
    sizes = np.bincount(classes)
    fewest = int(sizes[sizes > 0].min())
    if fewest < 2:
        raise ValueError(f"class {int(np.flatnonzero(sizes == fewest)[0])} has a single sample: at least 2 are needed")
    model_selection = require("sklearn.model_selection", "repair")
    splitter = model_selection.StratifiedKFold(min(MOST_FOLDS, fewest), shuffle=True, random_state=seed)
    return [np.isin(table.sample, samples[held_out]) for _, held_out in splitter.split(samples, classes)]


class CrossValidation:
    """Classifiers that are fitted without the rows of some folds; each is fitted once."""

    def __init__(self, table: Table, folds: Sequence[Bool[np.ndarray, " rows"]], with_bias: bool) -> None:
        self.table = table
        self.folds = folds
        self.with_bias = with_bias
        self._fits: dict[tuple[float, frozenset[int]], LinearFit] = {}

    def fitted(self, penalty: float, *without: int) -> LinearFit:
        """Return the classifier that is fitted without the rows of these folds."""
        key = penalty, frozenset(without)
        if key not in self._fits:
            rows = ~np.any([self.folds[fold] for fold in key[1]], axis=0)
            self._fits[key] = fit(self.table.rows(rows), penalty, self.with_bias)
        return self._fits[key]

    def penalty(self, *without: int) -> float:
        """Return the penalty with the least cross-entropy on rows that were held out."""
        others = [fold for fold in range(len(self.folds)) if fold not in without]
        if len(others) < 2:
            return PENALTIES[len(PENALTIES) // 2]

        def loss(penalty: float) -> float:
            losses = [
                _cross_entropy(self.fitted(penalty, fold, *without), self.table.rows(self.folds[fold]))
                for fold in others
            ]
            return float(np.mean(losses))

        return min(PENALTIES, key=loss)


def _cross_entropy(fitted: LinearFit, table: Table) -> float:
    logits = table.features @ fitted.weight.T + fitted.bias
    if logits.shape[1] == 1:
        logits = np.concatenate([np.zeros_like(logits), logits], 1)
    log_total = np.logaddexp.reduce(logits, axis=1)
    losses = log_total - logits[np.arange(len(logits)), table.label]
    return float(np.average(losses, weights=table.weight))
