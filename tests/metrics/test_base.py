"""One checklist for every metric against an annotation."""

import pickle
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torchmetrics import Metric, MetricCollection

from lrptrain import metrics
from lrptrain.batch.annotations import TokenAnnotation, rationale_to_tokens
from lrptrain.metrics import (
    AnnotationMetric,
    EnergyPointingGame,
    IouF1,
    LocalizationAUPRC,
    PerturbationArea,
    PointingGame,
    RelevanceRankAccuracy,
    SampleMean,
    TokenF1,
    energy_pointing_game,
    iou_f1,
    localization_auprc,
    pointing_game,
    relevance_rank_accuracy,
    token_f1_at_k,
    uniform_chance,
)
from lrptrain.segmentation.scoring import MaskScore

PAIRS: dict[str, tuple[Callable, Callable]] = {
    "energy": (energy_pointing_game, EnergyPointingGame),
    "pointing": (pointing_game, PointingGame),
    "pointing_near": (
        partial(pointing_game, grid=(3, 4), tolerance=1),
        partial(PointingGame, grid=(3, 4), tolerance=1),
    ),
    "rank": (relevance_rank_accuracy, RelevanceRankAccuracy),
    "auprc": (localization_auprc, LocalizationAUPRC),
    "token_f1": (partial(token_f1_at_k, k=3), partial(TokenF1, k=3)),
    "iou_f1": (partial(iou_f1, k=3), partial(IouF1, k=3)),
}
every = pytest.mark.parametrize(("function", "metric"), PAIRS.values(), ids=PAIRS.keys())


