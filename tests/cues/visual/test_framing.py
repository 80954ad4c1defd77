"""Scale and rotation are read from images, and exchanged."""

import math

import pytest
import torch
from torch.nn import functional as F

from lrptrain.cues.visual.framing import Framing, _frame

SIZES = [(48, 48), (56, 40)]
FRAMING = Framing.of("image", "unreviewed")


def streets(count=6, size=(48, 48), seed=0, extra=24):
    """Images of rectangles, which are larger than what is seen of them."""
    generator = torch.Generator().manual_seed(seed)
    height, width = (side + extra for side in size)
    images = torch.zeros(count, 3, height, width, dtype=torch.float64)
    for image in images:
        for _ in range(60):
            top, left = (int(torch.randint(-6, side, (), generator=generator)) for side in (height, width))
            down, across = (int(x) for x in torch.randint(5, 13, (2,), generator=generator))
            colour = torch.rand(3, 1, 1, generator=generator, dtype=torch.float64)
            image[:, max(top, 0) : max(top + down, 0), max(left, 0) : max(left + across, 0)] = colour
    return images


def seen(images, size, zoom=1.0, degrees=0.0):
    """The middle of images, magnified and turned."""
    turn = math.radians(degrees)
    y, x = torch.meshgrid(*(torch.arange(side) - (side - 1) / 2 for side in size), indexing="ij")
    points = [(x * math.cos(turn) + y * math.sin(turn)) / zoom, (-x * math.sin(turn) + y * math.cos(turn)) / zoom]
    full = [images.shape[3], images.shape[2]]
    grid = torch.stack([2 * point / side for point, side in zip(points, full, strict=True)], -1)
    grid = grid[None].expand(len(images), -1, -1, -1).double()
    return F.grid_sample(images, grid, mode="bilinear", align_corners=False)


def frame(images):
    return _frame(images, torch.ones_like(images[:, 0], dtype=torch.bool))


def exchanged(own, sources):
    return FRAMING.exchange({"image": own}, {"image": sources})["image"]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("degrees", [-30, -15, 20])
def test_a_turned_image_reads_as_turned_and_no_larger(size, degrees):
    wide = streets(size=size)
    before, after = frame(seen(wide, size)), frame(seen(wide, size, degrees=degrees))
    turned = (after.angle - before.angle).rad2deg()
    assert abs(float(turned.median()) - degrees) < 4  # another part of the picture is seen
    assert abs(float((after.size - before.size).mean())) < 0.1


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("zoom", [0.8, 1.5])
def test_a_magnified_image_reads_as_larger_and_not_turned(size, zoom):
    wide = streets(size=size)
    before, after = frame(seen(wide, size)), frame(seen(wide, size, zoom))
    grown = float((after.size - before.size).mean() / math.log(zoom))
    assert 0.6 < grown < 1.2
    assert (after.angle - before.angle).rad2deg().abs().median() < 6


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("zoom", "degrees"), [(1, 25), (1.4, 0), (1.3, -20)])
def test_an_image_takes_its_sources_scale_and_rotation(size, zoom, degrees):
    wide = streets(size=size)
    own, sources = seen(wide, size), seen(streets(size=size, seed=1), size, zoom, degrees)
    before, after, given = frame(own), frame(exchanged(own, sources)), frame(sources)
    off = [torch.sin(2 * (each.angle - given.angle)).abs().mean() for each in (before, after)]
    assert off[1] < (0.35 * off[0] if degrees else 0.2)
    off = [(each.size - given.size).abs().mean() for each in (before, after)]
    assert off[1] < 0.7 * off[0]


@pytest.mark.parametrize("size", SIZES)
def test_an_image_that_is_magnified_and_turned_back_is_what_it_was(size):
    wide = streets(size=size)
    own, sources = seen(wide, size), seen(wide, size, 1.2, 20)
    changed = exchanged(own, sources)
    middle = (..., *(slice(side // 2 - 8, side // 2 + 8) for side in size))
    off = [(each[middle] - sources[middle]).square().mean() for each in (own, changed)]
    assert off[1] < 0.35 * off[0]


@pytest.mark.parametrize("size", SIZES)
def test_it_is_turned_around_its_middle_and_not_sheared(size):
    own, sources = (seen(streets(size=size, seed=seed), size) for seed in (0, 1))
    ours, others, changed = frame(own), frame(sources), exchanged(own, sources)
    middle = (..., *(slice(side // 2 - 8, side // 2 + 8) for side in size))
    for row in range(len(own)):
        turn = math.remainder(float(others.angle[row] - ours.angle[row]), math.pi / 2)
        wanted = seen(own[[row]], size, float((others.size - ours.size)[row].exp()), math.degrees(turn))
        torch.testing.assert_close(changed[[row]][middle], wanted[middle], rtol=0, atol=1e-5)


def test_corners_which_a_turned_image_has_not_do_not_count():
    own = seen(streets(), (48, 48))
    down, across = torch.meshgrid(*[torch.arange(48) - 23.5] * 2, indexing="ij")
    before, after = frame(own), frame(torch.where(torch.hypot(down, across) > 30, 5.0, own))
    torch.testing.assert_close(after.angle, before.angle, rtol=0, atol=1e-3)
    torch.testing.assert_close(after.size, before.size, rtol=0, atol=1e-3)


def test_noise_makes_things_hardly_smaller():
    own = seen(streets(size=(96, 96)), (96, 96))
    noise = 0.1 * torch.randn(own.shape, generator=torch.Generator().manual_seed(0), dtype=own.dtype)
    smaller = (frame(own).size - frame(own + noise).size).mean()
    assert 0 < smaller < 0.1


def test_an_image_is_turned_the_shorter_way():
    """Edges at a right angle to each other lie along the same two directions."""
    size = (48, 48)
    wide = streets(size=size)
    changed = exchanged(seen(wide, size, degrees=-30), seen(wide, size, degrees=30))
    middle = (..., slice(16, 32), slice(16, 32))
    near, far = ((changed - seen(wide, size, degrees=degrees))[middle].square().mean() for degrees in (-60, 30))
    assert near < 0.5 * far


def test_its_own_framing_changes_nothing():
    own = seen(streets(), (48, 48))
    torch.testing.assert_close(exchanged(own, own), own)


def test_contrast_and_the_scale_of_the_pixels_do_not_matter():
    own, sources = (seen(streets(seed=seed), (48, 48)) for seed in (0, 1))
    torch.testing.assert_close(exchanged(3 * own + 2, 0.5 * sources - 1), exchanged(3 * own + 2, 3 * sources + 2))


@pytest.mark.parametrize("plain", ["own", "sources"])
def test_plain_images_have_no_framing_and_break_nothing(plain):
    image = seen(streets(), (48, 48))
    grey = torch.full_like(image, 0.3)
    changed = exchanged(grey, image) if plain == "own" else exchanged(image, grey)
    torch.testing.assert_close(changed, grey if plain == "own" else image)


def test_it_has_a_gradient():
    own, sources = (seen(streets(2, seed=seed), (48, 48)).requires_grad_() for seed in (0, 1))
    exchanged(own, sources.detach()).square().sum().backward()
    assert own.grad.isfinite().all()
