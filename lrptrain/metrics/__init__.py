"""Metrics of relevance: a pure function with one value per sample, and beside it a `torchmetrics.Metric`."""

from lrptrain.metrics.base import AnnotationMetric, SampleMean, uniform_chance
from lrptrain.metrics.deletion import delete_tokens, text_probability
from lrptrain.metrics.faithfulness import (
    Comprehensiveness,
    PerturbationArea,
    Sufficiency,
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
    "Comprehensiveness",
    "EnergyPointingGame",
    "IouF1",
    "LocalizationAUPRC",
    "PerturbationArea",
    "PointingGame",
    "RelevanceRankAccuracy",
    "SampleMean",
    "SegmentationScore",
    "Sufficiency",
    "TokenF1",
    "area_under_curve",
    "average_precision",
    "comprehensiveness",
    "delete_tokens",
    "energy_pointing_game",
    "iou_f1",
    "localization_auprc",
    "mean_iou",
    "perturbation_curve",
    "pixel_accuracy",
    "pointing_game",
    "rank_correlation",
    "rationale_auprc",
    "relative_map",
    "relevance_rank_accuracy",
    "segmentation_average_precision",
    "segmentation_confusion",
    "select_top",
    "span_counts",
    "span_f1",
    "sufficiency",
    "text_probability",
    "token_f1_at_k",
    "uniform_chance",
]
