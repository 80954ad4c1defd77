import numpy as np
import pytest
import torch
from audited import context, registered
from scipy import stats

from lrptrain.auditing.checks.agreement import agreement
from lrptrain.auditing.context import content_of_map
from lrptrain.metrics import rank_correlation


def test_all_pairs_by_scipy():
    generator = torch.Generator().manual_seed(0)
    maps = {name: torch.randn(4, 9, generator=generator) for name in "abc"}
    usable = torch.arange(9) < torch.tensor([9, 7, 5, 9])[:, None]
    found = agreement(maps, usable)
    assert found.shape == (3, 3, 4)
    for i, one in enumerate(maps.values()):
        for j, other in enumerate(maps.values()):
            for sample, content in enumerate(usable):
                expected = stats.spearmanr(one[sample][content], other[sample][content]).statistic
                np.testing.assert_allclose(found[i, j, sample], expected, atol=1e-6)


def test_itself_its_negative_and_a_constant():
    values = torch.arange(6.0)[None]
    maps = {"map": values, "negative": -values, "constant": torch.ones(1, 6)}
    found = agreement(maps, torch.ones(1, 6, dtype=torch.bool))[..., 0]
    torch.testing.assert_close(found[:2, :2], torch.tensor([[1.0, -1.0], [-1.0, 1.0]]))
    assert found[2].isnan().all()


@pytest.mark.parametrize("name", ["vit", "bert"])
def test_a_unit_is_the_mean_rank_correlation(name):
    audit = context(name, ("input_x_gradient", "raw_attention"))
    values = registered("agreement").run(audit, "")
    assert values["methods"] == ["input_x_gradient", "raw_attention"]
    correlations = []
    for index, batch in enumerate(audit.batches):
        first, second = (audit.maps(method)[index].scores for method in values["methods"])
        correlations.append(rank_correlation(first, second, content_of_map(batch.inputs, first.shape[1])))
    assert values["matrix"][0][1] == pytest.approx(torch.cat(correlations).nanmean().item(), abs=1e-5)
    assert values["matrix"][0][0] == pytest.approx(1.0)


def test_one_method_agrees_with_nothing():
    assert "single method" in registered("agreement").obstacle(context(methods=("random",)))
