"""Images that the model sees elsewhere than the batch holds them, and changes that are no movement."""

import math

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_sample_images

from lrptrain.guidance.moved_images import MOVED_SHARE
from lrptrain.guidance.places import displaced_samples, moved_samples


@pytest.fixture(scope="module")
def photos():
    """28 windows of each of two photographs, 64 pixels wide."""
    windows = [
        torch.tensor(photo[y : y + 200, x : x + 200]).permute(2, 0, 1)
        for photo in load_sample_images().images
        for y in range(0, photo.shape[0] - 200, 70)
        for x in range(0, photo.shape[1] - 200, 70)
    ]
    return F.interpolate(torch.stack(windows).float() / 255, (64, 64), mode="bilinear", antialias=True)


def noisy(x, size):
    return x + size * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))


IN_PLACE = {
    "the same": lambda x: x,
    "normalised": lambda x: (x - 0.5) / 0.2,
    "inverted": lambda x: 1 - x,
    "noise": lambda x: noisy(x, 0.25),
    "more noise than image": lambda x: noisy(x, 1.0),
    "solarised": lambda x: torch.where(x > 0.5, 1 - x, x),
    "mixed with another": lambda x: 0.6 * x + 0.4 * x.roll(30, 0),
    "blurred": lambda x: F.avg_pool2d(x, 5, 1, 2),
    "grey": lambda x: x.mean(1, keepdim=True).expand_as(x),
    "a third erased": lambda x: x * (torch.arange(64) > 20),
    "half precision": lambda x: x.bfloat16(),
}


@pytest.mark.parametrize("change", IN_PLACE.values(), ids=IN_PLACE)
def test_photographs_in_place_are_not_moved(change, photos):
    moved, telling = moved_samples(change(photos), photos)
    assert telling.all()
    assert not moved.any()


MOVED = {  # and the least share of these photographs that shows it
    "flipped": (lambda x: x.flip(-1), 0.95),
    "upside down, normalised": (lambda x: (x.flip(-2) - 0.5) / 0.2, 0.95),
    "half a turn": (lambda x: x.rot90(2, (2, 3)), 0.95),
    "a quarter turn": (lambda x: x.rot90(1, (2, 3)), 0.95),
    "three quarters": (lambda x: x.rot90(3, (2, 3)), 0.95),
    "a crop after padding": (lambda x: F.pad(x, (4, 4, 4, 4))[..., :64, 5:69], 0.5),
    "every other one flipped": (lambda x: torch.stack([x[::2].flip(-1), x[1::2]], 1).flatten(0, 1), 0.45),
}


@pytest.mark.parametrize(("change", "share"), MOVED.values(), ids=MOVED)
def test_moved_photographs_are_noticed(change, share, photos):
    moved, _ = moved_samples(change(photos), photos)
    assert moved.float().mean() >= share


def test_images_without_contrast_cannot_tell():
    image = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    image[0] = 0.3
    moved, telling = moved_samples(noisy(image, 0.05), image)
    assert moved.tolist() == [False] * 3
    assert telling.tolist() == [False, True, True]
    moved, _ = moved_samples(noisy(0.5 + 0.03 * (image - 0.5), 0.05), 0.5 + 0.03 * (image - 0.5))
    assert not moved.any()


@pytest.fixture(scope="module")
def few(photos):
    return photos[::7]


@pytest.mark.parametrize("name", ["inverted", "more noise than image", "solarised", "blurred", "a third erased"])
def test_photographs_in_place_are_not_displaced(name, few):
    change = IN_PLACE[name]
    displaced, unmatched = displaced_samples(change(few), few)
    assert not displaced.any()
    assert not unmatched.float().mean() > 0.5


