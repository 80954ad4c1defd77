from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score
from torch import Tensor

from lrptrain.batch.annotations import TokenAnnotation, rationale_to_tokens
from lrptrain.metrics import (
    PointingGame,
    energy_pointing_game,
    localization_auprc,
    pointing_game,
    relevance_rank_accuracy,
    uniform_chance,
)

# (score, evidence, valid)
shares = st.sampled_from([0.0, 0.25, 0.5, 1.0])
tokens = st.lists(st.tuples(st.integers(-3, 3), shares, shares), min_size=1, max_size=12)


def columns(rows):
    scores, evidence, valid = torch.tensor(rows, dtype=torch.float64).T[:, None]
    return scores, TokenAnnotation(evidence=torch.where(valid > 0, evidence, 0), valid=valid)


def one(scores: Sequence, rationale: Sequence) -> tuple[Tensor, TokenAnnotation]:
    return torch.tensor([scores], dtype=torch.float64), rationale_to_tokens(torch.tensor([rationale]))


def test_energy_by_hand():
    scores = torch.tensor([[2.0, 1.0, -5.0, 1.0]])
    annotation = TokenAnnotation(
        evidence=torch.tensor([[1.0, 0.5, 1.0, 0.0]]), valid=torch.tensor([[1.0, 0.5, 1.0, 0.5]])
    )
    assert energy_pointing_game(scores, annotation).tolist() == pytest.approx([(2 + 0.25) / (2 + 0.5 + 0.5)])


@given(tokens)
@settings(deadline=None, max_examples=60)
def test_energy_equals_the_formula(rows):
    scores, annotation = columns(rows)
    inside = sum(max(a, 0) * m * v for (a, m, v) in rows)
    total = sum(max(a, 0) * v for (a, _, v) in rows)
    value = energy_pointing_game(scores, annotation)
    if total == 0:
        assert value.isnan().all()
    else:
        assert value.item() == pytest.approx(inside / total, abs=1e-12)


@pytest.mark.parametrize("scale", [1e-40, 1e-20, 1e38])
def test_energy_of_tiny_and_huge_relevance(scale):
    scores, annotation = torch.tensor([[3.0, 1.0, 3.0]]) * scale, one([0, 0, 0], [1, 0, 0])[1]
    assert energy_pointing_game(scores, annotation).item() == pytest.approx(3 / 7, rel=1e-4)


def test_no_positive_relevance_points_nowhere():
    assert energy_pointing_game(*one([0, -1, 0], [1, 0, 0])).isnan().all()
    assert energy_pointing_game(*one([1, -1, 0], [255, 0, 1])).isnan().all()


def test_nothing_marked_has_no_energy_inside():
    assert energy_pointing_game(*one([1, 2, 3], [0, 0, 0])).tolist() == [0]


@pytest.mark.parametrize(
    ("scores", "rationale", "expected"),
    [
        ([1, 5, 2], [0, 1, 0], 1),
        ([1, 5, 2], [1, 0, 1], 0),
        ([5, 5, 2], [0, 1, 0], 0.5),
        ([1, 5, 2], [1, 255, 0], 0),
        ([-3, -1, -2], [0, 1, 0], 1),
        ([7, 7, 7, 7], [0, 1, 0, 255], 1 / 3),
    ],
)
def test_pointing_by_hand(scores, rationale, expected):
    assert pointing_game(*one(scores, rationale)).item() == pytest.approx(expected)


def test_pointing_counts_a_token_that_only_touches_the_evidence():
    annotation = TokenAnnotation(evidence=torch.tensor([[0.1, 0.0]]), valid=torch.ones(1, 2))
    assert pointing_game(torch.tensor([[1.0, 0.0]]), annotation).item() == 1


