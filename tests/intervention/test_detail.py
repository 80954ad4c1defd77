"""The detail swap beside a computation by hand, and what it must leave alone."""

import numpy as np
import torch
from scipy import ndimage

from lrptrain.batch import Sample
from lrptrain.intervention import InterventionConfig, Region, effects, strategy_of
from lrptrain.intervention.detail import BANDS, MOST_GAIN, detail_bands, strength_of_detail, swap_detail
from lrptrain.intervention.statistics import value_range


def pictures(count=4, channels=3, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    strength = 0.5 + torch.rand(count, channels, 1, 1, generator=generator, dtype=dtype)
    return strength * torch.rand(count, channels, 8, 7, generator=generator, dtype=dtype) + seed


def written_out(image):
    """The bands of one channel, by convolutions with the weights of each level, and the smooth rest."""
    bands = []
    for weights in ([1, 2, 1], [1, 0, 2, 0, 1]):
        kernel = np.array(weights) / 4

        def smooth(values, axis, kernel=kernel):
            return ndimage.convolve1d(values, kernel, axis=axis, mode="nearest")

        across = image - smooth(image, 1)
        rest = smooth(smooth(image, 1), 0)
        bands += [smooth(across, 0), across - smooth(across, 0), smooth(image, 1) - rest]
        image = rest
    return bands, image


def test_bands_are_those_of_convolutions_and_add_up_to_the_image():
    images = pictures()
    bands = detail_bands(images)
    assert len(bands) == BANDS
    for i, image in enumerate(images.flatten(0, 1).numpy()):
        expected, rest = written_out(image)
        found = [band.flatten(0, 1)[i].numpy() for band in bands]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)
        np.testing.assert_allclose(sum(found) + rest, image, rtol=0, atol=1e-14)
    variances = [band[:1].var((2, 3), correction=0).mean() for band in bands]
    np.testing.assert_allclose(strength_of_detail(images[0]), np.sqrt(variances), rtol=1e-5)


def test_a_pattern_is_in_the_bands_of_its_direction():
    lines = torch.tensor([0.0, 1.0]).repeat(8).expand(3, 16, 16)
    across, both, down, *coarser = strength_of_detail(lines).tolist()
    assert across > 0.3
    assert max(both, down, *coarser) < 0.1
    assert strength_of_detail(lines.mT).argmax() == 2
    assert strength_of_detail(torch.tensor([0.0, 0.0, 1.0, 1.0]).repeat(4).expand(3, 16, 16)).argmax() == 3


def test_every_band_is_scaled_to_the_donors_and_the_rest_stays():
    images, donors = pictures(), pictures(seed=1)
    swapped = swap_detail(images, donors)
    for image, donor, result in zip(*(x.flatten(0, 1).numpy() for x in (images, donors, swapped)), strict=True):
        own, rest = written_out(image)
        given, _ = written_out(donor)
        gains = [b.std() / a.std() for a, b in zip(own, given, strict=True)]
        assert max(gains) < MOST_GAIN
        expected = rest + sum(gain * band for gain, band in zip(gains, own, strict=True))
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-13)
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
    zero = torch.zeros_like(constant)
    assert torch.equal(swap_detail(zero, zero), zero)
    faint = constant + 1e-3 * pictures(2)
    torch.testing.assert_close(
        swap_detail(faint, pictures(2)), faint + (MOST_GAIN - 1) * sum(detail_bands(faint)), rtol=0, atol=1e-13
    )
    half = pictures(dtype=torch.float32).half()
    assert swap_detail(half, half.flip(0)).dtype == torch.float16


class ReadsNoise(torch.nn.Module):
    def forward(self, image):
        strength = detail_bands(image)[1].std((1, 2, 3))
        return 100 * torch.stack([0.03 - strength, strength - 0.03], 1)


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