def test_noise_and_patterns_are_not_displaced():
    """A pattern looks the same in many places, and noise nowhere: neither tells of a movement."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(8, 3, 64, 64, generator=generator)
    stripes = torch.stack([(torch.arange(64) // width % 2).float().expand(3, 64, 64) for width in range(3, 11)])
    for images in (noise, stripes):
        for seen in (noisy(images, 0.3), noise.flip(0)):
            assert not displaced_samples(seen[:4], images[:4])[0].any()


@pytest.fixture(scope="module")
def squares():
    """A bright square on a plain ground, as in made-up data."""
    generator = torch.Generator().manual_seed(3)
    images = 0.1 * torch.rand(8, 3, 64, 64, generator=generator)
    for each, (top, left) in zip(images, torch.randint(0, 48, (8, 2), generator=generator).tolist(), strict=True):
        each[:, top : top + 16, left : left + 16] += 0.5 + 0.4 * torch.rand(3, 1, 1, generator=generator)
    return images


@pytest.mark.parametrize(
    ("name", "side"),
    [("normalised", 32), ("inverted", 64), ("noise", 64), ("mixed with another", 32), ("blurred", 64), ("grey", 32)],
)
def test_shapes_on_a_plain_ground_are_not_displaced(name, side, squares):
    """A corner of a square looks like one of a square of another size: the image seems to move by itself."""
    images = F.interpolate(squares, (side, side), mode="bilinear", antialias=True)
    displaced, _ = displaced_samples(IN_PLACE[name](images), images)
    assert not displaced.any()


OTHER_SHAPES = {
    "enlarged": lambda x: F.interpolate(x, (96, 96), mode="bilinear"),
    "enlarged, normalised": lambda x: (F.interpolate(x, (80, 96)) - 0.4) / 0.2,
    "made smaller": lambda x: F.interpolate(x, (48, 48), mode="bilinear", antialias=True),
    "grey": lambda x: x.mean(1, keepdim=True),
    "a further channel": lambda x: torch.cat([x, torch.ones_like(x[:, :1])], 1),
}


@pytest.mark.parametrize("change", OTHER_SHAPES.values(), ids=OTHER_SHAPES)
def test_the_whole_image_in_another_shape_is_in_place(change, photos):
    moved, _ = moved_samples(change(photos), photos)
    assert moved.float().mean() < MOVED_SHARE


def test_a_grey_image_repeated_is_in_place(photos):
    moved, _ = moved_samples(photos, photos.mean(1, keepdim=True))
    assert not moved.any()


CUT = {
    "cut out": lambda x: x[..., 8:, :56],
    "the middle of it, enlarged": lambda x: F.interpolate(x, (73, 73), mode="bilinear")[..., 4:-5, 4:-5][..., :63],
    "flipped, grey": lambda x: x.mean(1, keepdim=True).flip(-1),
    "flipped, enlarged": lambda x: F.interpolate(x, (96, 96), mode="bilinear").flip(-1),
    "padded": lambda x: F.pad(x, (8, 8, 8, 8)),
}


@pytest.mark.parametrize("change", CUT.values(), ids=CUT)
def test_a_part_of_the_image_in_another_shape_is_moved(change, photos):
    moved, _ = moved_samples(change(photos), photos)
    assert moved.float().mean() >= MOVED_SHARE


def crop(images, share, top, left):
    """Windows of a share of the area, enlarged to the whole image."""
    side = round(64 * math.sqrt(share))
    down = round(top * (64 - side))
    right = round(left * (64 - side))
    window = images[..., down : down + side, right : right + side]
    return F.interpolate(window, (64, 64), mode="bilinear")


def turned(images, degrees):
    turn = math.radians(degrees)
    matrix = torch.tensor([[math.cos(turn), -math.sin(turn), 0], [math.sin(turn), math.cos(turn), 0]])
    grid = F.affine_grid(matrix.expand(len(images), 2, 3), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)


DISPLACED = {
    "three quarters of the area": lambda x: crop(x, 0.75, 0.2, 0.9),
    "half of the area": lambda x: crop(x, 0.5, 0.0, 0.3),
    "half of the area, inverted": lambda x: 1 - crop(x, 0.5, 0.0, 0.3),
    "a fifth of the area": lambda x: crop(x, 0.2, 0.5, 0.2),
    "half of the area, of another size": lambda x: F.interpolate(crop(x, 0.5, 0.3, 1.0), (48, 80)),
    "turned to the left": lambda x: turned(x, 12),
    "turned to the right, normalised": lambda x: (turned(x, -15) - 0.4) / 0.2,
    "shifted": lambda x: F.pad(x, (9, 0, 0, 7), value=0.5)[..., 7:, :64],
}


@pytest.mark.parametrize("change", DISPLACED.values(), ids=DISPLACED)
def test_displaced_photographs_are_noticed(change, few):
    displaced, _ = displaced_samples(change(few), few)
    assert displaced.float().mean() >= MOVED_SHARE


def test_other_images_are_not_found(few):
    displaced, unmatched = displaced_samples(few.flip(0), few)  # of the other photograph
    assert not displaced.any()
    assert unmatched.float().mean() >= 0.5


def test_a_resized_image_is_in_place(few):
    displaced, unmatched = displaced_samples(F.interpolate(few, (80, 48)), few)
    assert not displaced.any()
    assert not unmatched.any()


def test_small_images_cannot_tell(few):
    for both in displaced_samples(crop(few, 0.5, 0.2, 0.2)[..., :16, :16], few):
        assert not both.any()
