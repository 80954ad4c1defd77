"""The statistics swap beside a computation by hand, and what it must leave alone."""

import numpy as np
import pytest
import torch

from lrptrain.batch import Sample
from lrptrain.intervention import InterventionConfig, KeptChanges, Region, effects, strategy_of
from lrptrain.intervention.statistics import swap_statistics, value_range


def pictures(count=4, channels=3, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    scale = torch.rand(count, channels, 1, 1, generator=generator, dtype=dtype)
    return scale * torch.rand(count, channels, 6, 5, generator=generator, dtype=dtype) + seed


def test_every_channel_has_the_mean_and_spread_of_the_donor_and_the_shape_of_the_image():
    images, donors = pictures(), pictures(seed=1)
    swapped = swap_statistics(images, donors).numpy()
    for x, y, z in zip(
        images.numpy().reshape(12, -1), donors.numpy().reshape(12, -1), swapped.reshape(12, -1), strict=True
    ):
        by_hand = (x - x.mean()) / x.std() * y.std() + y.mean()
        np.testing.assert_allclose(z, by_hand, rtol=0, atol=1e-12)


def test_it_commutes_with_the_normalisation_of_the_pixels_and_so_do_its_bounds():
    images, donors = pictures(), pictures(seed=1)
    mean, std = (torch.tensor(x, dtype=torch.float64).view(3, 1, 1) for x in ([0.4, 0.5, 0.6], [0.2, 0.25, 0.3]))

    def normalised(x):
        return (x - mean) / std

    def swapped(images, donors):
        return swap_statistics(images, donors, value_range(list(images)))

    assert (swapped(images, donors) != swap_statistics(images, donors)).any()  # the bounds do something here
    after = swapped(normalised(images), normalised(donors))
    torch.testing.assert_close(after, normalised(swapped(images, donors)), rtol=0, atol=1e-12)


def test_the_same_image_as_donor_changes_nothing():
    images = pictures()
    torch.testing.assert_close(swap_statistics(images, images, value_range(list(images))), images, rtol=0, atol=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.3, -2.1])
def test_a_constant_channel_takes_the_mean_alone_and_not_its_rounding(value):
    images = pictures(dtype=torch.float32)
    images[:, 1] = value
    images[0, 1, 0, 0] += 1e-7  # what a resize or a normalisation leaves
    donors = pictures(seed=1, dtype=torch.float32)
    swapped = swap_statistics(images, donors)
    assert swapped.isfinite().all()
    expected = donors[:, 1].mean((1, 2), keepdim=True).expand(4, 6, 5)
    torch.testing.assert_close(swapped[:, 1], expected, rtol=0, atol=1e-6)
    onto_constant = swap_statistics(donors, images)
    torch.testing.assert_close(onto_constant[:, 1], torch.full((4, 6, 5), value), rtol=0, atol=1e-5)


def test_grey_images_stay_grey_and_half_precision_is_kept():
    grey = pictures(channels=1).expand(-1, 3, -1, -1)
    swapped = swap_statistics(grey, grey.flip(0))
    assert (swapped == swapped[:, :1]).all()
    single = swap_statistics(pictures(channels=1), pictures(channels=1).flip(0))
    assert torch.equal(single, swapped[:, :1])
    # Sums over all pixels in 16 bits would be off by more than the rounding of the result, 2^-8 of 3.
    wide = 40 * torch.rand(2, 1, 64, 64, generator=torch.Generator().manual_seed(2))
    images = wide.to(torch.bfloat16)
    half = swap_statistics(images, images.flip(0))
    assert half.dtype == torch.bfloat16
    full = swap_statistics(images.double(), images.double().flip(0))
    assert float((half.double() - full).abs().max()) <= float(full.abs().max()) * 2**-8


def test_pixels_stay_within_what_the_images_have():
    images, donors = pictures(), pictures(seed=1)
    low, high = value_range([images[0], torch.cat([donors[1], donors[1]], 1)])  # sizes may differ
    assert torch.equal(low, torch.minimum(images[0].amin((1, 2)), donors[1].amin((1, 2))))
    assert torch.equal(high, torch.maximum(images[0].amax((1, 2)), donors[1].amax((1, 2))))
    swapped = swap_statistics(images, donors, value_range([images[0]]))
    assert bool((swapped.amin((0, 2, 3)) >= images[0].amin((1, 2))).all())
    assert bool((swapped.amax((0, 2, 3)) <= images[0].amax((1, 2))).all())


def tinted(count=24):
    """Pictures whose class is the brightest channel, everywhere; where the bright half lies says nothing."""
    generator = torch.Generator().manual_seed(3)
    images = 0.2 * torch.rand(count, 3, 8, 8, generator=generator)
    labels = torch.arange(count) % 3
    images[torch.arange(count), labels] += 0.5
    images[::2, :, :4] += 0.2
    images[1::2, :, 4:] += 0.2
    return [Sample(i, int(labels[i]), {"image": images[i]}) for i in range(count)]


def colour_reader(images):
    return 20 * images.mean((2, 3))


def shape_reader(images):
    top, bottom = images[:, :, :4].mean((1, 2, 3)), images[:, :, 4:].mean((1, 2, 3))
    spread = images.flatten(1).std(1)
    return torch.stack([(top - bottom) / spread, (bottom - top) / spread], 1).sign() * 5


class Model(torch.nn.Module):
    def __init__(self, read):
        super().__init__()
        self.read = read

    def forward(self, image):
        return self.read(image)


def falls(read, samples, **options):
    images = torch.stack([sample.tensors["image"] for sample in samples])
    known = read(images).softmax(1).numpy()
    rows = np.arange(0, len(samples))
    return effects(
        Model(read), samples, rows=rows, computed_rows=rows, region=Region("statistics"), probabilities=known,
        grid=(4, 4), config=InterventionConfig(batch_size=7), **options,
    )  # fmt: skip


def test_who_reads_colour_is_moved_and_who_reads_shape_is_not():
    samples = tinted()
    change, control = falls(colour_reader, samples)
    assert change.min() > 0.9
    assert abs(control).max() < 0.1
    change, control = falls(shape_reader, samples)
    assert abs(change).max() < 1e-6
    assert abs(control).max() < 1e-6


def test_what_is_kept_has_the_colours_of_another_and_of_the_same_class():
    samples = tinted()
    kept = KeptChanges({Region("statistics"): [range(24)]}, most=24)
    falls(colour_reader, samples, kept=kept)
    assert len(kept.changes) == 24
    for (_, row), change in kept.changes.items():
        brightest = [int(each["image"].mean((1, 2)).argmax()) for each in (change.changed, change.control)]
        assert brightest[0] != samples[row].label
        assert brightest[1] == samples[row].label


def test_statistics_are_swapped_whatever_was_configured_and_one_class_gives_no_donor():
    for strategy in ("swap", "inpaint", "fill"):
        assert strategy_of(Region("statistics"), (4, 4), InterventionConfig(strategy)) == "statistics"
    with pytest.raises(ValueError, match="predicts the same class for all"):
        falls(lambda x: torch.tensor([[5.0, 0.0]]).expand(len(x), 2), tinted())
