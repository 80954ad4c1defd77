"""Metrics of relevance: a pure function with one value per sample, and beside it a `torchmetrics.Metric`."""

from lrptrain.metrics.base import AnnotationMetric, uniform_chance
from lrptrain.metrics.deletion import delete_tokens, text_probability
from lrptrain.metrics.faithfulness import (
    area_under_curve,
    comprehensiveness,
    perturbation_curve,
    sufficiency,
)
from lrptrain.metrics.localization import (
    EnergyPointingGame,
    LocalizationAUPRC,
    PointingGame,
    RelevanceRankAccuracy,
    energy_pointing_game,
    localization_auprc,
    pointing_game,
    relevance_rank_accuracy,
)
from lrptrain.metrics.ranking import average_precision, rank_correlation, select_top

__all__ = [
    "AnnotationMetric",
    "EnergyPointingGame",
    "LocalizationAUPRC",
    "PointingGame",
    "RelevanceRankAccuracy",
    "area_under_curve",
    "average_precision",
    "comprehensiveness",
    "delete_tokens",
    "energy_pointing_game",
    "localization_auprc",
    "perturbation_curve",
    "pointing_game",
    "rank_correlation",
    "relevance_rank_accuracy",
    "select_top",
    "sufficiency",
    "text_probability",
    "uniform_chance",
]
