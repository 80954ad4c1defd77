import inspect
import math

import pytest
import torch

from lrptrain.segmentation.config import REFINE_OPTIONS, PseudoMaskConfig
from lrptrain.segmentation.refinement import pixel_adaptive


def scene(samples=2, size=40):
    """A bright square on a dark ground, noise on both, and a blurred map of it that is off by some pixels."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.zeros(samples, 1, size, size, dtype=torch.float64)
    truth[:, :, 10:30, 10:30] = 1
    images = 0.2 + 0.6 * truth.expand(-1, 3, -1, -1)
    images = images + 0.02 * torch.randn(images.shape, generator=generator, dtype=torch.float64)
    maps = torch.nn.functional.avg_pool2d(truth.roll((3, -3), (2, 3)), 13, 1, 6)
    return images.clamp(0, 1), torch.cat([maps, torch.zeros_like(maps)], 1), truth[:, 0] > 0


def overlap(map_, truth):
    found = map_ > 0.5 * map_.amax((1, 2), keepdim=True)
    return ((found & truth).sum() / (found | truth).sum()).item()


def test_a_map_follows_the_edges_of_the_image():
    images, maps, truth = scene()
    refined = pixel_adaptive(images, maps)
    assert refined.shape == maps.shape
    assert overlap(refined[:, 0], truth) > overlap(maps[:, 0], truth) + 0.05
    assert not refined[:, 1].any()  # an absent class stays absent
    assert refined.min() >= 0
    assert refined.max() <= 1


def test_a_batch_equals_singles_and_the_input_is_left_alone():
    images, maps, _ = scene(3)
    images = images + torch.linspace(0, 0.1, 3)[:, None, None, None]
    before, refine = maps.clone(), pixel_adaptive
    singles = torch.cat([refine(images[i : i + 1], maps[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(refine(images, maps), singles, rtol=1e-10, atol=1e-12)
    assert torch.equal(maps, before)


def test_pixel_adaptive_is_its_formula():
    """Pixel by pixel, neighbour by neighbour."""
    generator = torch.Generator().manual_seed(0)
    images, maps = (torch.rand(1, c, 5, 6, generator=generator, dtype=torch.float64) for c in (3, 2))
    dilations, w1, w2 = (1, 3), 0.3, 0.01
    offsets = [(dy * d, dx * d) for d in dilations for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0)]
    distances = torch.tensor([math.hypot(*offset) for offset in offsets], dtype=torch.float64)
    nearness = (-((distances / (w1 * distances.std())) ** 2)).softmax(0)
    expected = maps
    for _ in range(2):
        current, expected = expected, torch.zeros_like(maps)
        for y in range(5):
            for x in range(6):
                places = [(min(max(y + dy, 0), 4), min(max(x + dx, 0), 5)) for dy, dx in offsets]
                around = torch.stack([images[0, :, i, j] for i, j in places], 1)
                difference = (around - images[0, :, y, x, None]) / (w1 * around.std(1, keepdim=True))
                weights = ((-(difference**2)).mean(0).softmax(0) + w2 * nearness) / (1 + w2)
                values = torch.stack([current[0, :, i, j] for i, j in places], 1)
                expected[0, :, y, x] = values @ weights
    found = pixel_adaptive(images, maps, dilations, 2)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


def test_pixel_adaptive_keeps_constants():
    images, maps, _ = scene()
    refine = pixel_adaptive
    torch.testing.assert_close(refine(images, torch.full_like(maps, 0.4)), torch.full_like(maps, 0.4))
    flat = refine(torch.full_like(images, 0.5), maps)  # no colour to tell neighbours apart
    assert flat.isfinite().all()
    assert flat.std() < maps.std()


def test_names_and_options():
    assert tuple(inspect.signature(pixel_adaptive).parameters)[2:] == REFINE_OPTIONS
    with pytest.raises(ValueError, match=r"refine must be one of \('pixel_adaptive', None\), not 'guided_filter'"):
        PseudoMaskConfig(refine="guided_filter")
    with pytest.raises(ValueError, match=r"refine_options has \['radius'\]; known are dilations, iterations"):
        PseudoMaskConfig(refine_options={"radius": 1})
    with pytest.raises(ValueError, match="w1 above 0"):
        pixel_adaptive(torch.rand(1, 3, 4, 4), torch.rand(1, 1, 4, 4), w1=0)
    with pytest.raises(ValueError, match="differ in number or size"):
        pixel_adaptive(torch.rand(1, 3, 4, 4), torch.rand(1, 1, 5, 4))
