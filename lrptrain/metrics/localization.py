"""Does relevance lie on the evidence? Energy and ranking scores of token relevance against an annotation."""

from jaxtyping import Float
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


def pointing_game(scores: Float[Tensor, "batch tokens"], annotation: TokenAnnotation) -> Float[Tensor, " batch"]:
    """Return whether the most relevant token touches the evidence (evidence > 0).

    Zhang et al. 2018, "Top-down neural attention by excitation backprop". Of tied maxima, the share that hits.

    Args:
        scores: Signed relevance.
        annotation: Evidence by area.

    Returns:
        1 hit, 0 miss, between for ties; higher is better. nan without annotation or with scores that are not finite.
    """
    scores, defined = usable_scores(scores, annotation)
    usable = annotation.usable
    hits = usable & (annotation.evidence > 0)
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
    """Mean of `pointing_game`; see `AnnotationMetric` for what `compute()` returns."""

    key = "pointing_game"
    title = "Pointing game"
    explanation = "Share of the samples whose most relevant place lies on the annotation."
    function = staticmethod(pointing_game)


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
