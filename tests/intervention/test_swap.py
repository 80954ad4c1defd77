"""The one swap: its region, its donors, and what is exchanged."""

from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lrptrain.batch.annotations import IGNORED
from lrptrain.cues.painting import dilate
from lrptrain.intervention.swap import (
    default_margin,
    donors_of_class,
    outside_evidence,
    places_in_order,
    random_cycle,
    random_donors,
    swap_outside,
    swap_pixels,
    swap_places,
    swap_tokens,
)


def numbered(samples: int, size: int = 7) -> torch.Tensor:
    return torch.arange(samples, dtype=torch.float32).view(-1, 1, 1, 1).expand(samples, 3, size, size).clone()


def square(samples: int, size: int = 7) -> torch.Tensor:
    mask = torch.zeros(samples, size, size, dtype=torch.uint8)
    mask[:, 3, 3] = 1
    return mask


@pytest.mark.parametrize(("margin", "area"), [(0, 1), (1, 9), (2, 25)])
def test_the_evidence_and_its_margin_stay(margin, area):
    images = numbered(4)
    surrounded, swapped = swap_outside(images, square(4), margin)
    assert swapped.all()
    assert ((surrounded == images).flatten(1).sum(1) == 3 * area).all()


@given(st.integers(2, 9), st.integers(0, 10**6))
@settings(deadline=None, max_examples=40)
def test_every_image_gives_its_surroundings_to_one_other(samples, seed):
    surrounded, _ = swap_outside(numbered(samples), square(samples), 0, torch.Generator().manual_seed(seed))
    donors = surrounded[:, 0, 0, 0].long()
    assert (donors != torch.arange(samples)).all()
    assert sorted(donors.tolist()) == list(range(samples))


def test_what_is_ignored_stays_and_what_is_not_annotated_too():
    images, mask = numbered(3), square(3)
    mask[0, 0] = 255
    mask[1] = 255
    surrounded, swapped = swap_outside(images, mask, 0)
    assert swapped.tolist() == [True, False, True]
    assert torch.equal(surrounded[0, :, 0], images[0, :, 0])
    assert torch.equal(surrounded[1], images[1])


def test_one_image_alone_is_not_swapped():
    surrounded, swapped = swap_outside(numbered(1), square(1))
    assert torch.equal(surrounded, numbered(1))
    assert not swapped.any()


def test_wrong_sizes():
    with pytest.raises(ValueError, match=r"mask \(2, 8, 8\) must be"):
        swap_outside(numbered(2), square(2, 8))
    with pytest.raises(ValueError, match="margin must not be negative, got -1"):
        swap_outside(numbered(2), square(2), -1)


def test_what_marks_nothing_is_not_swapped():
    images, mask = torch.randn(3, 1, 8, 8), square(3, 8)
    mask[1] = 0
    swapped, judged = swap_outside(images, mask)
    assert judged.tolist() == [True, False, True]
    assert torch.equal(swapped[1], images[1])


rationales = st.lists(st.lists(st.sampled_from([0, 1, 255]), min_size=6, max_size=6), min_size=1, max_size=6)


@given(rationales, st.integers(0, 2), st.integers(0, 10**6), st.booleans())
@settings(deadline=None, max_examples=150)
def test_tokens_are_given_by_one_other_text_and_are_its_own(rows, margin, seed, embedded):
    rationale = torch.tensor(rows)
    count, usable = len(rows), rationale != IGNORED
    tokens = torch.arange(count * 6).view(count, 6)  # token // 6 is the text that it comes from
    given_tokens = tokens[..., None].expand(-1, -1, 2).double() if embedded else tokens
    new_tokens, swapped = swap_tokens(given_tokens, rationale, margin, torch.Generator().manual_seed(seed))
    new_tokens = new_tokens[..., 0].long() if embedded else new_tokens
    donors = set()
    for row in range(count):
        marked = [i for i in range(6) if rationale[row, i] == 1]
        fixed = {i for i in range(6) if not usable[row, i] or any(abs(i - j) <= margin for j in marked)}
        others = [i for i in range(6) if i not in fixed]
        assert torch.equal(new_tokens[row, sorted(fixed)], tokens[row, sorted(fixed)])
        if not swapped[row]:
            assert torch.equal(new_tokens[row], tokens[row])
            continue
        assert usable[row].any()
        exchanged = {divmod(int(new_tokens[row, i]), 6) for i in others}
        assert len({text for text, _ in exchanged}) <= 1
        assert all(text != row and usable[text, place] for text, place in exchanged)
        donors |= {(row, text) for text, _ in exchanged}
    assert len({text for _, text in donors}) == len(donors)
    giving = usable.any(1).sum() > 1
    assert torch.equal(swapped, (rationale == 1).any(1) & giving)


