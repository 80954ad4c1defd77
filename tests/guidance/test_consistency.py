"""Swapped surroundings."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lrptrain.guidance import consistency, swap_outside


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
