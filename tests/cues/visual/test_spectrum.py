"""The energy of frequencies is the source's afterwards, and phases stay."""

import pytest
import torch

from lrptrain.cues.visual.spectrum import Spectrum
from tests.cues.looked_at import SIZES, images, transplanted


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
