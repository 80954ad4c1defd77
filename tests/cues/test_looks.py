"""Colour, spectrum and light are the source's afterwards, and nothing else is."""

import numpy as np
import pytest
import torch
from scipy.fft import dctn
from torch.nn import functional as F

from lrptrain.cues.colour import Colour
from lrptrain.cues.grain import Grain
from lrptrain.cues.light import WAVES, Light
from lrptrain.cues.spectrum import Spectrum
from lrptrain.cues.surroundings import LOOKS

SIZES = [(16, 16), (15, 22)]


def images(seed, size=(16, 16), channels=3, count=4):
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(count, channels, channels, generator=generator).double()
    values = torch.randn(count, channels, *size, generator=generator).double()
    smooth = F.avg_pool2d(values, 3, 1, 1) + 0.3 * values
    return (mixing @ smooth.flatten(2)).view_as(smooth) + torch.randn(count, channels, 1, 1, generator=generator)


def masks(size=(16, 16), count=4):
    """A thing of another place and size in each image, and a pixel that is ignored."""
    mask = torch.zeros(count, *size, dtype=torch.uint8)
    for row in range(count):
        mask[row, 2 + row : 9, 3 : 7 + row] = 1
    mask[:, 0, 0] = 255
    return mask


def transplanted(look, own, sources, inside=None, theirs=None):
    everything = torch.ones_like(own[:, 0], dtype=torch.bool)
    return look.of("image", "unreviewed").transplant(
        own, everything if inside is None else inside, sources, everything if theirs is None else theirs
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("channels", [1, 3, 5])
def test_mean_and_covariance_of_the_colours_become_those_of_the_source(size, channels):
    sources = images(1, size, channels)
    changed = transplanted(Colour, images(0, size, channels), sources)
    for one, other in zip(changed.flatten(2), sources.flatten(2), strict=True):
        torch.testing.assert_close(one.mean(1), other.mean(1))
        torch.testing.assert_close(torch.cov(one), torch.cov(other))


def test_the_map_of_colours_is_the_optimal_one():
    """Of one channel it is x -> (x - m) s'/s + m'; of several its matrix is symmetric and positive."""
    own, sources = images(0, channels=1), images(1, channels=1)
    scale = sources.std((2, 3), keepdim=True) / own.std((2, 3), keepdim=True)
    wanted = (own - own.mean((2, 3), keepdim=True)) * scale + sources.mean((2, 3), keepdim=True)
    torch.testing.assert_close(transplanted(Colour, own, sources), wanted)
    own, sources = images(2), images(3)
    moved = transplanted(Colour, own, sources).flatten(2)
    centred = [x - x.mean(2, keepdim=True) for x in (own.flatten(2), moved)]
    for before, after in zip(*centred, strict=True):
        matrix = torch.linalg.lstsq(before.T, after.T).solution
        torch.testing.assert_close(matrix, matrix.T)
        assert (torch.linalg.eigvalsh(matrix) > 0).all()


def test_grey_and_plain_images_have_a_colour_too():
    grey = images(0, channels=1).expand(-1, 3, -1, -1)
    changed = transplanted(Colour, grey, images(1))
    assert changed.isfinite().all()
    torch.testing.assert_close(changed.mean((2, 3)), images(1).mean((2, 3)))
    plain = torch.full((2, 3, 8, 8), 0.25, dtype=torch.float64)
    sources = images(1, (8, 8))[:2]
    torch.testing.assert_close(
        transplanted(Colour, plain, sources), sources.mean((2, 3), keepdim=True).expand_as(plain)
    )


@pytest.mark.parametrize("size", SIZES)
def test_energies_become_those_of_the_source_and_phases_stay(size):
    own, sources = images(0, size), images(1, size)
    changed = transplanted(Spectrum, own, sources)
    before, after, given = (torch.fft.fft2(x - x.mean((2, 3), keepdim=True)) for x in (own, changed, sources))
    torch.testing.assert_close(after.abs().square().sum((2, 3)), given.abs().square().sum((2, 3)))
    turned = (after * before.conj()).imag.abs().max() / (after * before.conj()).abs().max()
    assert turned < 1e-12
    torch.testing.assert_close(changed.mean((2, 3)), own.mean((2, 3)))


def test_a_wave_gives_its_length_and_direction_not_its_place():
    across = torch.arange(32, dtype=torch.float64)
    waves = {length: torch.sin(2 * torch.pi * across / length).expand(1, 1, 32, -1) for length in (4, 16)}
    noise = 1e-3 * images(0, (32, 32), 1)[:1]
    changed = transplanted(Spectrum, waves[16] + noise, waves[4] + noise)
    peak = torch.fft.rfft2(changed).abs()[0, 0]
    assert peak[0, 2] < 0.1 * peak.max(), "the length of its own is gone"
    assert peak[:, 6:12].max() == peak.max(), "and the source's is there"


def test_noise_that_takes_the_texture_of_a_wave_has_about_its_length_and_direction():
    """A band is an eighth of the square root of all frequencies, and a direction a quarter of a half turn."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(1, 1, 64, 64, generator=generator, dtype=torch.float64)
    wave = torch.sin(2 * torch.pi * 13 / 64 * torch.arange(64, dtype=torch.float64))
    changed = transplanted(Spectrum, noise, wave.expand(1, 1, 64, -1) + 1e-6 * noise)
    power = torch.fft.fft2(changed).abs().square()[0, 0]
    rows, columns = torch.meshgrid(*[torch.fft.fftfreq(64, dtype=torch.float64)] * 2, indexing="ij")
    frequency, turned = torch.hypot(rows, columns), torch.atan2(rows.abs(), columns.abs()).rad2deg()

    def share(inside):
        return float(power[inside].sum() / power.sum())

    assert share((frequency > 0.175) & (frequency < 0.28)) > 0.9
    assert share((frequency > 0.175) & (frequency < 0.225)) < 0.7, "finer, it would be the source's own wave"
    assert share(turned < 23) > 0.9
    assert share(turned < 11) < 0.75


def test_the_texture_of_a_larger_part_is_no_stronger():
    noise = torch.randn(2, 1, 32, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    masks = torch.zeros(2, 32, 32, dtype=torch.uint8)
    masks[0, 4:14, 4:14], masks[1, 2:30, 2:30] = 1, 1
    own, source = ({"image": noise[i : i + 1], "mask": masks[i : i + 1]} for i in (0, 1))
    changed = Spectrum.of("evidence", "unreviewed").exchange(own, source)["image"][0, 0, 4:14, 4:14]
    assert 0.7 < changed.std() / noise[1].std() < 1.3


@pytest.mark.parametrize(("length", "least", "most"), [(32, 0.5, 1), (12, 0, 0.2)])
def test_a_wave_as_long_as_an_image_is_light_and_a_shorter_one_is_not(length, least, most):
    across = torch.arange(32, dtype=torch.float64)
    wave = torch.sin(2 * torch.pi * across / length).expand(1, 3, 32, -1)
    changed = transplanted(Light, torch.zeros_like(wave), wave)[..., 4:-4]
    assert least < (changed * wave[..., 4:-4]).sum() / wave[..., 4:-4].square().sum() < most


@pytest.mark.parametrize("look", LOOKS)
def test_only_of_a_part_people_have_to_say_where_it_is(look):
    parts = [look.of(where, "unreviewed") for where in ("image", "outside", "evidence")]
    assert [part.needs_annotation for part in parts] == [False, True, True]


@pytest.mark.parametrize("look", LOOKS)
def test_what_lies_beside_a_part_has_no_say_in_its_look(look):
    inside = masks() == 1
    own, sources = images(0), images(1)
    others = [torch.where(inside[:, None], each, 5 + images(2)) for each in (own, sources)]
    changed, again = (transplanted(look, one, other, inside, inside) for one, other in ((own, sources), others))
    part = inside[:, None].expand_as(own)
    torch.testing.assert_close(again[part], changed[part])


@pytest.mark.parametrize("look", LOOKS)
def test_a_source_without_the_part_gives_nothing(look):
    own, sources = {"image": images(0), "mask": masks()}, {"image": images(1), "mask": masks()}
    sources["mask"][1] = 0
    changed = look.of("evidence", "unreviewed").exchange(own, sources)["image"]
    assert [torch.equal(*pair) for pair in zip(changed, own["image"], strict=True)] == [False, True, False, False]


@pytest.mark.parametrize("size", SIZES)
def test_the_lowest_cosines_of_the_luminance_become_those_of_the_source_and_all_others_stay(size):
    own, sources = images(0, size), images(1, size)
    changed = transplanted(Light, own, sources)
    before, after, given = (
        dctn(x.mean(1).numpy(), axes=(1, 2), norm="ortho")
        for x in (own, changed, sources)  # of the luminance
    )
    wanted = before.copy()
    wanted[:, :WAVES, :WAVES] = given[:, :WAVES, :WAVES]
    wanted[:, 0, 0] = before[:, 0, 0]
    np.testing.assert_allclose(after, wanted, atol=1e-12)
    difference = changed - own
    torch.testing.assert_close(difference, difference[:, :1].expand_as(difference))  # grey


def test_grain_goes_with_its_phases_and_what_is_larger_stays():
    """Two mosaics that differ in nothing but by one pixel, over a slow wave each."""
    across = torch.arange(32, dtype=torch.float64)
    mosaic = (across[:, None] + across).remainder(2).expand(1, 1, -1, -1)
    slow = [torch.sin(2 * torch.pi * across / length).expand(1, 1, 32, -1) for length in (16, 32)]
    own, source = slow[0] + mosaic, slow[1] + 1 - mosaic
    inner = (..., slice(3, -3), slice(3, -3))  # at the rim, a smoothed image leans on one side
    changed = transplanted(Grain, own, source)
    torch.testing.assert_close(changed[inner], (slow[0] + 1 - mosaic)[inner], atol=0.1, rtol=0)
    taken = ((changed - slow[0]) * (1 - 2 * mosaic))[inner].mean()
    assert abs(2 * taken - 1) < 0.05, "all of the finest pattern goes"
    texture = transplanted(Spectrum, own, source)
    assert ((texture - texture.mean()) * (mosaic - 0.5)).mean() > 0.2, "the texture of both is the same"


def test_a_thing_is_no_grain_and_lines_all_over_are():
    """A pixel in 1024 stands out, and every fourth line of an image does not."""
    dim = torch.zeros(1, 1, 32, 32, dtype=torch.float64)
    dot, lines = dim.clone(), dim.clone()
    dot[..., 16, 16], lines[..., ::4, :] = 1, 1
    assert transplanted(Grain, dim, dot).abs().max() < 0.1
    assert transplanted(Grain, dim, lines).max() > 0.5


@pytest.mark.parametrize("axis", [2, 3])
def test_a_line_from_side_to_side_is_grain_wherever_it_lies_and_half_of_one_is_a_thing(axis):
    own, source, part = (torch.zeros(1, 1, 32, 32, dtype=torch.float64) for _ in range(3))
    own[..., 7], source[..., 20], part[..., :15, 20] = 1, -1, -1
    own, source, part = (each.transpose(3, axis) for each in (own, source, part))
    changed = transplanted(Grain, own, source).transpose(3, axis)
    # A smoothing of one pixel leaves 0.6 of a line of one, and spreads the rest beside it.
    assert changed[..., 7].abs().max() < 0.45
    assert changed[..., 20].max() < -0.55
    assert transplanted(Grain, torch.zeros_like(own), part).abs().max() < 0.3


@pytest.mark.parametrize("look", LOOKS)
def test_its_own_look_changes_nothing(look):
    own = images(0)
    torch.testing.assert_close(transplanted(look, own, own), own)


@pytest.mark.parametrize("look", LOOKS)
def test_the_scale_of_the_pixels_does_not_matter(look):
    own, sources = images(0), images(1)
    torch.testing.assert_close(
        3 * transplanted(look, own, sources) + 2, transplanted(look, 3 * own + 2, 3 * sources + 2)
    )


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("where", ["outside", "evidence"])
def test_a_part_takes_the_look_of_a_part_and_the_rest_stays(look, where):
    batch = {"image": images(0), "mask": masks()}
    sources = {"image": images(1), "mask": masks().flip(2)}
    cue = look.of(where, "unreviewed")
    changed = cue.exchange(batch, sources)["image"]
    inside = cue.locate(batch)
    kept = ~inside[:, None].expand_as(changed)
    assert torch.equal(changed[kept], batch["image"][kept])
    assert not torch.equal(changed, batch["image"])
    # What the source has elsewhere is not given.
    elsewhere = ~cue.locate(sources)[:, None]
    other = {**sources, "image": torch.where(elsewhere, sources["image"].flip(3), sources["image"])}
    limits = [sources["image"].amin((2, 3)), sources["image"].amax((2, 3))]
    same_limits = [other["image"].amin((2, 3)), other["image"].amax((2, 3))]
    if all(torch.equal(*pair) for pair in zip(limits, same_limits, strict=True)):
        torch.testing.assert_close(cue.exchange(batch, other)["image"], changed)


@pytest.mark.parametrize("look", LOOKS)
def test_values_stay_between_those_of_both_images(look):
    batch, sources = {"image": images(0)}, {"image": images(1)}
    changed = look.of("image", "unreviewed").exchange(batch, sources)["image"]
    both = torch.stack([batch["image"], sources["image"]])
    assert (changed <= both.amax((0, 3, 4))[..., None, None]).all()
    assert (changed >= both.amin((0, 3, 4))[..., None, None]).all()


@pytest.mark.parametrize("look", LOOKS)
def test_a_batch_is_changed_as_its_samples_are_and_dtypes_stay(look):
    own, sources = images(0).float(), images(1).float()
    cue = look.of("image", "unreviewed")
    together = cue.exchange({"image": own}, {"image": sources})["image"]
    for row in range(len(own)):
        alone = cue.exchange({"image": own[row : row + 1]}, {"image": sources[row : row + 1]})["image"]
        torch.testing.assert_close(alone[0], together[row], atol=1e-5, rtol=1e-5)
    half = cue.exchange({"image": own.bfloat16()}, {"image": sources.bfloat16()})["image"]
    assert half.dtype is torch.bfloat16
    torch.testing.assert_close(half.float(), together, atol=0.1, rtol=0.05)


@pytest.mark.parametrize("look", LOOKS)
def test_guidance_can_learn_through_it(look):
    own, sources = images(0, (8, 8))[:1], images(1, (8, 8))[:1]

    def changed(x):
        return transplanted(look, x, sources)

    assert torch.autograd.gradcheck(changed, own.requires_grad_(), atol=1e-6)
