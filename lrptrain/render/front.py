"""A Pareto front as a plot."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from lrptrain.render.audit import BLUE, GREY, saved_plot

_LABEL = 8  # points
_DOT = 6  # points


def draw_front(
    path: Path,
    values: Float[np.ndarray, "points metrics"],
    on_front: Bool[np.ndarray, " points"],
    epochs: Sequence[int],
    metrics: Mapping[str, str],
) -> None:
    """Write a PNG: every point in grey, the front as labelled dots, over the first two metrics.

    Two metrics make a staircase that bounds what was reached; a third is shown as colour.

    Args:
        path: The file.
        values: Points with a value that is not finite are left out.
        on_front: Which points are on the front.
        epochs: Epoch of each point; those of the front are written beside it where there is room.
        metrics: "max" or "min", which is better, by name; at least two.

    Raises:
        ImportError: Without matplotlib.
    """
    finite = np.isfinite(values).all(axis=1)
    front = np.flatnonzero(on_front & finite)
    # From left to right, for the staircase.
    front = front[np.argsort(values[front, 0], kind="stable")]
    x, y, *third = values[front].T
    names, directions = list(metrics), list(metrics.values())
    with saved_plot(path, "Pareto front by epoch", 6.4, 4.4) as (figure, axes):
        axes.scatter(*values[finite & ~on_front, :2].T, s=14, color=GREY, linewidths=0)
        if third:
            dots = axes.scatter(x, y, c=third[0], s=_DOT**2, cmap="viridis", zorder=3)
            figure.colorbar(dots, label=names[2])
        else:
            axes.step(x, y, where="pre" if directions[0] == "max" else "post", color=BLUE, linewidth=1.2)
            axes.scatter(x, y, s=_DOT**2, color=BLUE, zorder=3)
        axes.set(xlabel=names[0], ylabel=names[1])
        axes.margins(0.08)
        figure.draw_without_rendering()  # places are known only then
        _label(axes, x, y, np.asarray(epochs)[front], directions)


def _label(axes: Any, x: np.ndarray, y: np.ndarray, epochs: np.ndarray, directions: Sequence[str]) -> None:
    """Write epochs beside dots, on their better side; what would cover a dot or another epoch is left out."""
    side = np.array([1 if direction == "max" else -1 for direction in directions[:2]])
    dots = axes.transData.transform(np.column_stack([x, y])) * 72 / axes.figure.dpi  # in points
    aligned = {"ha": "left" if side[0] > 0 else "right", "va": "bottom" if side[1] > 0 else "top"}
    # Boxes that are occupied, as middle and half of the size in points: the dots first, then the labels between them.
    occupied: list[tuple[np.ndarray, np.ndarray]] = [(dot, np.full(2, _DOT / 2)) for dot in dots]
    for index, epoch in enumerate(epochs):
        half = np.array([0.6 * len(str(epoch)), 1.0]) * _LABEL / 2
        middle = dots[index] + side * (half + _DOT / 2)
        # A label may touch its own dot, the one at `index`, and no other box.
        others = occupied[:index] + occupied[index + 1 :]
        if any((np.abs(middle - place) < half + size).all() for place, size in others):
            continue
        occupied.append((middle, half))
        offset = tuple(side * _DOT / 2)
        axes.annotate(str(epoch), (x[index], y[index]), offset, textcoords="offset points", fontsize=_LABEL, **aligned)
