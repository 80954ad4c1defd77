"""How far a mark reaches, found from the data."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lrptrain.batch import Sample
from lrptrain.findings.extent import MOST_OF_THE_IMAGE, PlantedPatches, reached_box, reached_patches
from lrptrain.cues.boxes import Box

GRID = (6, 6)
SIDE = 24
LETTERS = torch.from_numpy(np.random.default_rng(3).random((6, 18)) < 0.5).float()
"""What is written: six letters of 3 x 6 pixels."""


def photographs(count=40, seed=0):
    """Smooth noise of all colours, in -1..1 or so."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(count, 3, SIDE // 4 + 1, SIDE // 4 + 1, generator=generator)
    return F.interpolate(coarse, (SIDE, SIDE), mode="bilinear") + 0.1 * torch.randn(
        count, 3, SIDE, SIDE, generator=generator
    )


def samples(images, labels):
    return [
        Sample(i, int(label), {"image": image}) for i, (image, label) in enumerate(zip(images, labels, strict=True))
    ]


LABELS = np.arange(40) % 2
WORD = tuple(range(24, 29))
"""The patches of the fifth row that letters of 18 pixels, from the second column of pixels on, touch."""


def written(images, opacity):
    """The letters in white over the images of class 1, at one place."""
    alpha = opacity * LETTERS * torch.from_numpy(LABELS)[:, None, None, None]
    place = images[:, :, 16:22, 1:19]
    images[:, :, 16:22, 1:19] = place + alpha * (2.0 - place)
    return images


def reached_from(positions, given):
    return reached_patches(positions, PlantedPatches(given, GRID, LABELS))


@pytest.mark.parametrize("opacity", [1.0, 0.5])
def test_a_word_at_a_fixed_place_is_reached_from_any_letter(opacity):
    given = samples(written(photographs(), opacity), LABELS)
    for start in (24, 26):
        found = reached_from((start,), given)
        assert set(WORD) <= set(found)
        # Letters are 6 pixels high and begin with the fifth row of patches: they reach into the sixth, and no further.
        assert set(found) <= {*WORD, *range(30, 35)}


def test_photographs_and_marks_of_all_classes_go_no_further():
    assert reached_from((24,), samples(photographs(), LABELS)) == (24,)
    everywhere = photographs()
    everywhere[:, :, 16:22, 1:19] = LETTERS
    assert reached_from((24,), samples(everywhere, LABELS)) == (24,)


def test_what_would_be_most_of_the_image_is_left_as_it_was():
    tinted = photographs() + 2.0 * torch.from_numpy(LABELS)[:, None, None, None]
    assert reached_from((0, 3), samples(tinted, LABELS)) == (0, 3)


def test_images_of_several_sizes_are_left_as_they_were():
    images = [*written(photographs(), 1.0)[:-1], torch.zeros(3, 12, 12)]
    assert reached_from((24,), samples(images, LABELS)) == (24,)


def scattered(kind="word"):
    """The word at a place of its own in every image of class 1, and where; in black images, or with a black ground."""
    images = photographs() if kind == "word" else torch.zeros(40, 3, SIDE, SIDE)
    rng = np.random.default_rng(1)
    places = np.stack([rng.integers(0, SIDE - 6, 40), rng.integers(0, SIDE - 18, 40)], 1)
    for i in np.flatnonzero(LABELS):
        top, left = places[i]
        images[i, :, top : top + 6, left : left + 18] = 2 * LETTERS
    return images, places


def box_of(images, places, source=1):
    members = np.flatnonzero(LABELS)
    top, left = places[source]
    # A piece of 3 x 3 at the word's third row and seventh column.
    piece = Box(int(top) + 2, int(left) + 6, int(top) + 5, int(left) + 9)
    corners = places[members] + [2, 6]
    found = reached_box(images, source, piece, members, corners, np.flatnonzero(LABELS == 0), 0.15, 0.5)
    return Box(*(np.array(found) - np.tile(places[source], 2)).tolist())


def test_a_word_anywhere_is_reached_from_a_piece_of_it():
    images, places = scattered()
    assert box_of(images, places) == Box(0, 0, 6, 18)


def test_a_black_ground_that_all_share_is_no_part_of_a_mark():
    images, places = scattered("black")
    found = box_of(images, places)
    # A piece holds three pixels: those that still hold an end of the word differ from a black ground.
    assert min(found.top, found.left) >= -2
    assert found.bottom <= 8
    assert found.right <= 20
    assert found.right - found.left >= 18


def test_a_piece_whose_surroundings_differ_stays_a_piece():
    images, places = scattered()
    for i in np.flatnonzero(LABELS):
        top, left = places[i]
        kept = images[i, :, top + 2 : top + 5, left + 6 : left + 9].clone()
        images[i] = photographs(1, seed=100 + int(i))[0]
        images[i, :, top + 2 : top + 5, left + 6 : left + 9] = kept
    assert box_of(images, places) == Box(2, 6, 5, 9)


def test_the_same_image_again_is_no_mark():
    images, places = scattered()
    images[LABELS == 1] = images[1].clone()
    places[:] = places[1]
    assert MOST_OF_THE_IMAGE < 1
    assert box_of(images, places) == Box(2, 6, 5, 9)
