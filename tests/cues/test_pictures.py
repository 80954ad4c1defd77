"""Where small pictures are: as if each place were compared with each picture, one after the other."""

import pytest
import torch
from torch import Tensor

from lrptrain.cues import pictures
from lrptrain.cues.pictures import CORNERLESS, POINTS, TOLERANCE, counted, covered, sampled, shown, stride_of


def drawn(side: int, count: int = 3, size: tuple[int, int] = (40, 33)) -> tuple[Tensor, Tensor]:
    """Images of noise on a smooth ground, and pictures that they show, one of them with a little noise."""
    torch.manual_seed(side)
    images = torch.randn(count, 2, *size)
    images[:, :, size[0] // 2 :] = 0.1  # a plain ground, where a plain picture is everywhere
    places = sampled(images, side)
    found = torch.stack([places[0, :, :, 1, 2], places[1, :, :, 0, 0], places[0, :, :, -1, -1], places[2, :, :, 2, 1]])
    return images, found + 0.5 * TOLERANCE * torch.randn_like(found)


def one_by_one(images: Tensor, found: Tensor, side: int) -> Tensor:
    places = sampled(images, side)
    difference = places[:, None] - found[None, :, :, :, None, None]
    return difference.square().mean((2, 3)) <= TOLERANCE**2


@pytest.mark.parametrize("few", [0, 32, 10**9])
@pytest.mark.parametrize("side", [3, 5, 8, 16, 17])
def test_places_are_those_that_show_a_picture(side: int, few: int, monkeypatch: pytest.MonkeyPatch):
    """Whether the pairs that are near are compared one by one, or all as a product of matrices."""
    monkeypatch.setattr(pictures, "FEW", few)
    images, found = drawn(side)
    expected = one_by_one(images, found, side)
    assert torch.equal(torch.stack(shown(images, found, side), 1), expected.nonzero())
    assert torch.equal(counted(images, found, side), expected.flatten(2).sum(2).T)
    assert expected.flatten(2).any(2).sum() >= 4


@pytest.mark.parametrize("side", [3, 16])
def test_pictures_are_looked_for_where_they_may_be(side: int):
    images, found = drawn(side)
    within = torch.rand(3, *sampled(images, side).shape[-2:]) < 0.5
    expected = one_by_one(images, found, side) & within[:, None]
    assert torch.equal(counted(images, found, side, within), expected.flatten(2).sum(2).T)


def test_many_images_are_looked_through_in_parts(monkeypatch: pytest.MonkeyPatch):
    images, found = drawn(5, count=7)
    whole = shown(images, found, 5)
    monkeypatch.setattr(pictures, "IN_CACHE", 2 * images[0].numel() * len(pictures.FIRST))
    for one, other in zip(shown(images, found, 5), whole, strict=True):
        assert torch.equal(one, other)
    assert set(whole[0].tolist()) >= {0, 1, 2}


def test_no_images_and_no_pictures_show_nothing():
    images, found = drawn(5)
    assert counted(images[:0], found, 5).shape == (4, 0)
    assert counted(images, found[:0], 5).shape == (0, 3)
    assert covered(images[:0], found, 5).shape == (0, 40, 33)
    assert not covered(images, found[:0], 5).any()


@pytest.mark.parametrize("side", [3, 8, 16, 17, 33])
def test_a_picture_covers_its_pixels_and_half_of_its_side_around(side: int):
    around, stride = side // 2, stride_of(side)
    images, found = drawn(side, size=(110, 121))
    found = found[:2]
    expected = torch.zeros(3, 110, 121, dtype=torch.bool)
    for image, _, y, x in one_by_one(images, found, side).nonzero().tolist():
        rows, columns = (slice(max(0, stride * at - around), stride * at + side + around) for at in (y, x))
        expected[image, rows, columns] = True
    assert torch.equal(covered(images, found, side), expected)
    assert 0 < expected.float().mean() < 1


def test_the_first_points_are_the_middle_and_those_of_the_edges():
    at = [CORNERLESS[i] for i in pictures.FIRST]
    assert [(i // POINTS, i % POINTS) for i in at] == [(0, 2), (2, 0), (2, 2), (2, 4), (4, 2)]
