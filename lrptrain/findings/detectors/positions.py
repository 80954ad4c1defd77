"""Does the relevance lie at a fixed position whatever the image: a watermark, a border, a tag?"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from lrptrain.findings.detector import Candidate, DetectionConfig, Detector, register_detector
from lrptrain.findings.detectors.shares import high_share_finding
from lrptrain.findings.evaluation import Evaluation
from lrptrain.findings.extent import PlantedPatches, reached_patches
from lrptrain.findings.finding import Finding
from lrptrain.findings.halves import judging, suspecting, suspecting_members
from lrptrain.findings.scopes import OVERALL, ScopeMembers, split_into_scopes
from lrptrain.findings.statistics import max_test
from lrptrain.intervention import Region

MIN_POSITION_RATIO = 2.0
"""A position counts if it has this many times the relevance of those nearer to the centre."""
MAX_POSITION_AREA = 0.6
"""A region that covers a larger share of the image is no position."""
MIN_POSITION_SAMPLES = 8
MIDDLE = 0.6
"""How far the middle of an image reaches towards its edges, in [0, 1]: a third of the area, where most objects lie."""
CORNERS = {"top left", "top right", "bottom left", "bottom right"}


class FocusAtPosition(Detector):
    """The relevance lies at a fixed position of the image."""

    kind = "focus_at_position"
    title = "The relevance lies at a fixed place"
    order = 40
    verb = "reads"

    def place(self, finding: Finding) -> str:
        """Return which part of the image the model reads, such as `the image's four corners`."""
        return part_of_image(finding.where)

    def detect(self, evaluation: Evaluation, config: DetectionConfig) -> Iterator[Candidate]:
        """Return positions that most images of a scope are read at, with the samples whose evidence is elsewhere.

        What is planted there is changed as a whole, however wide it is. Of a large scope, half of the samples suspects
        and the other half judges. Where images without annotations are laid out alike, or show figures on a plain
        ground, a position has to hold all but the same picture in each class: objects are at fixed places, too.
        """
        grid = evaluation.grid
        if grid is None:
            return
        shares = evaluation.shares
        no_evidence = np.zeros(shares.shape[1], bool)
        # [n, tokens]. Relevance on the annotation is where it should be, and is no candidate wherever it lies.
        annotated = any(x.annotated is not None for x in evaluation.samples)
        on_evidence = np.array([no_evidence if x.annotated is None else x.annotated for x in evaluation.samples])
        scopes = {each.scope: each.member for each in split_into_scopes(evaluation.labels, config.class_names)}
        suspects = [ScopeMembers(scope, suspecting_members(member)) for scope, member in scopes.items()]
        marked = None if annotated else evaluation.marked_patches
        planted = marked or _planted_patches(evaluation, grid)
        for scope, suspected, p_value in fixed_positions(shares * ~on_evidence, grid, suspects, config.confidence):
            judges = judging(np.flatnonzero(scopes[scope.scope]))
            if marked is not None:
                if not marked.any_of(suspected):
                    continue
                suspected = tuple(position for position in suspected if position in marked)
            positions = _with_all_planted(suspected, planted, on_evidence[judges])
            # Where the evidence itself lies at these positions, painting them over would show nothing about a shortcut.
            free: Bool[np.ndarray, " n"] = np.asarray(~on_evidence[:, list(positions)].any(1))
            rows = np.flatnonzero(scope.member & free)
            finding = high_share_finding(
                self,
                evaluation,
                config,
                scope.scope,
                describe(positions, grid),
                rows,
                shares[rows][:, list(positions)].sum(1),
                reference=len(positions) / shares.shape[1],
                p_value=p_value,
            )
            tested = judges[free[judges]]
            finding = replace(
                finding,
                may_be_evidence=not annotated and lies_in_the_middle(positions, grid),
                beside_evidence=all(evaluation.samples[row].annotated is not None for row in tested),
            )
            yield Candidate(finding, Region("patches", positions), tested)


def _planted_patches(evaluation: Evaluation, grid: tuple[int, int]) -> PlantedPatches | None:
    """Return where something is planted, in the suspects' images; None if no intervention follows."""
    if evaluation.inputs is None:
        return None
    rows = suspecting(np.arange(len(evaluation.samples)))
    predicted = np.array([evaluation.samples[row].predicted for row in rows])
    return PlantedPatches([evaluation.inputs[row] for row in rows], grid, predicted)


