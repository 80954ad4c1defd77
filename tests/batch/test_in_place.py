"""Images that a step recolours, resizes, mirrors, and changes of which nobody knows whether they move anything."""

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_sample_images

from lrptrain.batch.in_place import in_place, turned


@pytest.fixture(scope="module")
def photos():
    """14 windows of two photographs, 64 pixels wide."""
    windows = [
        torch.tensor(photo[y : y + 200, x : x + 200]).permute(2, 0, 1)
        for photo in load_sample_images().images
        for y in range(0, photo.shape[0] - 200, 140)
        for x in range(0, photo.shape[1] - 200, 140)
    ]
    return F.interpolate(torch.stack(windows).float() / 255, (64, 64), mode="bilinear", antialias=True)


RECOLOURED = {
    "the same": lambda x: x,
    "normalised": lambda x: (x - torch.tensor([0.4, 0.5, 0.6])[:, None, None]) / 0.2,
    "inverted": lambda x: 1 - x,
    "each brighter by its own": lambda x: x * torch.linspace(0.5, 2, len(x))[:, None, None, None] + 0.1,
    "less saturated": lambda x: 0.6 * x + 0.4 * x.mean(1, keepdim=True),
    "grey": lambda x: x.mean(1, keepdim=True).expand_as(x),
    "grey, in one channel": lambda x: x.mean(1, keepdim=True),
    "blue first": lambda x: x.flip(1),
    "half precision": lambda x: x.bfloat16(),
    "bytes": lambda x: (255 * x).round().byte(),
    "smaller": lambda x: F.interpolate(x, (32, 48), mode="bilinear", antialias=True),
    "larger, normalised": lambda x: (F.interpolate(x, (96, 96), mode="bicubic") - 0.5) / 0.2,
    "larger, by repetition": lambda x: F.interpolate(x, (128, 128), mode="nearest"),
}


@pytest.mark.parametrize("change", RECOLOURED.values(), ids=RECOLOURED)
def test_other_colours_and_sizes_are_in_place(change, photos):
    assert in_place(change(photos), photos).all()
    assert not turned(change(photos), photos).any()


TURNED = {
    "mirrored": lambda x: x.flip(-1),
    "upside down, normalised": lambda x: (x.flip(-2) - 0.5) / 0.2,
    "half a turn, grey": lambda x: x.rot90(2, (2, 3)).mean(1, keepdim=True),
    "a quarter turn": lambda x: x.rot90(1, (2, 3)),
    "three quarters, half precision": lambda x: x.rot90(3, (2, 3)).bfloat16(),
    "transposed": lambda x: x.mT,
    "the other diagonal": lambda x: x.rot90(1, (2, 3)).flip(-1),
}


@pytest.mark.parametrize("change", TURNED.values(), ids=TURNED)
def test_mirrored_and_turned_images_are_known(change, photos):
    assert not in_place(change(photos), photos).any()
    assert turned(change(photos), photos).all()
    half = torch.cat([photos[::2], photos[1::2]])
    assert turned(change(half)[: len(half) // 2], half[: len(half) // 2]).all()


def test_which_images_are_mirrored_is_known(photos):
    seen = photos.clone()
    seen[3] = seen[3].flip(-1)
    assert in_place(seen, photos).tolist() == [row != 3 for row in range(len(photos))]
    assert turned(seen, photos).tolist() == [row == 3 for row in range(len(photos))]


UNKNOWN = {
    "noise": lambda x: x + 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0)),
    "solarised": lambda x: torch.where(x > 0.5, 1 - x, x),
    "mixed with another": lambda x: 0.8 * x + 0.2 * x.roll(5, 0),
    "blurred": lambda x: F.avg_pool2d(x, 5, 1, 2),
    "a third erased": lambda x: x * (torch.arange(64) > 20),
    "shifted by a pixel": lambda x: x.roll(1, -1),
    "cropped": lambda x: F.interpolate(x[..., 4:60, 4:60], (64, 64), mode="bilinear"),
    "a window": lambda x: x[..., 8:56, 8:56],
    "others": lambda x: x.roll(1, 0),
}


@pytest.mark.parametrize("change", UNKNOWN.values(), ids=UNKNOWN)
def test_of_other_changes_nothing_is_known(change, photos):
    assert not in_place(change(photos), photos).any()
    assert not turned(change(photos), photos).any()


def test_rows_are_compared_row_by_row():
    """Of more rows than numbers, some mixture of rows gives anything."""
    rows = torch.rand(2, 9, 4, generator=torch.Generator().manual_seed(0))
    assert in_place(3 * rows + 1, rows).all()
    assert not in_place(rows.flip(1), rows).any()
    assert not in_place(rows[:, :5], rows).any()


@pytest.mark.parametrize("level", [0.9, 100.0])
def test_what_hardly_shows_is_still_known(level):
    """A small patch on a ground that is much brighter than it differs."""
    image = torch.full((4, 3, 64, 64), level)
    image[:, :, 10:16, 6:12] *= 0.9
    for noise in (0.0, 0.004 * level):
        given = noisy(image, noise)
        assert in_place((given - level) / 0.3, given).all()
        assert turned(given.flip(-1), given).all()
        assert not in_place(given.roll(20, -1), given).any()


def noisy(image, size):
    return image + size * torch.randn(image.shape, generator=torch.Generator().manual_seed(0))


def test_flat_images_are_in_place_whatever_is_done_to_them():
    flat = torch.full((2, 3, 8, 8), 0.3)
    assert in_place(flat.flip(-1) * 2, flat).all()
