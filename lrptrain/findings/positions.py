"""Does the relevance lie at a fixed position whatever the image: a watermark, a border, a tag?"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from lrptrain.findings.finding import OVERALL
from lrptrain.findings.scopes import Scope
from lrptrain.findings.statistics import max_test

LEAST_RATIO = 2.0
"""A position counts if it has this many times the relevance of those nearer to the centre."""
MOST_AREA = 0.6
"""A region that covers more of the image is no position."""
LEAST_SAMPLES = 8


class Place(NamedTuple):
    """Positions that many images are read at.

    Attributes:
        scope: In which samples.
        positions: Indices of tokens, row by row.
        p_value: The least of the positions, corrected over positions and scopes.
    """

    scope: Scope
    positions: tuple[int, ...]
    p_value: float


def fixed_positions(
    shares: Float[np.ndarray, "n tokens"], grid: tuple[int, int], within: Sequence[Scope], confidence: float = 0.95
) -> list[Place]:
    """Positions that hold far more relevance than those nearer to the centre, in most images of a scope.

    Objects lie in the middle of pictures more often than at their edges. So a position is only compared with those
    strictly nearer to the centre, and the centre itself is never found: that a model looks there says nothing.

    Args:
        shares: Share of each image's positive relevance at each position, less what lies on its annotation.
        grid: Rows and columns of the tokens.
        within: Where to look; a class's positions are left out if they are those of all samples.
        confidence: `1 - confidence` is the level of all tests together.
    """
    nearer = _nearer_to_the_centre(grid)
    found: list[Place] = []
    overall: set[int] = set()
    within = [scope for scope in within if scope.member.sum() >= LEAST_SAMPLES]
    for scope in within:
        values = np.compress(scope.member, shares, axis=0)
        values = np.compress(~np.isnan(values).any(1), values, axis=0)
        if len(values) < LEAST_SAMPLES:
            continue
        reference = values @ nearer.T
        testable: Bool[np.ndarray, " tokens"] = np.asarray(nearer.any(1))
        p_values = np.ones(len(testable))
        p_values[testable] = np.minimum(len(within) * max_test((values - reference)[:, testable]), 1.0)
        far_more = values.mean(0) >= LEAST_RATIO * np.maximum(reference.mean(0), 1 / values.shape[1] / LEAST_RATIO)
        positions: set[int] = set(np.flatnonzero((p_values <= 1 - confidence) & far_more).tolist())
        if not positions or len(positions) > MOST_AREA * len(testable) or positions <= overall:
            continue
        overall = positions if scope.name == OVERALL else overall
        found.append(Place(scope, tuple(sorted(positions)), float(p_values[sorted(positions)].min())))
    return found


def describe(positions: Sequence[int], grid: tuple[int, int]) -> str:
    """In words: which part of the picture, and how many of its patches."""
    rows, columns = np.divmod(np.asarray(positions), grid[1])
    ring = _radius(grid)
    if len(positions) > 4 and (ring[list(positions)] == ring.max()).mean() > 0.9:
        return f"the border ({len(positions)} of {len(ring)} patches)"
    vertical = _third(rows, grid[0], ("top", "middle", "bottom"))
    horizontal = _third(columns, grid[1], ("left", "centre", "right"))
    parts = sorted({f"{v} {h}" for v, h in zip(vertical, horizontal, strict=True)})
    return f"{', '.join(parts)} ({len(positions)} of {len(ring)} patches)"


def _third(index: np.ndarray, size: int, names: tuple[str, str, str]) -> list[str]:
    return [names[int(i)] for i in np.minimum(3 * index // size, 2)]


def _radius(grid: tuple[int, int]) -> Float[np.ndarray, " tokens"]:
    """How far a position is from the centre, by rings: 0 in the middle, 1 at the edge."""
    rows, columns = (np.abs(np.linspace(-1, 1, size)) if size > 1 else np.zeros(1) for size in grid)
    return np.round(np.maximum(rows[:, None], columns[None]).ravel(), 6)


def _nearer_to_the_centre(grid: tuple[int, int]) -> Float[np.ndarray, "tokens tokens"]:
    """In row t the weights, summing to 1, of the positions nearer to the centre than t; none for the centre."""
    radius = _radius(grid)
    nearer: Bool[np.ndarray, "tokens tokens"] = radius[None] < radius[:, None]
    return nearer / np.maximum(nearer.sum(1, keepdims=True), 1)
