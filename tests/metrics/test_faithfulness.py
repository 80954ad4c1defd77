import math

import numpy as np
import pytest
import torch

from lrptrain.metrics import (
    Comprehensiveness,
    PerturbationArea,
    Sufficiency,
    area_under_curve,
    comprehensiveness,
    perturbation_curve,
    sufficiency,
)

GRID, STEPS = (3, 4), (0.1, 0.3, 0.5, 0.9)


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randn(6, 3, 12, 16, dtype=torch.float64, generator=generator)
    weight = torch.randn(3 * 12 * 16, 4, dtype=torch.float64, generator=generator)
    scores = torch.randn(6, 12, dtype=torch.float64, generator=generator)
    return (lambda x: x.flatten(1) @ weight), pictures, scores


def textbook(predict, picture, row, target, fraction, first, fill):
    """One image, one step, pixel by pixel."""
    heat = torch.nn.functional.interpolate(row.view(1, 1, *GRID), picture.shape[1:], mode="bilinear").flatten()
    order = np.argsort((-heat if first else heat).numpy(), kind="stable")
    broken = picture.clone().flatten(1)
    for pixel in order[: round(fraction * heat.numel())]:
        broken[:, pixel] = torch.tensor(fill, dtype=picture.dtype)
    return float(predict(broken.view(1, *picture.shape)).argmax() == target)


@pytest.mark.parametrize("first", [True, False])
def test_curve_equals_the_protocol_pixel_by_pixel(images, first):
    predict, pictures, scores = images
    fill, target = (-1.0, 0.5, 2.0), predict(pictures).argmax(1)
    curve = perturbation_curve(predict, pictures, scores, GRID, target, STEPS, first, fill)
    expected = [
        [textbook(predict, x, row, t, f, first, fill) for f in STEPS]
        for x, row, t in zip(pictures, scores, target, strict=True)
    ]
    assert curve.tolist() == expected
    assert 0 < curve.mean() < 1


def test_removing_the_evidence_first_or_last():
    predict = lambda x: torch.stack([x[:, 0, :, :8].sum((1, 2)), torch.full((len(x),), 4.0)], 1)  # noqa: E731
    pictures, target = torch.ones(1, 1, 8, 16), torch.tensor([0])
    scores = torch.tensor([[1.0, 0.9, 0.1, 0.0]])
    for first, expected in ((True, [1.0, 1.0, 0.0, 0.0]), (False, [1.0, 1.0, 1.0, 1.0])):
        curve = perturbation_curve(predict, pictures, scores, (1, 4), target, (0.2, 0.4, 0.5, 0.9), first)
        # 90 % from the least relevant on leave 12 evident pixels, of which 4 suffice.
        assert curve[0].tolist() == expected


def test_curve_of_a_batch_equals_singles(images):
    predict, pictures, scores = images
    target = predict(pictures).argmax(1)
    alone = [
        perturbation_curve(predict, pictures[i : i + 1], scores[i : i + 1], GRID, target[i : i + 1]) for i in range(6)
    ]
    assert torch.equal(perturbation_curve(predict, pictures, scores, GRID, target), torch.cat(alone))


def test_ties_are_broken_by_position():
    predict = lambda x: torch.stack([x[:, 0, 0, 0], torch.full((len(x),), 0.5)], 1)  # noqa: E731
    for first in (True, False):  # the first pixel goes first whatever the direction
        curve = perturbation_curve(
            predict, torch.ones(1, 1, 4, 4), torch.zeros(1, 4), (2, 2), torch.tensor([0]), (0, 0.1), first
        )
        assert curve.tolist() == [[1, 0]]


def test_area_is_the_mean_height():
    curve = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]], dtype=torch.float64)
    assert area_under_curve(curve, (0.1, 0.5, 0.9)).tolist() == pytest.approx([1, 0.25])
    assert area_under_curve(curve, (0.1, 0.2, 0.9)).tolist() == pytest.approx([1, 0.5 * 0.1 / 0.8])


def test_a_map_that_is_not_finite_has_no_curve(images):
    predict, pictures, scores = images
    scores[2, 1] = torch.nan
    target = predict(pictures).argmax(1)
    curve = perturbation_curve(predict, pictures, scores, GRID, target)
    assert curve.isnan().all(1).tolist() == [row == 2 for row in range(6)]
    metric = PerturbationArea()
    metric.update(predict, pictures, scores, GRID, target)
    found = metric.compute()
    assert (found["samples"], found["undefined"]) == (5, 1)
    torch.testing.assert_close(found["value"], area_under_curve(curve).nanmean().float())
    assert (PerturbationArea().higher_is_better, PerturbationArea(False).higher_is_better) == (False, True)


@pytest.mark.parametrize("fractions", [(), (0.5, 0.2), (0.1, 1.2), (-0.1, 0.5)])
def test_fractions_must_rise(images, fractions):
    predict, pictures, scores = images
    with pytest.raises(ValueError, match="must rise"):
        perturbation_curve(predict, pictures, scores, GRID, torch.zeros(6).long(), fractions)