def example(samples=6, seed=0):
    """Scores with ties and shares between 0 and 1, one token marked at least; the second sample has no annotation."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-3, 9, (samples, 12), generator=generator).double()
    valid = torch.randint(0, 3, (samples, 12), generator=generator).double() / 2
    share = torch.rand(samples, 12, dtype=torch.float64, generator=generator)
    evidence = torch.where((valid > 0) & (scores.long() % 3 == 0), share, 0)
    valid[:, 5], evidence[:, 5] = 1, 1
    valid[1], evidence[1] = 0, 0
    return scores, TokenAnnotation(evidence, valid)


def take(annotation, rows):
    return TokenAnnotation(annotation.evidence[rows], annotation.valid[rows])


@every
def test_absent_is_nan_and_the_rest_lies_in_the_unit_interval(function, metric):
    values = function(*example(40))
    assert values.isnan().tolist() == [row == 1 for row in range(40)]
    known = values[~values.isnan()]
    assert ((known >= 0) & (known <= 1)).all()
    assert known.std() > 0


@every
def test_batch_equals_singles(function, metric):
    scores, annotation = example()
    singles = [function(scores[[i]], take(annotation, [i])) for i in range(len(scores))]
    torch.testing.assert_close(function(scores, annotation), torch.cat(singles), atol=1e-12, rtol=0, equal_nan=True)


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_is_computed_in_float32(function, metric, dtype):
    scores, annotation = example()
    scores = (scores + torch.rand(scores.shape, generator=torch.Generator().manual_seed(1))).to(dtype)
    annotation = TokenAnnotation(annotation.evidence.float(), annotation.valid.float())
    values = function(scores, annotation)
    assert values.dtype == torch.float32
    assert torch.equal(values.nan_to_num(-1), function(scores.float(), annotation).nan_to_num(-1))


@every
def test_inputs_are_left_alone(function, metric):
    scores, annotation = example()
    before = scores.clone(), annotation.evidence.clone(), annotation.valid.clone()
    function(scores, annotation)
    metric().update(scores, annotation)
    for tensor, copy in zip((scores, annotation.evidence, annotation.valid), before, strict=True):
        assert torch.equal(tensor, copy)


@every
def test_scores_that_may_not_be_used_do_not_matter(function, metric):
    scores, annotation = example()
    broken = torch.where(annotation.usable, scores, torch.nan)
    assert torch.equal(function(broken, annotation).nan_to_num(-1), function(scores, annotation).nan_to_num(-1))


@every
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_scores_that_are_not_finite_are_undefined(function, metric, value):
    scores, annotation = example()
    scores[2, annotation.usable[2].nonzero()[0]] = value
    assert function(scores, annotation).isnan().tolist() == [row in (1, 2) for row in range(len(scores))]


@every
def test_positive_scale_does_not_matter(function, metric):
    scores, annotation = example()
    torch.testing.assert_close(function(scores * 4, annotation), function(scores, annotation), equal_nan=True)


@pytest.mark.parametrize("name", ["energy", "pointing", "rank", "auprc", "token_f1"])
def test_order_of_tokens_does_not_matter(name):
    function = PAIRS[name][0]
    scores, annotation = example()
    order = torch.randperm(12, generator=torch.Generator().manual_seed(2))
    shuffled = TokenAnnotation(annotation.evidence[:, order], annotation.valid[:, order])
    torch.testing.assert_close(function(scores[:, order], shuffled), function(scores, annotation), equal_nan=True)


@every
def test_shapes_must_fit(function, metric):
    scores, annotation = example()
    with pytest.raises(ValueError, match="must have one shape"):
        function(scores[:, 1:], annotation)


@every
def test_metric_is_the_mean_of_the_function(function, metric):
    scores, annotation = example()
    label = torch.tensor([0, 0, 2, 2, 0, 2])
    instance = metric(num_classes=3)
    instance.update(scores[:2], take(annotation, slice(0, 2)), label[:2])
    instance.update(scores[2:], take(annotation, slice(2, 6)), label[2:])
    values, result = function(scores, annotation).float(), instance.compute()
    torch.testing.assert_close(result["value"], values.nanmean())
    torch.testing.assert_close(result["per_class"][[0, 2]], torch.stack([values[label == c].nanmean() for c in (0, 2)]))
    assert result["per_class"][1].isnan()
    assert (result["samples"], result["undefined"]) == (5, 0)
    if instance.has_chance:
        torch.testing.assert_close(result["chance"], uniform_chance(function, annotation).nanmean().float())


@every
def test_two_merged_equal_one(function, metric):
    scores, annotation = example()
    whole, first, second = metric(), metric(), metric()
    whole.update(scores, annotation)
    first.update(scores[:1], take(annotation, slice(0, 1)))
    second.update(scores[1:], take(annotation, slice(1, 6)))
    first.merge_state(pickle.loads(pickle.dumps(second)))
    for key, value in whole.compute().items():
        torch.testing.assert_close(first.compute()[key], value)


@every
def test_forward_returns_the_batch_and_reset_forgets(function, metric):
    scores, annotation = example()
    instance = metric()
    for rows in (slice(0, 2), slice(2, 6)):
        batch = instance(scores[rows], take(annotation, rows))
        torch.testing.assert_close(batch["value"], function(scores[rows], take(annotation, rows)).nanmean().float())
    torch.testing.assert_close(instance.compute()["value"], function(scores, annotation).nanmean().float())
    instance.reset()
    instance.update(scores[:1], take(annotation, slice(0, 1)))
    assert instance.compute()["samples"] == 1


def test_chance_is_taken_over_the_samples_with_a_value():
    scores = torch.tensor([[1.0, 0.0], [-1.0, -1.0]])
    metric = EnergyPointingGame()
    metric.update(scores, rationale_to_tokens(torch.tensor([[1, 0], [1, 1]])))
    result = metric.compute()
    assert (result["value"], result["chance"], result["samples"], result["undefined"]) == (1, 0.5, 1, 1)


def test_nothing_seen_is_nan():
    metric = EnergyPointingGame(num_classes=2)
    metric.update(torch.ones(1, 2), rationale_to_tokens(torch.full((1, 2), 255)), torch.tensor([0]))
    result = metric.compute()
    assert result["value"].isnan()
    assert result["chance"].isnan()
    assert result["per_class"].isnan().all()
    assert result["samples"] == 0


def test_a_collection_never_takes_two_metrics_for_one():
    collection = MetricCollection({"few": TokenF1(k=1), "many": TokenF1(k=3)})
    absent = rationale_to_tokens(torch.full((1, 4), 255))
    annotation = rationale_to_tokens(torch.tensor([[1, 0, 0, 0]]))
    scores = torch.tensor([[4.0, 3, 2, 1]])
    collection.update(scores, absent)
    collection.update(scores, annotation)
    result = collection.compute()
    assert result["few_value"] == 1
    assert result["many_value"] == 0.5


@pytest.mark.parametrize("label", [None, torch.tensor([0, 3]), torch.tensor([0, -1]), torch.tensor([0])])
def test_wrong_labels_are_refused(label):
    scores, annotation = torch.ones(2, 2), rationale_to_tokens(torch.tensor([[1, 0], [1, 0]]))
    with pytest.raises((ValueError, TypeError), match=r"label|Type-check"):
        EnergyPointingGame(num_classes=3).update(scores, annotation, label)


def test_classes_must_be_positive():
    with pytest.raises(ValueError, match="num_classes"):
        EnergyPointingGame(num_classes=0)


def test_public_names_are_sorted_and_exist():
    assert metrics.__all__ == sorted(metrics.__all__)
    assert all(hasattr(metrics, name) for name in metrics.__all__)


def public_metrics():
    """Every public metric of the project; the two bases are no metrics of anything yet."""
    exported = [getattr(metrics, name) for name in metrics.__all__]
    classes = [item for item in exported if isinstance(item, type) and issubclass(item, Metric)]
    return [*(each for each in classes if each not in (AnnotationMetric, SampleMean)), MaskScore]


@pytest.mark.parametrize("metric", public_metrics(), ids=lambda metric: metric.__name__)
def test_a_metric_says_what_loggers_and_plots_need(metric):
    assert metric.key.replace("_", "").isalnum()
    assert metric.key == metric.key.lower()
    assert metric.title.strip() == metric.title != ""
    assert metric.higher_is_better in (True, False, None)
    assert isinstance(metric.is_differentiable, bool)
    assert isinstance(metric.full_state_update, bool)
    assert callable(metric.function)


def test_keys_and_titles_of_metrics_are_unique():
    for attribute in ("key", "title"):
        names = [getattr(metric, attribute) for metric in public_metrics()]
        assert len(set(names)) == len(names)


def test_only_the_perturbation_area_learns_its_direction_from_an_argument():
    open_direction = [metric for metric in public_metrics() if metric.higher_is_better is None]
    assert open_direction == [PerturbationArea]
    assert PerturbationArea().higher_is_better is False
    assert pickle.loads(pickle.dumps(PerturbationArea(most_relevant_first=False))).higher_is_better is True


@every
def test_the_function_of_a_metric_gives_its_scores(function, metric):
    scores, annotation = example()
    instance = metric()
    expected = type(instance).function(scores, annotation, **instance.options)
    assert torch.equal(expected.nan_to_num(-1), function(scores, annotation).nan_to_num(-1))
