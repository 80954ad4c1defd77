from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score
from torch import Tensor

from lrptrain.batch.annotations import TokenAnnotation, rationale_to_tokens
from lrptrain.metrics import (
    IouF1,
    TokenF1,
    iou_f1,
    localization_auprc,
    rationale_auprc,
    select_top,
    span_counts,
    span_f1,
    token_f1_at_k,
    uniform_chance,
)

documents = st.lists(st.tuples(st.booleans(), st.sampled_from([0, 1, 1, 255])), min_size=1, max_size=14)


def one(scores: Sequence, rationale: Sequence) -> tuple[Tensor, TokenAnnotation]:
    return torch.tensor([scores], dtype=torch.float64), rationale_to_tokens(torch.tensor([rationale]))


def runs(inside):
    """Textbook: the sets of places of the longest runs."""
    found, current = [], set()
    for place, here in enumerate([*inside, False]):
        if here:
            current.add(place)
        elif current:
            found.append(current)
            current = set()
    return found


def eraser_counts(selected, gold, overlap):
    predicted_runs, gold_runs = runs(selected), runs(gold)
    best = [max((len(p & g) / len(p | g) for g in gold_runs), default=0) for p in predicted_runs]
    return [sum(iou >= overlap for iou in best), len(predicted_runs), len(gold_runs)]


@pytest.mark.parametrize(
    ("k", "expected"), [(1, 2 / 3), (2, 2 / 4), (3, 4 / 5), (4, 4 / 6), (99, 4 / 6)], ids=lambda value: str(value)[:4]
)
def test_token_f1_by_hand(k, expected):
    scores, annotation = one([9, 4, 3, 2, 1], [255, 1, 0, 1, 0])
    assert token_f1_at_k(scores, annotation, k).item() == pytest.approx(expected)


@given(documents, st.integers(1, 15), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=60)
def test_token_f1_equals_sklearn(document, k, random):
    rationale = [truth for _, truth in document]
    scores, annotation = one(random.sample(range(100), len(rationale)), rationale)
    value = token_f1_at_k(scores, annotation, k)
    if 1 not in rationale:
        assert value.isnan().all()
    else:
        usable = annotation.usable[0].numpy()
        top = select_top(scores, annotation.usable, k)[0].numpy()
        expected = f1_score(annotation.marked[0].numpy()[usable], top[usable])
        assert value.item() == pytest.approx(expected, abs=1e-12)


def test_token_f1_of_a_constant_map_is_the_mean_over_random_orders():
    _, annotation = one([0] * 10, [1, 1, 1, 0, 0, 0, 0, 0, 255, 255])
    chance = uniform_chance(token_f1_at_k, annotation, k=4).item()
    assert chance == pytest.approx(2 * (4 * 3 / 8) / (4 + 3))
    scores = torch.rand(4000, 10, generator=torch.Generator().manual_seed(0))
    many = rationale_to_tokens(torch.tensor([[1, 1, 1, 0, 0, 0, 0, 0, 255, 255]]).expand(4000, -1))
    assert token_f1_at_k(scores, many, 4).mean().item() == pytest.approx(chance, abs=0.01)


def test_spans_by_hand():
    selected = torch.tensor([[1, 1, 0, 0, 1, 1, 1, 0, 1]]).bool()
    _, annotation = one([0] * 9, [1, 1, 0, 0, 0, 0, 1, 1, 0])
    # runs 0-1 = 0-1 (1), 4-6 against 6-7 (1/4), 8 against nothing
    assert span_counts(selected, annotation).tolist() == [[1, 3, 2]]
    assert span_f1(span_counts(selected, annotation)).tolist() == pytest.approx([2 / 5])


def test_a_span_that_overlaps_by_exactly_a_half_matches():
    selected = torch.tensor([[1, 1, 0, 0]]).bool()
    _, annotation = one([0] * 4, [1, 1, 1, 1])
    assert span_counts(selected, annotation).tolist() == [[1, 1, 1]]
    assert span_counts(selected, annotation, overlap=0.51).tolist() == [[0, 1, 1]]


@given(documents, st.sampled_from([0.5, 0.6, 0.75, 1.0]))
@settings(deadline=None, max_examples=150)
def test_spans_equal_the_published_definition(document, overlap):
    selected, rationale = zip(*document, strict=True)
    _, annotation = one([0] * len(document), rationale)
    counts = span_counts(torch.tensor([selected]), annotation, overlap)[0].tolist()
    usable = [truth != 255 for truth in rationale]
    chosen = [s and u for s, u in zip(selected, usable, strict=True)]
    assert counts == eraser_counts(chosen, [truth == 1 for truth in rationale], overlap)
    assert counts[0] <= min(counts[1:])


def test_iou_f1_takes_the_top_tokens():
    scores, annotation = one([5, 4, 0, 0, 3], [1, 1, 0, 0, 0])
    assert iou_f1(scores, annotation, 2).tolist() == [1]
    assert iou_f1(scores, annotation, 3).tolist() == pytest.approx([2 / 3])
    assert iou_f1(*one([1, 2], [0, 0]), k=1).isnan().all()


def test_iou_f1_metric_also_counts_all_spans_together():
    metric = IouF1(k=2)
    metric.update(*one([5, 4, 0, 0, 0], [1, 1, 0, 0, 0]))
    metric.update(*one([5, 0, 0, 0, 4], [0, 0, 1, 0, 1]))
    metric.update(*one([5, 0, 0, 0, 4], [255] * 5))
    metric.update(*one([5, 0, 0, 0, 4], [0] * 5))
    result = metric.compute()
    assert result["value"].item() == pytest.approx((1 + 0.5) / 2)
    assert result["micro"].item() == pytest.approx(2 * 2 / (3 + 3))
    assert (result["samples"], result["undefined"]) == (2, 1)
    assert "chance" not in result


def test_wrong_k_and_overlap_are_refused():
    example = one([1, 2], [1, 0])
    with pytest.raises(ValueError, match="k must be a positive"):
        token_f1_at_k(*example, k=0)
    with pytest.raises(ValueError, match="k must be a positive"):
        TokenF1(k=-1)
    with pytest.raises(ValueError, match="overlap must lie"):
        iou_f1(*example, k=1, overlap=0.2)
    with pytest.raises(ValueError, match="overlap must lie"):
        IouF1(k=1, overlap=2)
    with pytest.raises(ValueError, match="must fit"):
        span_counts(torch.ones(1, 3, dtype=torch.bool), example[1])


def test_auprc_is_one_thing_under_two_names():
    assert rationale_auprc is localization_auprc
