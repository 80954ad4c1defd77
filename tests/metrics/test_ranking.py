import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score

from lrptrain.metrics import average_precision, rank_correlation, select_top
from lrptrain.metrics.ranking import expected_hits

# (score, positive, usable); few different scores, so that ties are common
entries = st.lists(st.tuples(st.integers(-2, 2), st.booleans(), st.booleans()), min_size=1, max_size=9)


def columns(rows):
    scores, positive, usable = zip(*rows, strict=True)
    return torch.tensor([scores]).double(), torch.tensor([positive]), torch.tensor([usable])


def test_average_precision_by_hand():
    scores = torch.tensor([[0.9, 0.8, 0.7, 0.6]])
    positive = torch.tensor([[True, False, True, False]])
    value = average_precision(scores, positive, torch.ones_like(positive))
    assert value.tolist() == pytest.approx([0.5 * 1 + 0.5 * 2 / 3])


@given(entries)
@settings(deadline=None, max_examples=100)
def test_average_precision_equals_sklearn(rows):
    scores, positive, usable = columns(rows)
    value = average_precision(scores, positive, usable)
    if not (positive & usable).any():
        assert value.isnan().all()
    else:
        expected = average_precision_score(positive[usable].numpy(), scores[usable].numpy())
        assert value.item() == pytest.approx(expected, abs=1e-12)


def test_average_precision_of_many_entries_in_half_precision():
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(1, 100_000, generator=generator).half()
    positive = torch.rand(1, 100_000, generator=generator) < 0.3
    value = average_precision(scores, positive, torch.ones_like(positive))
    expected = average_precision_score(positive[0].numpy(), scores[0].float().numpy())
    assert value.item() == pytest.approx(expected, abs=1e-4)


@given(entries, st.integers(0, 10))
@settings(deadline=None, max_examples=100)
def test_expected_hits_is_the_mean_over_all_orders_of_ties(rows, k):
    rows = rows[:6]
    scores, hits, usable = columns(rows)
    counts = []
    for order in itertools.permutations([row for row in rows if row[2]]):
        ranked = sorted(order, key=lambda row: -row[0])
        counts.append(sum(row[1] for row in ranked[:k]))
    value = expected_hits(scores, hits, usable, torch.tensor([k]))
    assert value.item() == pytest.approx(sum(counts) / len(counts), abs=1e-12)


def test_select_top_takes_the_earlier_of_tied_and_no_unusable():
    scores = torch.tensor([[1.0, 3.0, 1.0, 9.0, 1.0]])
    usable = torch.tensor([[True, True, True, False, True]])
    assert select_top(scores, usable, 2).tolist() == [[True, True, False, False, False]]
    assert select_top(scores, usable, 99).tolist() == usable.tolist()


def test_select_top_of_a_long_constant_map_is_its_beginning():
    scores, usable = torch.zeros(1, 5000), torch.ones(1, 5000, dtype=torch.bool)
    assert select_top(scores, usable, 7)[0].nonzero().flatten().tolist() == list(range(7))


@given(entries, st.integers(1, 10))
@settings(deadline=None, max_examples=50)
def test_select_top_takes_k_and_none_better_is_left(rows, k):
    scores, _, usable = columns(rows)
    top = select_top(scores, usable, k)
    assert top.sum() == min(k, int(usable.sum()))
    left = usable & ~top
    if top.any() and left.any():
        assert scores[top].min() >= scores[left].max()


def test_rank_correlation_equals_scipy_with_ties_and_unusable_entries():
    generator = torch.Generator().manual_seed(5)
    first, second = (torch.randint(-4, 5, (30, 12), generator=generator).double() for _ in range(2))
    usable = torch.rand(30, 12, generator=generator) < 0.8
    found = rank_correlation(first, second, usable)
    for a, b, u, value in zip(first, second, usable, found, strict=True):
        assert value.item() == pytest.approx(spearmanr(a[u], b[u]).statistic, abs=1e-12)


def test_rank_correlation_is_undefined_for_constant_or_broken_maps():
    first = torch.tensor([[1.0, 1.0, 1.0], [1.0, torch.nan, 2.0], [3.0, 2.0, torch.inf], [1.0, 2.0, 3.0]])
    usable = torch.tensor([[1, 1, 1], [1, 1, 1], [1, 1, 0], [1, 1, 1]]).bool()
    found = rank_correlation(first, torch.tensor([[1.0, 2.0, 3.0]]).expand(4, 3), usable)
    assert found.isnan().tolist() == [True, True, False, False]
    assert found[2:].tolist() == [-1, 1]
