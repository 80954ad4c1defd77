import pytest
import torch
import torch.nn.functional as F

from lrptrain.cues.painting import dilate, inpainted


def region(*boxes, size=16):
    mask = torch.zeros(len(boxes), size, size, dtype=torch.bool)
    for row, (top, left, bottom, right) in enumerate(boxes):
        mask[row, top:bottom, left:right] = True
    return mask


@pytest.fixture
def images():
    return torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_only_the_region_changes(images):
    mask = region((0, 0, 4, 4), (5, 5, 9, 16))
    changed = inpainted(images, mask)
    outside = ~mask[:, None].expand_as(images)
    assert torch.equal(changed[outside], images[outside])
    assert not torch.isclose(changed[~outside], images[~outside]).any()


def test_a_smooth_image_is_continued():
    ramp = torch.linspace(0, 1, 32, dtype=torch.float64).expand(1, 1, 32, 32)
    mask = region((10, 10, 18, 18), size=32)
    difference = (inpainted(ramp, mask) - ramp).abs().max()
    assert difference < 0.08  # the mean of the rest would be off by more than twice that
    flat = torch.full((1, 3, 32, 32), 0.3)
    assert torch.allclose(inpainted(flat, mask), flat)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float16, 0.01), (torch.bfloat16, 0.05)])
def test_half_precision_is_the_same_to_its_digits(dtype, bound):
    images = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    mask = region((8, 8, 24, 24), size=32)
    difference = inpainted(images.to(dtype), mask).float() - inpainted(images, mask)
    assert float(difference.abs().max()) < bound  # some ten roundings of values up to 1


def test_where_nothing_is_known_nothing_changes(images):
    everything = torch.ones(2, 16, 16, dtype=torch.bool)
    assert torch.equal(inpainted(images, everything), images)
    nothing = ~everything
    assert torch.equal(inpainted(images, nothing), images)


@pytest.mark.parametrize("size", [7, 16, 33])
def test_a_batch_is_its_images_one_by_one(size):
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(3, 2, size, size + 3, generator=generator, dtype=torch.float64)
    mask = torch.rand(3, size, size + 3, generator=generator) < 0.4
    together = inpainted(images, mask)
    for i in range(3):
        assert torch.allclose(together[i], inpainted(images[i : i + 1], mask[i : i + 1])[0])
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    assert bool(((together >= low - 1e-9) & (together <= high + 1e-9)).all())  # means of what is there


def test_dilation_adds_a_margin():
    assert torch.equal(dilate(region((5, 5, 9, 9)), 2), region((3, 3, 11, 11)))
    assert torch.equal(dilate(region((5, 5, 9, 9)), 0), region((5, 5, 9, 9)))


@pytest.mark.parametrize("margin", range(6))
def test_dilation_is_the_maximum_over_squares(margin):
    scattered = torch.rand(2, 9, 14, generator=torch.Generator().manual_seed(0)) < 0.03
    squares = F.max_pool2d(scattered[:, None].float(), 2 * margin + 1, stride=1, padding=margin)[:, 0] > 0
    assert torch.equal(dilate(scattered, margin), squares)
