"""Metrics of relevance: a pure function with one value per sample, and beside it a `torchmetrics.Metric`."""

from lrptrain.metrics.base import AnnotationMetric, uniform_chance
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
from lrptrain.metrics.ranking import average_precision, select_top
from lrptrain.metrics.rationale import (
    IouF1,
    TokenF1,
    iou_f1,
    rationale_auprc,
    span_counts,
    span_f1,
    token_f1_at_k,
)
from lrptrain.metrics.segmentation import (
    SegmentationScore,
    mean_iou,
    pixel_accuracy,
    relative_map,
    segmentation_average_precision,
    segmentation_confusion,
)

__all__ = [
    "AnnotationMetric",
    "EnergyPointingGame",
    "IouF1",
    "LocalizationAUPRC",
    "PointingGame",
    "RelevanceRankAccuracy",
    "SegmentationScore",
    "TokenF1",
    "average_precision",
    "energy_pointing_game",
    "iou_f1",
    "localization_auprc",
    "mean_iou",
    "pixel_accuracy",
    "pointing_game",
    "rationale_auprc",
    "relative_map",
    "relevance_rank_accuracy",
    "segmentation_average_precision",
    "segmentation_confusion",
    "select_top",
    "span_counts",
    "span_f1",
    "token_f1_at_k",
    "uniform_chance",
]
