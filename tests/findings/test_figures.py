"""Figures on a plain ground: which pixels they have, which marks are pieces of them, and where they reach."""

import numpy as np
import pytest
import torch

from lrptrain.findings.figures import (
    PlainGround,
    belongs_to_objects,
    goes_on_beyond,
    objects_reach_the_edges,
    plain_ground,
)
from lrptrain.cues.boxes import Box
from tests.findings.drawings import drawings


def ground_of(images) -> PlainGround:
    plain = plain_ground([*images])
    assert plain is not None
    return plain


@pytest.mark.parametrize("scale", [1.0, 255.0])
@pytest.mark.parametrize("colour", [(0.0, 0.0, 0.0), (0.9, 0.8, 1.0)])
def test_the_ground_is_the_commonest_colour_and_the_figure_all_else(colour, scale):
    white, _ = drawings(16)
    ground = torch.tensor(colour)[:, None, None]
    images = scale * (ground + white * (torch.tensor([0.2, 0.4, 0.3])[:, None, None] - ground))
    plain = ground_of(images)
    assert torch.allclose(plain.ground, scale * torch.tensor(colour), atol=scale * 1e-6)
    # Of the edges of figures, a pixel counts if any channel differs by more than a fiftieth of the range.
    span = (images.max() - images.min()) / 50
    expected = ((images - scale * ground).abs() > span).any(1)
    assert (plain.figure == expected.numpy()).all()


def test_each_image_has_a_ground_of_its_own():
    white, labels = drawings(16)
    shade = torch.from_numpy(labels).float()[:, None, None, None] / 10
    plain = ground_of(shade + white)
    assert torch.allclose(plain.ground[:, 0], torch.from_numpy(labels).float() / 10, atol=1e-6)


def test_photographs_have_no_plain_ground_nor_have_images_of_one_colour_or_of_several_sizes():
    noise = torch.rand(16, 3, 24, 24, generator=torch.Generator().manual_seed(0))
    assert plain_ground([*noise]) is None
    assert plain_ground([*torch.ones(4, 3, 8, 8)]) is None
    assert plain_ground([*torch.full((4, 3, 8, 8), float("nan"))]) is None
    assert plain_ground([torch.zeros(3, 8, 8), torch.zeros(3, 8, 9)]) is None
    assert plain_ground([]) is None


def test_a_few_pixels_far_brighter_than_all_others_make_no_ground():
    """As metal in a scan: by the range of all pixels, all else would be of one colour."""
    noise = torch.rand(16, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    noise[:, :, 3, 3] = 100.0
    assert plain_ground([*noise]) is None


def test_thin_strokes_are_figures_though_all_of_them_are_rare():
    images = torch.zeros(16, 1, 64, 64)
    images[:, :, 30, 20:30] = 1  # 10 of 4096 pixels
    assert ground_of(images).figure.sum() == 160


def test_most_images_have_to_have_one():
    noise = torch.rand(16, 3, 28, 28, generator=torch.Generator().manual_seed(0))
    white, _ = drawings(16)
    assert plain_ground([*white, *noise[:4]]) is not None
    assert plain_ground([*white[:4], *noise]) is None


@pytest.mark.parametrize("channels", [1, 13])
def test_any_number_of_channels_is_taken(channels):
    white, _ = drawings(16)
    images = white[:, :1].repeat(1, channels, 1, 1)
    assert (ground_of(images).figure == ground_of(white).figure).all()


def test_a_piece_of_a_stroke_goes_on_and_a_dot_beside_it_does_not():
    figure = np.zeros((20, 20), bool)
    figure[2:18, 4:7] = True  # a stroke
    figure[8:12, 14:18] = True  # a dot
    assert goes_on_beyond(figure, Box(6, 2, 12, 9))
    assert not goes_on_beyond(figure, Box(7, 13, 13, 19))
    assert not goes_on_beyond(figure, Box(1, 3, 19, 8))  # all of the stroke
    assert not goes_on_beyond(figure, Box(0, 10, 4, 13))  # nothing but the ground
    # Of two figures in a box, the larger part counts.
    assert not goes_on_beyond(figure, Box(7, 6, 13, 19))


def test_pixels_that_touch_at_a_corner_are_one_figure():
    assert goes_on_beyond(np.eye(20, dtype=bool), Box(8, 8, 12, 12))


def reaching(share, frame=False):
    """Figures of which a share is as wide as the image, the others narrow, and maybe a frame; ten images."""
    images = torch.zeros(10, 1, 24, 24)
    images[:, :, 9:15, 9:15] = 1
    images[: round(10 * share), :, 6:18] = 1
    if frame:
        images[:, :, :2] = images[:, :, -2:] = 1
    return objects_reach_the_edges(ground_of(images))


def test_wide_objects_reach_the_edges_and_a_frame_does_not():
    assert reaching(1.0)
    assert not reaching(0.0)
    assert not reaching(0.0, frame=True)
    # A frame covers 96 of the 252 pixels along the edges, a wide object 72.
    assert not reaching(0.5, frame=True)


def test_objects_that_seldom_reach_the_edges_do_not():
    # Three pixels of 24 lie along each edge, 252 in all: a wide object has 72 of them, of ten images all have 2520.
    assert reaching(0.2)  # 144 of 2520: 0.057
    assert not reaching(0.1)


def test_a_place_belongs_to_objects_if_most_of_what_it_holds_does():
    white, _ = drawings(16)
    white[:, :, 1:4, 1:4] = 1
    plain = ground_of(white)
    place = np.zeros((28, 28), bool)
    place[:4, :4] = True
    assert not belongs_to_objects(plain, place)
    place[10:18, 10:18] = True
    assert belongs_to_objects(plain, place)
    assert not belongs_to_objects(plain, np.zeros((28, 28), bool))  # where nothing is, no object is
