"""Swapped surroundings."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lrptrain.batch.annotations import IGNORED
from lrptrain.guidance import consistency, swap_outside, swap_tokens
from lrptrain.guidance.consistency import divergences


def numbered(samples: int, size: int = 7) -> torch.Tensor:
    return torch.arange(samples, dtype=torch.float32).view(-1, 1, 1, 1).expand(samples, 3, size, size).clone()


def square(samples: int, size: int = 7) -> torch.Tensor:
    mask = torch.zeros(samples, size, size, dtype=torch.uint8)
    mask[:, 3, 3] = 1
    return mask


@pytest.mark.parametrize(("margin", "area"), [(0, 1), (1, 9), (2, 25)])
def test_the_evidence_and_its_margin_stay(margin, area):
    images = numbered(4)
    found, swapped = swap_outside(images, square(4), margin)
    assert swapped.all()
    assert ((found == images).flatten(1).sum(1) == 3 * area).all()


@given(st.integers(2, 9), st.integers(0, 10**6))
@settings(deadline=None, max_examples=40)
def test_every_image_lends_its_surroundings_to_one_other(samples, seed):
    found, _ = swap_outside(numbered(samples), square(samples), 0, torch.Generator().manual_seed(seed))
    lenders = found[:, 0, 0, 0].long()
    assert (lenders != torch.arange(samples)).all()
    assert sorted(lenders.tolist()) == list(range(samples))


def test_what_is_ignored_stays_and_what_is_not_annotated_too():
    images, mask = numbered(3), square(3)
    mask[0, 0] = 255
    mask[1] = 255
    found, swapped = swap_outside(images, mask, 0)
    assert swapped.tolist() == [True, False, True]
    assert torch.equal(found[0, :, 0], images[0, :, 0])
    assert torch.equal(found[1], images[1])


def test_one_image_alone_is_not_swapped():
    found, swapped = swap_outside(numbered(1), square(1))
    assert torch.equal(found, numbered(1))
    assert not swapped.any()


def test_wrong_sizes():
    with pytest.raises(ValueError, match=r"mask \(2, 8, 8\) must be"):
        swap_outside(numbered(2), square(2, 8))
    with pytest.raises(ValueError, match="margin must not be negative, got -1"):
        swap_outside(numbered(2), square(2), -1)


def test_consistency_is_the_divergence_of_the_annotated():
    logits, swapped = torch.randn(2, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    annotated = torch.tensor([True, True, False, True, False])
    p, q = (torch.distributions.Categorical(logits=x[annotated]) for x in (logits, swapped))
    expected = torch.distributions.kl_divergence(p, q).mean()
    torch.testing.assert_close(consistency(logits, swapped, annotated), expected)
    assert consistency(logits, logits, annotated) == 0
    assert consistency(logits, swapped, torch.zeros(5, dtype=torch.bool)) == 0
    both = (logits.requires_grad_(), swapped.requires_grad_())
    assert torch.autograd.gradcheck(lambda x, y: consistency(x, y, annotated), both)


def test_a_single_logit_is_one_of_two():
    one, other = torch.tensor([[[0.3], [-1.0]], [[1.0], [2.0]]], dtype=torch.float64)
    as_two = divergences(torch.cat([torch.zeros_like(one), one], 1), torch.cat([torch.zeros_like(other), other], 1))
    torch.testing.assert_close(divergences(one, other), as_two)
    assert (as_two > 0).all()


def test_what_marks_nothing_is_not_swapped():
    images, mask = torch.randn(3, 1, 8, 8), square(3, 8)
    mask[1] = 0
    swapped, judged = swap_outside(images, mask)
    assert judged.tolist() == [True, False, True]
    assert torch.equal(swapped[1], images[1])


def test_gradients_of_consistency_at_the_weights():
    """Both the images as they are and the swapped ones move the weights."""
    generator = torch.Generator().manual_seed(0)
    images, mask = torch.randn(3, 1, 3, 3, dtype=torch.float64, generator=generator), square(3, 7)[:, 2:5, 2:5]
    swapped, annotated = swap_outside(images, mask, 0, generator)
    weight = torch.randn(9, 4, dtype=torch.float64, generator=generator, requires_grad=True)

    def loss(weight, other):
        return consistency(images.flatten(1) @ weight, swapped.flatten(1) @ other, annotated)

    assert torch.autograd.gradcheck(lambda x: loss(x, x), weight)
    one, other = (
        torch.autograd.grad(loss(weight, weight.detach()), weight),
        torch.autograd.grad(loss(weight.detach(), weight), weight),
    )
    assert one[0].any()
    assert other[0].any()


rationales = st.lists(st.lists(st.sampled_from([0, 1, 255]), min_size=6, max_size=6), min_size=1, max_size=6)


@given(rationales, st.integers(0, 2), st.integers(0, 10**6), st.booleans())
@settings(deadline=None, max_examples=150)
def test_tokens_are_lent_by_one_other_text_and_are_its_own(rows, margin, seed, embedded):
    rationale = torch.tensor(rows)
    count, usable = len(rows), rationale != IGNORED
    tokens = torch.arange(count * 6).view(count, 6)  # token // 6 is the text that it comes from
    given_tokens = tokens[..., None].expand(-1, -1, 2).double() if embedded else tokens
    found, swapped = swap_tokens(given_tokens, rationale, margin, torch.Generator().manual_seed(seed))
    found = found[..., 0].long() if embedded else found
    lenders = set()
    for row in range(count):
        marked = [i for i in range(6) if rationale[row, i] == 1]
        kept = {i for i in range(6) if not usable[row, i] or any(abs(i - j) <= margin for j in marked)}
        others = [i for i in range(6) if i not in kept]
        assert torch.equal(found[row, sorted(kept)], tokens[row, sorted(kept)])
        if not swapped[row]:
            assert torch.equal(found[row], tokens[row])
            continue
        assert usable[row].any()
        lent = {divmod(int(found[row, i]), 6) for i in others}
        assert len({text for text, _ in lent}) <= 1
        assert all(text != row and usable[text, place] for text, place in lent)
        lenders |= {(row, text) for text, _ in lent}
    assert len({text for _, text in lenders}) == len(lenders)
    lending = usable.any(1).sum() > 1
    assert torch.equal(swapped, (rationale == 1).any(1) & lending)


def test_the_same_generator_swaps_the_same_tokens():
    tokens, rationale = torch.arange(24).view(4, 6), torch.eye(4, 6)
    one, two, other = (swap_tokens(tokens, rationale, 0, torch.Generator().manual_seed(i))[0] for i in (0, 0, 1))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_wrong_texts():
    with pytest.raises(ValueError, match=r"rationale \(2, 5\) must be \[batch, tokens\] of \(2, 6\)"):
        swap_tokens(torch.zeros(2, 6), torch.zeros(2, 5))
    with pytest.raises(ValueError, match="margin must not be negative, got -1"):
        swap_tokens(torch.zeros(2, 6), torch.zeros(2, 6), -1)
