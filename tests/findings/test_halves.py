"""Which half of the samples suspects, and which judges."""

import numpy as np
import pytest

from lrptrain.findings.halves import SPLIT_FROM, judging, suspecting, suspecting_members


@pytest.mark.parametrize("count", [SPLIT_FROM, SPLIT_FROM + 1, 500])
def test_a_large_scope_is_split_into_halves_that_share_nothing(count):
    rows = 3 * np.arange(count)
    halves = suspecting(rows), judging(rows)
    assert sorted(np.concatenate(halves).tolist()) == rows.tolist()
    assert min(map(len, halves)) >= SPLIT_FROM // 2
    member = np.zeros(3 * count, bool)
    member[rows] = True
    assert np.flatnonzero(suspecting_members(member)).tolist() == suspecting(rows).tolist()


def test_a_small_scope_is_suspected_and_judged_as_a_whole():
    rows = np.arange(SPLIT_FROM - 1)
    assert suspecting(rows).tolist() == judging(rows).tolist() == rows.tolist()


def test_classes_in_order_keep_their_shares():
    labels = np.sort(np.arange(260) % 4)
    for half in (suspecting, judging):
        assert np.bincount(labels[half(np.arange(260))]).tolist() in (
            [32, 33, 32, 33],
            [33, 32, 33, 32],
        )
