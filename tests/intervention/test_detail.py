"""The detail swap beside a computation by hand, and what it must leave alone."""

import numpy as np
import torch
from scipy import linalg, ndimage

from lrptrain.batch import Sample
from lrptrain.intervention import InterventionConfig, Region, effects, strategy_of
from lrptrain.intervention.detail import (
    BANDS,
    FLOOR,
    MOST_GAIN,
    REACH,
    detail_bands,
    detail_of,
    pattern,
    spectra,
    strength_of_detail,
    swap_detail,
)
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


def transport_written_out(own, wanted):
    """The map between two Gaussian distributions, by SciPy's square roots of matrices."""
    root = linalg.sqrtm(own)
    inverse = np.linalg.inv(root)
    return inverse @ linalg.sqrtm(root @ wanted @ root) @ inverse


def correlations_written_out(detail):
    """How each pixel goes with those up to `REACH` away, in all pairs of channels, fewer the farther apart."""
    channels, height, width = detail.shape
    lags = range(-REACH, REACH)
    found = np.zeros((2 * REACH, 2 * REACH, channels, channels))
    for down in lags:
        for across in lags:
            weight = (1 - abs(down) / REACH) * (1 - abs(across) / REACH) / (height * width)
            for row in range(max(0, -down), min(height, height - down)):
                for column in range(max(0, -across), min(width, width - across)):
                    later = detail[:, row + down, column + across]
                    found[down, across] += weight * np.outer(later, detail[:, row, column])
    return found  # indices below 0 are lags below 0, as a discrete Fourier transform has them


def test_detail_is_filtered_by_the_transport_between_the_spectra():
    images, donors = pictures(2), pictures(2, seed=1)
    own, wanted = detail_of(images).numpy(), detail_of(donors).numpy()
    swapped = swap_detail(images, donors).numpy()
    for i, (detail, given) in enumerate(zip(own, wanted, strict=True)):
        scale = np.sqrt((np.square(detail).mean((1, 2)) + np.square(given).mean((1, 2))) / 2)[:, None, None]
        floor = FLOOR * np.eye(3)
        before, after = (
            np.fft.fft2(correlations_written_out(each / scale), axes=(0, 1)) + floor for each in (detail, given)
        )
        maps = np.array(
            [
                [transport_written_out(*pair) for pair in zip(*rows, strict=True)]
                for rows in zip(before, after, strict=True)
            ]
        )
        assert np.linalg.eigvalsh(maps).max() < MOST_GAIN  # nothing is cut off here
        kernel = np.fft.ifft2(maps - np.eye(3), axes=(0, 1)).real
        padded = np.pad(detail / scale, ((0, 0), (REACH, REACH), (REACH, REACH)), "edge")
        change = np.zeros_like(detail)
        height, width = detail.shape[1:]
        for down in range(-REACH, REACH):
            for across in range(-REACH, REACH):
                rows = slice(REACH - down, REACH - down + height)
                columns = slice(REACH - across, REACH - across + width)
                change += np.einsum("ij,jhw->ihw", kernel[down, across], padded[:, rows, columns])
        # Two square roots of matrices, of which the smallest eigenvalue is FLOOR: each loses up to 1 / FLOOR.
        np.testing.assert_allclose(swapped[i], images[i].numpy() + scale * change, rtol=0, atol=1e-9)
    torch.testing.assert_close(swap_detail(images, images), images, rtol=0, atol=1e-12)


def test_noise_gets_the_pattern_of_the_donor():
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(2, 3, 128, 128, generator=generator, dtype=torch.float64)
    lines = torch.randn(2, 3, 128, 128, generator=generator, dtype=torch.float64)
    lines = lines + lines.roll(1, 3)  # neighbours in a row go together
    lines[:, 2] = lines[:, 0].roll(2, 2)  # blue is red, two rows further down
    before, after, wanted = (spectra(detail_of(each)) for each in (noise, swap_detail(noise, lines), lines))
    # Not exact, as the correlations of pixels far apart are cut off after the map, too.
    assert (before - wanted).abs().mean() > 3 * (after - wanted).abs().mean()
    assert torch.linalg.eigvalsh(wanted).min() > -1e-12


def test_a_pattern_is_told_by_its_powers_and_correlations():
    images = pictures(2)
    there = torch.zeros(8, 7, dtype=torch.bool)
    there[:3] = True
    numbers = pattern(images, there)
    detail = detail_of(images)
    power = detail[:, :, :3].square().mean((2, 3))
    torch.testing.assert_close(numbers[:, :3], power.log(), rtol=0, atol=1e-12)
    expected = []
    for down, across in [(0, 0), (0, 1), (0, 2), *((d, a) for d in (1, 2) for a in range(-2, 3))]:
        rows = [row for row in range(3) if row + down < 3]
        columns = [column for column in range(7) if 0 <= column + across < 7]
        pairs = [(r, c, r + down, c + across) for r in rows for c in columns]
        both = sum(detail[:, :, r, c, None] * detail[:, None, :, y, x] for r, c, y, x in pairs) / len(pairs)
        expected.append((both / (power[:, :, None] * power[:, None]).sqrt()).flatten(1))
    torch.testing.assert_close(numbers[:, 3 * (BANDS + 1) :], torch.cat(expected, 1), rtol=0, atol=1e-12)
    constant = pattern(torch.ones(2, 3, 8, 7), there)
    assert constant.isfinite().all()


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
