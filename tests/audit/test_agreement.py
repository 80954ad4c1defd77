import numpy as np
import torch
from scipy import stats

from lrptrain.audit.agreement import agreement


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