def test_the_same_generator_swaps_the_same_tokens():
    tokens, rationale = torch.arange(24).view(4, 6), torch.eye(4, 6)
    first, again, other = (swap_tokens(tokens, rationale, 0, torch.Generator().manual_seed(i))[0] for i in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_wrong_texts():
    with pytest.raises(ValueError, match=r"rationale \(2, 5\) must be \[batch, tokens\] of \(2, 6\)"):
        swap_tokens(torch.zeros(2, 6), torch.zeros(2, 5))
    with pytest.raises(ValueError, match="margin must not be negative, got -1"):
        swap_tokens(torch.zeros(2, 6), torch.zeros(2, 6), -1)


@pytest.mark.parametrize(
    ("size", "margin"), [((32, 40), 2), ((167, 300), 2), ((168, 168), 3), ((224, 224), 4), ((448, 448), 8)]
)
def test_by_default_painting_over_keeps_a_margin_and_a_swap_keeps_none(size, margin):
    assert default_margin(size) == margin
    mask = torch.zeros(2, *size, dtype=torch.uint8)
    mask[:, 15, 15] = 1
    evidence = ~outside_evidence(mask)
    assert evidence[0].sum() == (2 * margin + 1) ** 2
    images = torch.arange(2.0).view(2, 1, 1, 1).expand(2, 1, *size)
    swapped, _ = swap_outside(images, mask)
    assert torch.equal(swapped[:, 0] == images[:, 0], mask == 1)


def test_nothing_lies_outside_where_nothing_is_evidence():
    mask = torch.tensor([[[0, 0]], [[255, 255]], [[0, 255]], [[1, 0]]])
    assert outside_evidence(mask, 0).flatten(1).tolist() == [[False] * 2] * 3 + [[False, True]]


def test_a_donor_gives_its_region_and_not_its_evidence():
    images, donors = torch.rand(2, 2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    region = torch.zeros(2, 16, 16, dtype=torch.bool)
    region[0, :4], region[1, 5:9, 5:] = True, True
    swapped = swap_pixels(images, region, donors)
    assert torch.equal(swapped, torch.where(region[:, None], donors, images))
    evidence = torch.zeros_like(region)
    evidence[:, 2:6, 2:9] = True
    painted = swap_pixels(images, region, donors, evidence)
    untouched = ~(region & evidence)[:, None].expand_as(images)
    assert torch.equal(painted[untouched], swapped[untouched])
    assert not torch.isclose(painted[~untouched], swapped[~untouched]).any()


IDS = torch.tensor([[1, 2, 3, 4, 5, 6], [11, 12, 13, 14, 15, 16]])
REGION = torch.tensor([[0, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0]], dtype=torch.bool)


def test_every_usable_token_is_given_before_any_twice():
    donors = torch.tensor([[91, 92, 93, 94], [81, 82, 83, 84]])
    usable = torch.tensor([[1, 0, 1, 0], [1, 1, 1, 1]], dtype=torch.bool)
    keys = torch.rand(2, 4, generator=torch.Generator().manual_seed(0))
    swapped = swap_places(IDS, REGION, donors, places_in_order(REGION, usable, keys))
    assert torch.equal(swapped[~REGION], IDS[~REGION])
    first = swapped[0, 1:4].tolist()
    assert set(first[:2]) == {91, 93}
    assert first[2] == first[0]
    assert len(set(swapped[1, :2].tolist())) == 2
    assert set(swapped[1, :2].tolist()) <= {81, 82, 83, 84}


def test_donors_may_give_their_surroundings_alone():
    generator = torch.Generator().manual_seed(4)
    images = torch.rand(5, 3, 12, 12, generator=generator, dtype=torch.float64)
    mask = torch.zeros(5, 12, 12, dtype=torch.uint8)
    for row in range(5):
        mask[row, row : row + 4, 3:7] = 1
        images[row, :, row : row + 4, 3:7] = 1000  # objects that nobody could overlook
    mask[4, 0, 0] = IGNORED
    surrounded, swapped = swap_outside(images, mask, 0, torch.Generator().manual_seed(0), without_evidence=True)
    assert swapped.all()
    outside = ~(mask == 1) & (mask != IGNORED)
    assert (surrounded[outside[:, None].expand_as(surrounded)] <= 1).all()
    assert torch.equal(
        surrounded[~outside[:, None].expand_as(surrounded)], images[~outside[:, None].expand_as(surrounded)]
    )
    with_evidence, _ = swap_outside(images, mask, 0, torch.Generator().manual_seed(0))
    donor = random_cycle(5, torch.Generator().manual_seed(0))
    same = outside & ~dilate(mask == 1, default_margin((12, 12)))[donor]
    assert torch.equal(surrounded.permute(0, 2, 3, 1)[same], with_evidence.permute(0, 2, 3, 1)[same])


def test_an_image_that_is_its_own_donor_stays_as_it_is():
    images = numbered(3, 12)
    mask = torch.zeros(3, 12, 12, dtype=torch.uint8)
    mask[:, 4:8, 4:8] = 1
    images[:, :, 4:9, 4:9] = 500
    donors = torch.tensor([0, 2, 1])
    surrounded, swapped = swap_outside(images, mask, without_evidence=True, donors=donors)
    assert swapped.all()
    assert torch.equal(surrounded[0], images[0])
    assert not torch.equal(surrounded[1], images[1])


def test_random_donors_are_each_usable_sample_once():
    usable = torch.tensor([True, False, True, True])
    orders = {tuple(random_donors(usable, torch.Generator().manual_seed(seed)).tolist()) for seed in range(60)}
    assert orders == {(a, 1, b, c) for a, b, c in permutations((0, 2, 3))}
    others = {
        tuple(random_donors(usable, torch.Generator().manual_seed(seed), itself=False).tolist()) for seed in range(60)
    }
    assert others == {(2, 1, 3, 0), (3, 1, 0, 2)}


@pytest.mark.parametrize("swap", [swap_outside, swap_tokens])
def test_a_sample_is_its_own_donor_only_where_it_may_be(swap):
    values = numbered(4) if swap is swap_outside else torch.arange(4)[:, None].expand(4, 7).clone()
    annotation = square(4) if swap is swap_outside else (torch.arange(7) == 3).long().expand(4, 7)
    last = values.flatten(1)[:, -1]

    def own_donors(itself: bool) -> list[int]:
        draws = [swap(values, annotation, 0, torch.Generator().manual_seed(seed), itself=itself) for seed in range(40)]
        return [int((swapped.flatten(1)[:, -1] == last).sum()) for swapped, _ in draws]

    assert set(own_donors(False)) == {0}
    assert {0, 1, 2} <= set(own_donors(True)) <= {0, 1, 2, 4}


@pytest.mark.parametrize("margin", [0, 2])
def test_the_edge_of_a_donor_is_painted_over_too_whatever_the_margin(margin):
    images = numbered(2, 12)
    mask = torch.zeros(2, 12, 12, dtype=torch.uint8)
    mask[0, 2, 2] = mask[1, 9, 9] = 1
    images[1, :, 7:12, 7:12] = 500  # a halo of two pixels around the evidence
    surrounded, _ = swap_outside(images, mask, margin, without_evidence=True)
    assert surrounded[0].max() == 1


def test_texts_may_give_what_is_no_evidence_alone():
    ids = torch.arange(24).view(3, 8)
    rationale = torch.zeros(3, 8, dtype=torch.long)
    rationale[0, 1:5] = rationale[1, 2] = 1
    rationale[2, :6] = 1
    rationale[2, 6:] = IGNORED  # it has nothing else to give
    for seed in range(20):
        new_tokens, _ = swap_tokens(ids, rationale, 0, torch.Generator().manual_seed(seed), without_evidence=True)
        received = new_tokens[rationale == 0]
        assert not set(received.tolist()) & {1, 2, 3, 4, 10}
        assert not set(received.tolist()) & {22, 23}


def test_a_class_gives_to_all_others_and_a_third_class_is_the_control():
    predicted = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 0, 3])
    donors, controls = donors_of_class(predicted, 0, seed=5)
    of_class = predicted == 0
    assert (donors[of_class] == -1).all()
    assert (controls[of_class] == -1).all()
    assert (predicted[donors[~of_class]] == 0).all()
    assert (predicted[controls[~of_class]] != 0).all()
    assert (predicted[controls[~of_class]] != predicted[~of_class]).all()
    draws = [donors_of_class(predicted, 0, seed)[0] for seed in range(40)]
    assert {*np.concatenate(draws)} == {-1, *np.flatnonzero(of_class)}
    assert len({tuple(each) for each in draws}) > 1
    again = donors_of_class(predicted, 0, seed=5)
    np.testing.assert_array_equal(again, (donors, controls))


@pytest.mark.parametrize("predicted", [[0, 0, 0, 0, 1, 1, 2], [0, 0, 0, 0, 0, 1, 1, 1]])
def test_a_class_of_few_samples_or_without_a_third_one_gives_nothing(predicted):
    with pytest.raises(ValueError, match="too few of these samples"):
        donors_of_class(np.array(predicted), 0, seed=0)
