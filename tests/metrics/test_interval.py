import numpy as np
import pytest
import torch
from scipy import stats

from lrptrain.batch.annotations import rationale_to_tokens
from lrptrain.metrics import IouF1, SampleMean, SegmentationScore, iou_f1, mean_iou, segmentation_confusion
from lrptrain.metrics.interval import (
    mean_with_interval,
    merge_moments,
    moments_by_row,
    pooled_interval,
    products_of_counts,
    t_quantile,
)


def textbook(values):
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    return pytest.approx([np.mean(values), low, high], rel=2e-5)


def test_t_quantile_equals_scipy():
    freedom = torch.arange(1, 3000, dtype=torch.float64)
    expected = torch.from_numpy(stats.t.ppf(0.975, freedom.numpy()))
    torch.testing.assert_close(t_quantile(freedom), expected, atol=0, rtol=2e-5)
    assert t_quantile(torch.tensor(0)).isnan()


def test_interval_equals_scipy_however_it_is_merged():
    # Far from zero with little spread: sums of squares in float32 would have no digit left.
    values = 1000 + torch.rand(300, generator=torch.Generator().manual_seed(0)) / 10
    values[::7] = torch.nan
    row = torch.arange(300) % 2
    parts = [moments_by_row(v, r, 2) for v, r in zip(values.split(40), row.split(40), strict=True)]
    merged = merge_moments(torch.stack(parts))
    for which in (0, 1):
        chosen = values[row == which].double().numpy()
        found = mean_with_interval(merged)
        half = stats.t.interval(0.95, (~np.isnan(chosen)).sum() - 1, 0, stats.sem(chosen, nan_policy="omit"))[1]
        assert float(found["value"][which]) == pytest.approx(np.nanmean(chosen), rel=1e-6)
        width = torch.sqrt(merged[which, 2] / (merged[which, 0] - 1) / merged[which, 0]) * t_quantile(
            merged[which, 0] - 1
        )
        assert float(width) == pytest.approx(half, rel=2e-3)
    everything = merge_moments(merged)
    assert everything[0] == (~values.isnan()).sum()


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_samples_have_no_interval(count):
    found = mean_with_interval(moments_by_row(torch.full((count,), 0.5), torch.zeros(count, dtype=torch.long), 1)[0])
    assert found["value"].isnan() == (count == 0)
    assert found["low"].isnan()
    assert found["high"].isnan()


class Given(SampleMean):
    """The mean of what it is given."""

    def score(self, values):
        return values


def test_sample_mean_over_batches():
    values = torch.rand(50, generator=torch.Generator().manual_seed(1))
    values[3] = torch.nan
    metric, other = Given(), Given()
    metric(values[:10])  # forward: computes the batch and goes on
    metric.update(values[10:30])
    other.update(values[30:])
    metric.merge_state(other)
    found = metric.compute()
    assert [float(found[name]) for name in ("value", "low", "high")] == textbook(
        values[~values.isnan()].double().numpy()
    )
    assert (found["samples"], found["undefined"]) == (49, 1)


def test_pooled_interval_of_a_plain_mean_is_the_t_interval():
    hits = torch.randint(0, 11, (40,), generator=torch.Generator().manual_seed(2))
    counts = torch.stack([hits, torch.full_like(hits, 10)], 1)
    total, products, samples = counts.sum(0), products_of_counts(counts), torch.tensor(40)
    low, high = pooled_interval(lambda cells: cells[0] / cells[1], total, products, samples)
    expected = (hits.double() / 10).numpy()
    assert [expected.mean(), float(low), float(high)] == textbook(expected)


def test_pooled_interval_of_the_mean_iou_is_near_the_jackknife():
    generator = torch.Generator().manual_seed(3)
    scores = torch.rand(200, 16, generator=generator)
    mask = (torch.rand(200, 16, 16, generator=generator) < torch.rand(200, 1, 1, generator=generator)).long()
    metric = SegmentationScore((4, 4))
    for rows in torch.arange(200).split(64):
        metric.update(scores[rows], mask[rows])
    found = metric.compute()
    cells = segmentation_confusion(scores, (4, 4), mask)
    without = mean_iou(cells.sum(0) - cells).double()
    deviation = (199 / 200 * ((without - without.mean()) ** 2).sum()).sqrt()
    half = float(stats.t.ppf(0.975, 199) * deviation)
    assert float(found["high"] - found["low"]) / 2 == pytest.approx(half, rel=0.02)
    assert float(found["high"] + found["low"]) / 2 == pytest.approx(float(found["value"]), rel=1e-5)
    assert found["pixel_accuracy_low"] < found["pixel_accuracy"] < found["pixel_accuracy_high"]
    assert found["average_precision_low"] < found["average_precision"] < found["average_precision_high"]


def test_micro_average_of_spans_has_an_interval_over_documents():
    generator = torch.Generator().manual_seed(4)
    scores = torch.rand(60, 12, generator=generator)
    annotation = rationale_to_tokens(torch.randint(0, 2, (60, 12), generator=generator))
    metric = IouF1(k=4)
    metric.update(scores, annotation)
    found = metric.compute()
    assert found["micro_low"] < found["micro"] < found["micro_high"]
    values = iou_f1(scores, annotation, 4).double()
    spread = float(found["micro_high"] - found["micro_low"])
    assert spread == pytest.approx(float(found["high"] - found["low"]), rel=0.5)
    assert float(found["value"]) == pytest.approx(float(values.nanmean()))


def test_one_image_has_no_interval():
    metric = SegmentationScore((1, 2))
    metric.update(torch.tensor([[0.0, 1.0]]), torch.tensor([[[0, 0, 1, 1]]]))
    found = metric.compute()
    assert found["value"] == 1
    assert found["low"].isnan()
