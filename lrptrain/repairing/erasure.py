"""What a last layer reads of a shortcut, erased from what it is given.

Belrose et al. 2023, "LEACE: Perfect linear concept erasure in closed form": features `x` become `x - A (x - m)`, the
smallest such change after which no linear classifier of them tells the shortcut better than a constant. A linear layer
of those is again a linear layer of the features as they are, so that the model keeps its form.

Here the covariances are those within each class: what tells the class must not go with a shortcut that it goes with.
"""

from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from lrptrain.extras import require
from lrptrain.repairing.fitting import LinearFit, Table

LEAST_SINGULAR = 1e-8
"""Directions that the shortcut moves by less than this share of the most are those of rounding."""


class NothingLeftError(ValueError):
    """All that a last layer is given would have to be erased."""


def erase(table: Table, old: LinearFit, with_bias: bool) -> LinearFit:
    """Return a layer that answers as the old one does to features without what tells the shortcut.

    Args:
        table: Samples whose `shortcut` has at least two values within some class.
        old: The layer as it is.
        with_bias: Whether the layer has a bias. One without can be given no constant: then `m` is 0.

    Raises:
        NothingLeftError: If the shortcut moves all that the layer is given: nothing would be left.
    """
    indicators = _indicators(table.shortcut)
    features = _within_classes(table.features, table)
    shared = features.T @ (_within_classes(indicators, table) * table.weight[:, None]) / table.weight.sum()
    erasure = _erasure(_covariance(features, table.weight), shared)
    weight = old.weight - old.weight @ erasure
    if not with_bias:
        return replace(old, weight=weight)
    mean = np.average(table.features, axis=0, weights=table.weight)
    return LinearFit(weight, old.bias + old.weight @ erasure @ mean)


def _indicators(values: Int[np.ndarray, " rows"]) -> Float[np.ndarray, "rows values"]:
    """Return a column of 0 and 1 for each value."""
    return (values[:, None] == np.unique(values)).astype(float)


def _within_classes(columns: Float[np.ndarray, "rows width"], table: Table) -> Float[np.ndarray, "rows width"]:
    """Return columns less their weighted mean in the row's class."""
    centred = columns.copy()
    for label in np.unique(table.label):
        rows = table.label == label
        centred[rows] -= np.average(columns[rows], axis=0, weights=table.weight[rows])
    return centred


def _covariance(
    features: Float[np.ndarray, "rows width"], weight: Float[np.ndarray, " rows"]
) -> Float[np.ndarray, "width width"]:
    """Return a covariance with an inverse, however few the rows (Ledoit and Wolf 2004)."""
    weighted = features * np.sqrt(weight / weight.mean())[:, None]
    covariance, _ = require("sklearn.covariance", "repair").ledoit_wolf(weighted, assume_centered=True)
    return np.asarray(covariance)


def _erasure(
    covariance: Float[np.ndarray, "width width"], shared: Float[np.ndarray, "width values"]
) -> Float[np.ndarray, "width width"]:
    """Return `A`: the projection onto what is shared, orthogonal where the features are white.

    For any invertible covariance, `A @ shared` is `shared`, so that nothing of it is left.

    Raises:
        NothingLeftError: If it would be the identity.
    """
    variances, axes = np.linalg.eigh(covariance)
    # A feature that never moves has a variance of 0, and moves with no shortcut, either.
    roots = np.sqrt(np.maximum(variances, np.finfo(float).tiny + np.finfo(float).eps * variances.max()))
    colour = (axes * roots) @ axes.T
    whiten = (axes / roots) @ axes.T
    directions, sizes, _ = np.linalg.svd(whiten @ shared, full_matrices=False)
    directions = directions[:, sizes > LEAST_SINGULAR * max(sizes.max(initial=0.0), np.finfo(float).tiny)]
    if directions.shape[1] == len(covariance):
        raise NothingLeftError(
            f"groups, or classes of who gave, move all {len(covariance)} features of the last layer: nothing would be "
            "left of them; try how='retrain', or groups of the shortcut alone"
        )
    return colour @ directions @ directions.T @ whiten