@pytest.mark.parametrize("tolerance", [0.5, 1, 1.5, 2, 3])
def test_pointing_tolerance_is_a_distance(tolerance):
    rows, width = 5, 6
    rationale = torch.zeros(1, rows * width, dtype=torch.uint8)
    rationale[0, 2 * width + 3] = 1
    annotation = rationale_to_tokens(rationale)
    for token in range(rows * width):
        scores = torch.zeros(1, rows * width)
        scores[0, token] = 1
        y, x = divmod(token, width)
        near = ((y - 2) ** 2 + (x - 3) ** 2) ** 0.5 <= tolerance
        assert pointing_game(scores, annotation, (rows, width), tolerance).item() == near


@pytest.mark.parametrize(("grid", "tolerance"), [(None, 1), ((1, 3), -1)])
def test_wrong_tolerance_is_refused(grid, tolerance):
    with pytest.raises(ValueError, match="needs grid"):
        pointing_game(*one([1, 2, 3], [0, 1, 0]), grid=grid, tolerance=tolerance)
    with pytest.raises(ValueError, match="needs grid"):
        PointingGame(grid=grid, tolerance=tolerance)


def test_grid_must_hold_the_tokens():
    with pytest.raises(ValueError, match="holds 4 tokens, got 3"):
        pointing_game(*one([1, 2, 3], [0, 1, 0]), grid=(2, 2), tolerance=1)


def test_chance_of_pointing_knows_the_tolerance():
    metric = PointingGame(grid=(1, 4), tolerance=1)
    metric.update(*one([0, 0, 0, 1], [1, 0, 0, 0]))
    assert metric.compute()["value"] == 0
    assert metric.compute()["chance"] == 0.5


@pytest.mark.parametrize(
    ("scores", "rationale", "expected"),
    [
        ([4, 3, 2, 1], [1, 0, 1, 0], 0.5),
        ([4, 3, 2, 1], [1, 1, 0, 0], 1),
        ([4, 2, 2, 2], [1, 1, 0, 0], (1 + 1 / 3) / 2),
        ([9, 3, 2, 1], [255, 1, 0, 0], 1),
    ],
)
def test_rank_accuracy_by_hand(scores, rationale, expected):
    assert relevance_rank_accuracy(*one(scores, rationale)).item() == pytest.approx(expected)


@given(tokens)
@settings(deadline=None, max_examples=60)
def test_rank_accuracy_without_ties_equals_sorting(rows):
    rows = [(score + 10 * place, evidence, valid) for place, (score, evidence, valid) in enumerate(rows)]
    scores, annotation = columns(rows)
    usable = sorted((row for row in rows if row[2] > 0), reverse=True)
    wanted = sum(row[1] >= 0.5 for row in usable)
    value = relevance_rank_accuracy(scores, annotation)
    if wanted == 0:
        assert value.isnan().all()
    else:
        assert value.item() == pytest.approx(sum(row[1] >= 0.5 for row in usable[:wanted]) / wanted)


@given(tokens)
@settings(deadline=None, max_examples=60)
def test_auprc_equals_sklearn(rows):
    scores, annotation = columns(rows)
    value = localization_auprc(scores, annotation)
    if not annotation.marked.any():
        assert value.isnan().all()
    else:
        usable = annotation.usable
        expected = average_precision_score(annotation.marked[usable].numpy(), scores[usable].numpy())
        assert value.item() == pytest.approx(expected, abs=1e-12)


@given(tokens)
@settings(deadline=None, max_examples=40)
def test_chance_is_the_annotated_share(rows):
    _, annotation = columns(rows)
    usable = annotation.usable.sum(-1)
    torch.testing.assert_close(uniform_chance(energy_pointing_game, annotation), annotation.chance, equal_nan=True)
    touched = ((annotation.evidence > 0) & annotation.usable).sum(-1).double() / usable
    torch.testing.assert_close(uniform_chance(pointing_game, annotation), touched, equal_nan=True)
    if annotation.marked.any():
        marked = annotation.marked.sum(-1).double() / usable
        torch.testing.assert_close(uniform_chance(relevance_rank_accuracy, annotation), marked)
        torch.testing.assert_close(uniform_chance(localization_auprc, annotation), marked)
