"""The detail swap beside a computation by hand, and what it must leave alone."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from lrptrain.batch import Sample
from lrptrain.intervention import InterventionConfig, Region, effects, strategy_of
from lrptrain.intervention.detail import MOST_GAIN, finest_detail, strength_of_detail, swap_detail
from lrptrain.intervention.statistics import value_range


def pictures(count=4, channels=3, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    strength = 0.5 + torch.rand(count, channels, 1, 1, generator=generator, dtype=dtype)
    return strength * torch.rand(count, channels, 8, 7, generator=generator, dtype=dtype) + seed


def test_the_finest_detail_is_what_smoothing_takes_away():
    images = pictures()
    binomial = np.outer([1, 2, 1], [1, 2, 1]) / 16
    for image, detail in zip(images.flatten(0, 1).numpy(), finest_detail(images).flatten(0, 1).numpy(), strict=True):
        np.testing.assert_allclose(
            detail, image - ndimage.convolve(image, binomial, mode="nearest"), rtol=0, atol=1e-14
        )
    squares = finest_detail(images[:1]).std((2, 3), correction=0).square()
    assert strength_of_detail(images[0]) == pytest.approx(float(squares.mean().sqrt()), rel=1e-5)


def test_detail_is_scaled_to_the_donors_and_all_else_stays():
    images, donors = pictures(), pictures(seed=1)
    gain = (finest_detail(donors).std((2, 3), correction=0) / finest_detail(images).std((2, 3), correction=0))[
        ..., None, None
    ]
    assert gain.max() < MOST_GAIN
    smooth = images - finest_detail(images)
    torch.testing.assert_close(swap_detail(images, donors), smooth + gain * finest_detail(images), rtol=0, atol=1e-14)
    torch.testing.assert_close(swap_detail(images, images), images, rtol=0, atol=1e-14)


def test_it_commutes_with_the_normalisation_of_the_pixels_and_so_do_its_bounds():
    images, donors = pictures(), 3 * pictures(seed=1)
    mean, std = (torch.tensor(x, dtype=torch.float64).view(3, 1, 1) for x in ([0.4, 0.5, 0.6], [0.2, 0.25, 0.3]))

    def swapped(images, donors):
        return swap_detail(images, donors, value_range(list(images)))

    assert (swapped(images, donors) != swap_detail(images, donors)).any()  # the bounds do something here
    after = swapped((images - mean) / std, (donors - mean) / std)
    torch.testing.assert_close(after, (swapped(images, donors) - mean) / std, rtol=0, atol=1e-12)


def test_what_has_no_detail_stays_and_little_detail_is_not_drawn_out():
    constant = torch.full((2, 3, 8, 7), 0.3, dtype=torch.float64)
    torch.testing.assert_close(swap_detail(constant, pictures(2)), constant, rtol=0, atol=1e-14)
    faint = constant + 1e-3 * pictures(2)
    torch.testing.assert_close(
        swap_detail(faint, pictures(2)), faint + (MOST_GAIN - 1) * finest_detail(faint), rtol=0, atol=1e-14
    )
    half = pictures(dtype=torch.float32).half()
    assert swap_detail(half, half.flip(0)).dtype == torch.float16


class ReadsNoise(torch.nn.Module):
    def forward(self, image):
        strength = finest_detail(image).std((1, 2, 3))
        return 40 * torch.stack([0.1 - strength, strength - 0.1], 1)


def noisy(count=24):
    generator = torch.Generator().manual_seed(0)
    ramp = torch.linspace(0, 1, 16).expand(3, 16, 16)
    spreads = [0.02 if i % 2 == 0 else 0.3 for i in range(count)]
    images = [ramp + spread * torch.randn(3, 16, 16, generator=generator) for spread in spreads]
    return [Sample(i, i % 2, {"image": image}) for i, image in enumerate(images)]


def test_who_reads_noise_is_moved_by_that_of_another_class_alone():
    samples = noisy()
    model = ReadsNoise()
    probabilities = model(torch.stack([each.tensors["image"] for each in samples])).softmax(1).numpy()
    rows = np.arange(len(samples))
    change, control = effects(
        model, samples, rows=rows, computed_rows=rows, region=Region("detail"), probabilities=probabilities,
        grid=(4, 4), config=InterventionConfig(batch_size=7),
    )  # fmt: skip
    assert change.min() > 0.6  # a gain of 8 at most
    assert abs(control).max() < 0.1


def test_detail_is_swapped_whatever_was_configured():
    for strategy in ("swap", "inpaint", "fill"):
        assert strategy_of(Region("detail"), (4, 4), InterventionConfig(strategy)) == "detail"
