"""Pictures of videos, spectrograms and waveforms."""

import numpy as np
import torch

from lrptrain.render import spectrogram, video_frames, waveform
from lrptrain.render.colors import INK


def test_frames_stand_side_by_side_and_share_one_scale():
    video = torch.zeros(4, 3, 8, 16)
    heat = torch.zeros(2, 2, 4)
    heat[0, 0, 0] = 1.0
    heat[1, 1, 3] = 0.25
    picture = video_frames(video, heat)
    assert picture.shape == (80, 4 * 160 + 3 * 4, 3)
    strongest = [np.ptp(picture[:, i * 164 : i * 164 + 160].astype(int), axis=-1).max() for i in range(4)]
    assert strongest[0] == strongest[1] > strongest[2] == strongest[3] > 0


def test_frames_are_stretched_alike():
    video = torch.stack([torch.full((3, 8, 8), float(x)) for x in (0, 1, 2)])
    picture = video_frames(video, torch.zeros(3, 2, 2))
    assert [int(picture[0, i * 164, 0]) for i in range(3)] == [185, 220, 255]


def test_a_spectrogram_has_its_low_frequencies_at_the_bottom():
    values = torch.zeros(8, 16)
    values[0] = 1.0
    picture = spectrogram(values, torch.zeros(2, 4))
    assert picture.shape == (80, 160, 3)
    assert (picture[-1] == 255).all()
    assert (picture[0] == 185).all()  # the darkest grey
    heat = torch.zeros(2, 4)
    heat[1, 3] = 1.0
    colours = np.ptp(spectrogram(torch.zeros(8, 16), heat).astype(int), axis=-1)
    assert np.unravel_index(colours.argmax(), colours.shape) >= (0, 80)
    assert colours[:20, 120:].max() > colours[40:, :80].max()


def test_a_waveform_is_a_line_over_the_colours_of_its_tokens():
    heat = torch.tensor([0.0, 1.0, -1.0, 0.0])
    strip = waveform(torch.zeros(1000), heat)
    assert strip.shape == (96, 640, 3)
    assert (strip[0, :160] == 255).all()
    assert (strip[0, 160:320] != 255).any(-1).all()
    assert (strip[0, 320:480, 2] > strip[0, 320:480, 0]).all()
    assert (strip[0, 480:] == 255).all()
    assert (strip[47:49] == INK).all(-1).any(0).all()
    loud = waveform(torch.sin(torch.arange(1000.0)), heat)
    assert (loud == INK).all(-1).sum() > (strip == INK).all(-1).sum()
