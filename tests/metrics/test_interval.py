import numpy as np
import pytest
import torch
from scipy import stats

from lrptrain.batch.annotations import TokenAnnotation, rationale_to_tokens
from lrptrain.metrics import EnergyPointingGame, energy_pointing_game
from lrptrain.metrics.interval import (
    mean_with_interval,
    merge_moments,
    moments_by_row,
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


def test_a_metric_has_the_t_interval_of_its_values_however_it_is_merged():
    generator = torch.Generator().manual_seed(1)
    scores, evidence = torch.rand(50, 6, generator=generator), torch.rand(50, 6, generator=generator) > 0.5
    evidence[:, 0] = True
    scores[3] = torch.nan
    annotation = rationale_to_tokens(evidence)
    metric, other = EnergyPointingGame(), EnergyPointingGame()

    def rows(few):
        return scores[few], TokenAnnotation(annotation.evidence[few], annotation.valid[few])

    metric(*rows(slice(10)))  # forward: computes the batch and goes on
    metric.update(*rows(slice(10, 30)))
    other.update(*rows(slice(30, 50)))
    metric.merge_state(other)
    values = energy_pointing_game(scores, annotation)
    found = metric.compute()
    known = values[~values.isnan()].double().numpy()
    assert [float(found[name]) for name in ("value", "low", "high")] == textbook(known)
    assert (found["samples"], found["undefined"]) == (49, 1)