def test_a_grid_must_hold_the_tokens_and_an_area_needs_a_range(images):
    predict, pictures, scores = images
    with pytest.raises(ValueError, match="a grid of"):
        perturbation_curve(predict, pictures, scores, (3, 3), torch.zeros(6).long())
    with pytest.raises(ValueError, match="two fractions"):
        area_under_curve(torch.ones(2, 1), (0.5,))


@pytest.fixture
def words():
    """A bag of words: the probability is the sigmoid of the weights of the tokens that stay."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(5, 30, dtype=torch.float64, generator=generator)
    scores = torch.randn(5, 30, dtype=torch.float64, generator=generator)
    usable = torch.arange(30) < torch.tensor([30, 12, 3, 1, 17])[:, None]
    return (lambda keep: (weight * keep).sum(1).sigmoid()), weight, scores, usable


@pytest.mark.parametrize("function", [comprehensiveness, sufficiency])
@pytest.mark.parametrize("mean", ["eraser", "er_test", "ferret"])
def test_drops_equal_the_formula_text_by_text(words, function, mean):
    probability, weight, scores, usable = words
    fractions = (0.01, 0.05, 0.1, 0.2, 0.5)
    expected = []
    for w, row, length in zip(weight, scores, usable.sum(1).tolist(), strict=True):
        drops, sizes = [], []
        for fraction in fractions:
            size = max(1, math.ceil(round(fraction * length, 9)))
            top = set(row[:length].argsort(descending=True)[:size].tolist())
            stays = [
                t for t in range(30) if (t not in top if function is comprehensiveness else t in top or t >= length)
            ]
            drops.append(float(w.sum().sigmoid() - w[stays].sum().sigmoid()))
            sizes.append(size)
        if mean == "ferret":
            drops = [drop for i, drop in enumerate(drops) if i == 0 or sizes[i] != sizes[i - 1]]
        expected.append(sum(drops) / (len(drops) + (mean == "er_test")))
    found = function(probability, scores, usable, fractions, mean)
    assert found.tolist() == pytest.approx(expected, abs=1e-12)


def test_a_perfect_map_is_more_comprehensive_and_more_sufficient_than_its_reverse(words):
    probability, weight, _, usable = words
    gained = comprehensiveness(probability, weight, usable) - comprehensiveness(probability, -weight, usable)
    lost = sufficiency(probability, weight, usable) - sufficiency(probability, -weight, usable)
    assert gained[0] > 0.1
    assert lost[0] < -0.1


def test_the_share_is_a_ceiling_and_blind_to_rounding():
    taken = []

    def probability(keep):
        taken.append(int((~keep).sum()))
        return torch.zeros(1)

    usable = torch.ones(1, 100, dtype=torch.bool)
    comprehensiveness(probability, torch.rand(1, 100), usable, (0.001, 0.07, 0.071, 1))
    assert taken == [0, 1, 7, 8, 100]


def test_a_known_probability_saves_its_forward_pass(words):
    probability, _, scores, usable = words
    calls = []

    def counted(keep):
        calls.append(1)
        return probability(keep)

    full = probability(torch.ones_like(usable))
    assert torch.equal(
        comprehensiveness(counted, scores, usable, full=full), comprehensiveness(probability, scores, usable)
    )
    assert len(calls) == 5


@pytest.mark.parametrize("function", [comprehensiveness, sufficiency])
def test_undefined_where_nothing_is_usable_or_scores_are_not_finite(words, function):
    probability, _, scores, usable = words
    usable[0], scores[1, 2], scores[2, 20] = False, torch.inf, torch.nan
    assert function(probability, scores, usable).isnan().tolist() == [True, True, False, False, False]


@pytest.mark.parametrize(("metric", "function"), [(Comprehensiveness, comprehensiveness), (Sufficiency, sufficiency)])
def test_metric_is_the_mean_of_the_function(words, metric, function):
    probability, _, scores, usable = words
    instance = metric(mean="er_test", fractions=(0.1, 0.5))
    instance.update(probability, scores, usable)
    expected = function(probability, scores, usable, (0.1, 0.5), "er_test")
    found = instance.compute()
    torch.testing.assert_close(found["value"], expected.mean().float())
    assert found["low"] < found["value"] < found["high"]
    assert instance.higher_is_better == (metric is Comprehensiveness)


def test_bad_arguments_are_refused(words):
    probability, _, scores, usable = words
    with pytest.raises((ValueError, TypeError), match=r"must have one shape|Type-check"):
        comprehensiveness(probability, scores, usable[:, 1:])
    with pytest.raises((ValueError, TypeError), match="er_test"):
        sufficiency(probability, scores, usable, mean="plain")  # type: ignore[arg-type]
