"""Metrics of relevance: a pure function with one value per sample, and beside it a `torchmetrics.Metric`.

Examples:
    >>> import torch
    >>> from lrptrain.batch.annotations import mask_to_tokens
    >>> from lrptrain.metrics import *
    >>> scores, grid = torch.tensor([[0.6, 0.3, 0.1, 0.0]]), (2, 2)  # relevance of four patches
    >>> mask = torch.tensor([[[1, 0], [1, 0]]])  # those on the left are annotated
    >>> annotation = mask_to_tokens(mask, grid)
    >>> pointing_game(scores, annotation), energy_pointing_game(scores, annotation)
    (tensor([1.]), tensor([0.7000]))
    >>> relevance_rank_accuracy(scores, annotation), localization_auprc(scores, annotation)
    (tensor([0.5000]), tensor([0.8333]))
    >>> token_f1_at_k(scores, annotation, k=2), iou_f1(scores, annotation, k=2), rationale_auprc(scores, annotation)
    (tensor([0.5000]), tensor([0.6667]), tensor([0.8333]))
    >>> means = [PointingGame(), EnergyPointingGame(), RelevanceRankAccuracy(), LocalizationAUPRC(), TokenF1(2)]
    >>> for mean in [*means, IouF1(2)]:
    ...     mean.update(scores, annotation)
    >>> [round(float(mean.compute()["value"]), 2) for mean in means]
    [1.0, 0.7, 0.5, 0.83, 0.5]
    >>> uniform_chance(pointing_game, annotation), average_precision(scores, annotation.marked, annotation.usable)
    (tensor([0.5000]), tensor([0.8333]))
    >>> first = select_top(scores, annotation.usable, 1)
    >>> span_f1(span_counts(first, annotation)), rank_correlation(scores, -scores, annotation.usable)
    (tensor([0.6667]), tensor([-1.]))
    >>> confusion = segmentation_confusion(scores, grid, mask)
    >>> pixel_accuracy(confusion), mean_iou(confusion), segmentation_average_precision(scores, grid, mask)
    (tensor([0.5000]), tensor([0.3333]), tensor([0.8167]))
    >>> relative_map(scores, grid, size=(2, 2))
    tensor([[[1.0000, 0.5000],
             [0.1667, 0.0000]]])
    >>> SegmentationScore(grid).update(scores, mask)  # and compute(), as above
    >>> def predict(images):  # class 0 by the sum of the pixels
    ...     return torch.stack([images.sum((1, 2, 3)), torch.full((len(images),), 0.5)], 1)
    >>> arguments = predict, scores.view(1, 1, 2, 2), scores, grid, torch.tensor([0])
    >>> area_under_curve(perturbation_curve(*arguments))
    tensor([0.0625])
    >>> PerturbationArea().update(*arguments)
    >>> def probability(keep):  # of the class, with these tokens alone
    ...     return (keep * scores).sum(1)
    >>> comprehensiveness(probability, scores, annotation.usable), sufficiency(probability, scores, annotation.usable)
    (tensor([0.6600]), tensor([0.3400]))
    >>> Comprehensiveness().update(probability, scores, annotation.usable)
    >>> Sufficiency().update(probability, scores, annotation.usable)
    >>> text = {"input_ids": torch.tensor([[1, 7, 8, 2]]), "attention_mask": torch.ones(1, 4)}
    >>> delete_tokens(text, keep=torch.tensor([[True, False, True, True]]))["input_ids"]
    tensor([[1, 8, 2]])
    >>> def model(input_ids, attention_mask):
    ...     return torch.nn.functional.one_hot(input_ids.sum(1) % 2, 2).float()
    >>> text_probability(model, text, target=torch.tensor([0]))(torch.tensor([[True, False, True, True]]))
    tensor([0.2689])
"""

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
from lrptrain.metrics.rationale import IouF1, TokenF1, iou_f1, rationale_auprc, span_counts, span_f1, token_f1_at_k
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