def _with_all_planted(
    positions: tuple[int, ...], planted: PlantedPatches | None, on_evidence: Bool[np.ndarray, "judges tokens"]
) -> tuple[int, ...]:
    """Return all of what is planted at positions; the positions alone if too few judges have no evidence there.

    Args:
        positions: The positions that the maps suspect.
        planted: Where something is planted; None leaves the positions as they are.
        on_evidence: Where the evidence of those lies in which the positions are changed.
    """
    if planted is None:
        return positions
    reached = reached_patches(positions, planted)
    left, before = ((~on_evidence[:, list(each)].any(1)).sum() for each in (reached, positions))
    return reached if left >= max(MIN_POSITION_SAMPLES, before / 2) else positions


class FixedPositions(NamedTuple):
    """Positions at which many images are read.

    Attributes:
        scope: The samples in which they are.
        positions: The indices of tokens, row by row.
        p_value: The least p-value of the positions, corrected over positions and scopes.
    """

    scope: ScopeMembers
    positions: tuple[int, ...]
    p_value: float


def fixed_positions(
    shares: Float[np.ndarray, "n tokens"],
    grid: tuple[int, int],
    scopes: Sequence[ScopeMembers],
    confidence: float = 0.95,
) -> list[FixedPositions]:
    """Find positions that hold far more relevance than those nearer to the centre, in most images of a scope.

    Objects lie in the middle of pictures more often than at their edges. So a position is only compared with those
    strictly nearer to the centre, and the centre itself is never found: that a model looks there says nothing.

    Args:
        shares: The share of each image's positive relevance at each position, less what lies on its annotation.
        grid: Rows and columns of the tokens.
        scopes: Where to look; a class's positions are left out if they are those of all samples.
        confidence: `1 - confidence` is the level of all tests together.
    """
    nearer = _nearer_to_the_centre(grid)  # [tokens, tokens]
    testable: Bool[np.ndarray, " tokens"] = np.asarray(nearer.any(1))
    if not testable.any():  # a grid of at most 2 x 2, all positions of which are as near to the centre
        return []
    scopes = [scope for scope in scopes if scope.member.sum() >= MIN_POSITION_SAMPLES]
    results: list[FixedPositions] = []
    overall: set[int] = set()
    for scope in scopes:
        values = np.compress(scope.member, shares, axis=0)
        # Maps without positive relevance have no shares.
        values = np.compress(~np.isnan(values).any(1), values, axis=0)
        if len(values) < MIN_POSITION_SAMPLES:
            continue
        reference = values @ nearer.T  # [n, tokens]: the mean share of the positions nearer to the centre
        p_values = np.ones(len(testable))
        # max_test corrects over positions, the factor over scopes (Bonferroni).
        p_values[testable] = np.minimum(len(scopes) * max_test((values - reference)[:, testable]), 1.0)
        # A reference close to 0 would let any share be far more: it counts as half of a uniform map's at least.
        least = np.maximum(reference.mean(0), 1 / values.shape[1] / MIN_POSITION_RATIO)
        far_more = values.mean(0) >= MIN_POSITION_RATIO * least
        positions: set[int] = set(np.flatnonzero((p_values <= 1 - confidence) & far_more).tolist())
        # All samples come first. A class whose positions are among theirs would only repeat that finding.
        if not positions or len(positions) > MAX_POSITION_AREA * len(testable) or positions <= overall:
            continue
        if scope.scope == OVERALL:
            overall = positions
        in_order = sorted(positions)
        results.append(FixedPositions(scope, tuple(in_order), float(p_values[in_order].min())))
    return results


