"""Does relevance lie on the evidence? Energy and ranking scores of token relevance against an annotation."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from lrptrain.batch.annotations import TokenAnnotation
from lrptrain.metrics.base import AnnotationMetric, nan_where_undefined, usable_scores
from lrptrain.metrics.ranking import average_precision, expected_hits

LOCALIZATION_METRICS: list[type[AnnotationMetric]] = []
"""What the monitor measures and logs of every map: the metrics that are `logged`, in this order."""


def logged(metric: type[AnnotationMetric]) -> type[AnnotationMetric]:
    """Let the monitor measure a metric of every map."""
    LOCALIZATION_METRICS.append(metric)
    return metric


def energy_pointing_game(scores: Float[Tensor, "batch tokens"], annotation: TokenAnnotation) -> Float[Tensor, " batch"]:
    """Return the share of positive relevance on the evidence: sum(A+ * evidence * valid) / sum(A+ * valid).

    Wang et al. 2020, "Score-CAM", section 4.3.

    Args:
        scores: Signed relevance; negative entries count as 0.
        annotation: Evidence by area.

    Returns:
        In [0, 1], higher is better. nan without annotation, with scores that are not finite, and where no usable token
        has positive relevance (nothing points anywhere). An annotation that marks nothing gives 0.
    """
    scores, defined = usable_scores(scores, annotation)
    positive = scores.clamp(min=0)
    # Divided by the maximum, so that sums of tiny scores do not vanish; 0 / 0 is the nan of a map without any.
    mass = positive / positive.amax(-1, keepdim=True) * annotation.valid
    return nan_where_undefined((mass * annotation.evidence).sum(-1) / mass.sum(-1), defined)


def pointing_game(
    scores: Float[Tensor, "batch tokens"],
    annotation: TokenAnnotation,
    grid: tuple[int, int] | None = None,
    tolerance: int | float = 0,
) -> Float[Tensor, " batch"]:
    """Return whether the most relevant token touches the evidence (evidence > 0).

    Zhang et al. 2018, "Top-down neural attention by excitation backprop". Of tied maxima, the share that hits.

    Args:
        scores: Signed relevance.
        annotation: Evidence by area.
        grid: Rows and columns of the patches, needed for a tolerance; `(1, tokens)` for text.
        tolerance: A maximum at most so many tokens away (Euclidean) from the evidence is a hit too.

    Returns:
        1 hit, 0 miss, between for ties; higher is better. nan without annotation or with scores that are not finite.

    Raises:
        ValueError: If `tolerance` is negative, or given without a `grid` that fits.
    """
    _check_tolerance(grid, tolerance)
    scores, defined = usable_scores(scores, annotation)
    usable = annotation.usable
    hits = usable & (annotation.evidence > 0)
    if tolerance and grid is not None:
        hits = _dilate(hits, grid, tolerance)
    # One place; none where no token is usable.
    return nan_where_undefined(expected_hits(scores, hits, usable, usable.any(-1).long()), defined)


def relevance_rank_accuracy(
    scores: Float[Tensor, "batch tokens"], annotation: TokenAnnotation
) -> Float[Tensor, " batch"]:
    """Return the share of the K most relevant tokens that are evidence, K being the number of marked tokens.

    Arras et al. 2022, "CLEVR-XAI", equation 4. A token is marked if at least half of it is evidence; ties at the K-th
    place count by expectation.

    Args:
        scores: Signed relevance.
        annotation: Evidence by area.

    Returns:
        In [0, 1], higher is better. nan without annotation, with scores that are not finite, or with nothing marked.
    """
    scores, defined = usable_scores(scores, annotation)
    marked = annotation.marked
    wanted = marked.sum(-1)
    return nan_where_undefined(expected_hits(scores, marked, annotation.usable, wanted) / wanted, defined)


def localization_auprc(scores: Float[Tensor, "batch tokens"], annotation: TokenAnnotation) -> Float[Tensor, " batch"]:
    """Return the average precision of relevance as a detector of the marked tokens (at least half evidence).

    Step-wise, as scikit-learn's `average_precision_score`. (The ERASER code also has a trapezoidal area, which is
    too kind to maps with few distinct values.)

    Args:
        scores: Signed relevance.
        annotation: Evidence by area.

    Returns:
        In (0, 1], higher is better. nan without annotation, with scores that are not finite, or with nothing marked.
    """
    scores, defined = usable_scores(scores, annotation)
    return nan_where_undefined(average_precision(scores, annotation.marked, annotation.usable), defined)


@logged
class EnergyPointingGame(AnnotationMetric):
    """Mean of `energy_pointing_game`; see `AnnotationMetric` for what `compute()` returns."""

    key = "energy_pointing_game"
    title = "Relevance on the annotation"
    explanation = "Share of the positive relevance that lies on the annotation."
    function = staticmethod(energy_pointing_game)


@logged
class PointingGame(AnnotationMetric):
    """Mean of `pointing_game`, with the chance level under the same tolerance; see `AnnotationMetric`.

    Args:
        num_classes: How many classes get a mean of their own.
        grid: Rows and columns of the patches, needed for a tolerance.
        tolerance: The distance from the evidence, in tokens, up to which a maximum is a hit.
        **kwargs: Passed to `torchmetrics.Metric`.
    """

    key = "pointing_game"
    title = "Pointing game"
    explanation = "Share of the samples whose most relevant place lies on the annotation."
    function = staticmethod(pointing_game)

    def __init__(
        self,
        num_classes: int | None = None,
        grid: tuple[int, int] | None = None,
        tolerance: int | float = 0,
        **kwargs: object,
    ):
        super().__init__(num_classes, **kwargs)
        _check_tolerance(grid, tolerance)
        self.grid = grid
        self.tolerance = tolerance
        self.options = {"grid": grid, "tolerance": tolerance}


@logged
class RelevanceRankAccuracy(AnnotationMetric):
    """Mean of `relevance_rank_accuracy`; see `AnnotationMetric` for what `compute()` returns."""

    key = "rank_accuracy"
    title = "Rank accuracy"
    explanation = "Of as many of the most relevant places as are annotated, the share that is annotated."
    function = staticmethod(relevance_rank_accuracy)


@logged
class LocalizationAUPRC(AnnotationMetric):
    """Mean of `localization_auprc`; see `AnnotationMetric` for what `compute()` returns."""

    key = "auprc"
    title = "Average precision on the annotation"
    explanation = "How well the relevance tells annotated places from all others, as average precision."
    function = staticmethod(localization_auprc)


def _dilate(
    hits: Bool[Tensor, "batch tokens"], grid: tuple[int, int], radius: int | float
) -> Bool[Tensor, "batch tokens"]:
    if grid[0] * grid[1] != hits.shape[-1]:
        raise ValueError(f"a grid of {grid} holds {grid[0] * grid[1]} tokens, got {hits.shape[-1]}: patches only")
    reach = int(radius)
    steps = torch.arange(-reach, reach + 1, device=hits.device)
    # Radius 1 is a plus of 5 tokens. The convolution counts the hits within it, so one hit is enough.
    disk = (steps[:, None] ** 2 + steps**2 <= radius**2).float()[None, None]
    reached = F.conv2d(hits.float().unflatten(-1, (1, *grid)), disk, padding=reach)
    return (reached > 0.5).flatten(1)


def _check_tolerance(grid: tuple[int, int] | None, tolerance: int | float) -> None:
    if tolerance < 0 or (tolerance and grid is None):
        raise ValueError(f"tolerance={tolerance} must not be negative and needs grid=(rows, columns), got {grid}")
