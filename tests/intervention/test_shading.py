"""The shading swap beside a fit by least squares, and what it must leave alone."""

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.intervention import InterventionConfig, Region, effects, strategy_of
from lrptrain.intervention.shading import TERMS, shading, swap_shading
from lrptrain.intervention.statistics import value_range


def pictures(count=4, channels=3, size=(8, 7), seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, channels, *size, generator=generator, dtype=dtype) + seed


def fitted(channel, size=None):
    """The second-order surface of least squares through a channel, drawn over an image of any size, less its mean."""

    def terms(height, width):
        rows, columns = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
        powers = (np.ones_like(rows), columns, rows, columns**2, rows**2, rows * columns)
        return np.stack([each.ravel() for each in powers], 1)

    factors, *_ = np.linalg.lstsq(terms(*channel.shape), channel.ravel(), rcond=None)
    size = size or channel.shape
    return (terms(*size) @ factors).reshape(size)


def test_the_shading_of_the_donor_takes_the_place_of_the_images_and_the_mean_stays():
    images, donors = pictures(), pictures(seed=1)
    swapped = swap_shading(images, donors)
    for image, donor, result in zip(*(x.flatten(0, 1).numpy() for x in (images, donors, swapped)), strict=True):
        own, given = fitted(image), fitted(donor)
        np.testing.assert_allclose(result, image - own + own.mean() + given - given.mean(), rtol=0, atol=1e-13)
        np.testing.assert_allclose(result.mean(), image.mean(), rtol=0, atol=1e-14)
    torch.testing.assert_close(swap_shading(images, images), images, rtol=0, atol=0)


def test_terms_are_orthogonal_and_of_mean_square_1():
    images = pictures()
    terms = shading(images)
    assert terms.shape == (4, 3, len(TERMS))
    surface = fitted(images[0, 0].numpy())
    assert float(terms[0, 0].square().sum()) == pytest.approx(surface.var(), rel=1e-12)
    ramp = torch.linspace(-1, 1, 7, dtype=torch.float64).expand(1, 1, 8, 7)
    named = {name: float(value) for name, value in zip(TERMS, shading(ramp)[0, 0], strict=True)}
    assert named.pop("from left to right") == pytest.approx(float(ramp.std(correction=0)), rel=1e-12)
    assert max(abs(value) for value in named.values()) < 1e-15
    names = [TERMS[int(shading(x)[0, 0].abs().argmax())] for x in (ramp.mT, ramp**2, ramp.mT**2)]
    assert names == ["from top to bottom", "towards the sides", "towards top and bottom"]


def test_it_commutes_with_the_normalisation_of_the_pixels_and_so_do_its_bounds():
    images, donors = pictures(), 3 * pictures(seed=1)
    mean, std = (torch.tensor(x, dtype=torch.float64).view(3, 1, 1) for x in ([0.4, 0.5, 0.6], [0.2, 0.25, 0.3]))

    def swapped(images, donors):
        return swap_shading(images, donors, value_range(list(images)))

    assert (swapped(images, donors) != swap_shading(images, donors)).any()  # the bounds do something here
    after = swapped((images - mean) / std, (donors - mean) / std)
    torch.testing.assert_close(after, (swapped(images, donors) - mean) / std, rtol=0, atol=1e-12)


def test_donors_may_have_another_size_and_an_image_few_pixels():
    images = pictures()
    ramp = torch.linspace(-1, 1, 12, dtype=torch.float64).expand(4, 3, 5, 12)
    swapped = swap_shading(images, ramp)
    line = torch.linspace(-1, 1, 7, dtype=torch.float64)
    drawn = (line * ramp[0, 0].std(correction=0) / line.std(correction=0)).expand(8, 7).numpy()
    for image, result in zip(images.flatten(0, 1).numpy(), swapped.flatten(0, 1).numpy(), strict=True):
        own = fitted(image)
        np.testing.assert_allclose(result, image - own + own.mean() + drawn, rtol=0, atol=1e-13)
    narrow = pictures(size=(8, 1))
    assert torch.equal(shading(narrow)[..., [0, 2, 4]], torch.zeros(4, 3, 3, dtype=torch.float64))


def test_images_in_16_bits_are_rounded_once():
    lit = torch.linspace(0, 1, 64).expand(2, 3, 64, 64).bfloat16()
    swapped = swap_shading(lit, lit.flip(3))
    assert swapped.dtype == torch.bfloat16
    exact = swap_shading(lit.double(), lit.double().flip(3))
    # Below 1 numbers have steps of 2^-8.
    torch.testing.assert_close(swapped.double(), exact, rtol=0, atol=0.5 * 2**-8 + 1e-5)


class ReadsTheSideOfTheLamp(torch.nn.Module):
    def forward(self, image):
        side = shading(image).mean(1)[:, 0]
        return 40 * torch.stack([-side, side], 1)


def lit(count=24):
    generator = torch.Generator().manual_seed(0)
    ramp = torch.linspace(-1, 1, 16).expand(3, 16, 16)
    images = [(0.5 if i % 2 else -0.5) * ramp + torch.rand(3, 16, 16, generator=generator) for i in range(count)]
    return [Sample(i, i % 2, {"image": image}) for i, image in enumerate(images)]


def test_who_reads_the_light_is_moved_by_that_of_another_class_alone():
    samples = lit()
    model = ReadsTheSideOfTheLamp()
    probabilities = model(torch.stack([each.tensors["image"] for each in samples])).softmax(1).numpy()
    assert probabilities.argmax(1).tolist() == [i % 2 for i in range(24)]
    rows = np.arange(len(samples))
    change, control = effects(
        model, samples, rows=rows, computed_rows=rows, region=Region("shading"), probabilities=probabilities,
        grid=(4, 4), config=InterventionConfig(batch_size=7),
    )  # fmt: skip
    assert change.min() > 0.9
    assert abs(control).max() < 0.01


def test_shading_is_swapped_whatever_was_configured():
    for strategy in ("swap", "inpaint", "fill"):
        assert strategy_of(Region("shading"), (4, 4), InterventionConfig(strategy)) == "shading"