def describe(positions: Sequence[int], grid: tuple[int, int]) -> str:
    """Return which part of the picture positions are, and how many of its patches, in words."""
    rows, columns = np.divmod(np.asarray(positions), grid[1])
    ring = _radius(grid)
    # Nine in ten positions on the outermost ring: a list of corners and sides would hide that it is the border.
    if len(positions) > 4 and (ring[list(positions)] == ring.max()).mean() > 0.9:
        edges = {
            "upper edge": rows == 0,
            "lower edge": rows == grid[0] - 1,
            "left edge": columns == 0,
            "right edge": columns == grid[1] - 1,
        }
        along = [name for name, is_there in edges.items() if is_there.mean() > 0.9]
        if along or all(is_there.any() for is_there in edges.values()):
            return f"the {along[0] if along else 'border'} ({len(positions)} of {len(ring)} patches)"
    vertical = _third(rows, grid[0], ("top", "middle", "bottom"))
    horizontal = _third(columns, grid[1], ("left", "centre", "right"))
    parts = {_part(row, column) for row, column in zip(vertical, horizontal, strict=True)}
    named = "the four corners" if parts == CORNERS else ", ".join(sorted(parts))
    return f"{named} ({len(positions)} of {len(ring)} patches)"


def _part(row: str, column: str) -> str:
    """Return the name of a ninth of the picture, such as `top left`; the innermost is `centre`."""
    return "centre" if (row, column) == ("middle", "centre") else f"{row} {column}"


def part_of_image(described: str) -> str:
    """Return the words of `describe` as a part of the image, without the number of patches."""
    # "the four corners (4 of 49 patches)" becomes "the image's four corners"; what a cluster says behind it stays.
    part, *rest = re.split(r" \(\d+ of \d+ patches\)", described, maxsplit=1)
    *parts, last = part.removeprefix("the ").split(", ")
    last = f"{last} corner" if not parts and last in CORNERS else last
    return f"the image's {', '.join(parts)}{' and ' if parts else ''}{last}{''.join(rest)}"


def lies_in_the_middle(
    positions: Sequence[int] | Int[np.ndarray, " n"], grid: tuple[int, int], least: float = 0.5
) -> bool:
    """Return whether most of the positions lie in the middle of the image, where its object may be what they hold.

    Without annotations, an object that always lies in the same place cannot be told from something planted there, nor
    a logo on an object from a sticker beside it.

    Args:
        positions: The positions, as indices row by row.
        grid: Rows and columns of the patches.
        least: More than this share of them has to lie in the middle, in [0, 1].
    """
    return bool((_radius(grid)[list(positions)] <= MIDDLE).mean() > least)


def _third(index: np.ndarray, size: int, names: tuple[str, str, str]) -> list[str]:
    """Return the name of the third of the picture, along one axis, that each index lies in."""
    return [names[int(i)] for i in np.minimum(3 * index // size, 2)]


def _radius(grid: tuple[int, int]) -> Float[np.ndarray, " tokens"]:
    """Return how far each position is from the centre, by square rings: 0 in the middle, 1 at the edge."""
    # e.g. 5 rows: 1, 0.5, 0, 0.5, 1. Rounded, or one of two positions of a ring could count as nearer than the other.
    rows, columns = (np.abs(np.linspace(-1, 1, size)) if size > 1 else np.zeros(1) for size in grid)
    return np.round(np.maximum(rows[:, None], columns[None]).ravel(), 6)


def _nearer_to_the_centre(grid: tuple[int, int]) -> Float[np.ndarray, "tokens tokens"]:
    """Return weights that take the mean over the positions nearer to the centre than each one.

    Row t sums to 1, except for the centre itself, whose row is 0. With a grid of (1, 3) the rows are
    [0, 1, 0], [0, 0, 0] and [0, 1, 0].
    """
    radius = _radius(grid)
    nearer: Bool[np.ndarray, "tokens tokens"] = radius[None] < radius[:, None]
    weights: Float[np.ndarray, "tokens tokens"] = nearer / np.maximum(nearer.sum(1, keepdims=True), 1)
    return weights


register_detector(FocusAtPosition())
