"""Where images show small pictures: a few points of each place are compared first, and all where those agree."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

POINTS = 5
"""A picture is compared at so many points a side, without its corners, in which a round dot has none. Doubled, the
cause is first in as many models, and inspection takes a third longer (`python -m experiments.benchmark.moved`)."""
TOLERANCE = 0.15
"""Two pictures are the same if they differ by so many standard deviations of the pixels (root mean square): noise and
compression that nobody sees. Doubled, the cause is first in 3 instead of 4 of 5 models; halved, in as many
(`python -m experiments.benchmark.moved`)."""
PLACES = 8
"""A picture is looked for at every so manyth part of its side, an eighth: a choice, for time. Pictures of fewer than 16
pixels a side are looked for at every pixel."""
IN_CACHE = 2**18
"""So many points of images are compared with one picture at a time, so that they stay in a processor's cache."""
CORNERLESS = [i for i in range(POINTS**2) if i not in (0, POINTS - 1, POINTS**2 - POINTS, POINTS**2 - 1)]
"""The points of a picture among those of its square, row by row."""
FIRST = [CORNERLESS.index(i) for i in (2, 10, 12, 14, 22)]
"""The points that are compared first: the middle of the picture, and of its edges. A choice, for time: what is found
is the same."""
FEW = 32
"""Where at most one pair in so many agrees there, these are compared at all points one by one; else all pairs are, as a
product of matrices. A choice, for time: what is found is the same, as the test shows of 0 and of all."""

Pictures = Float[Tensor, "n channels points"]


def stride_of(side: int) -> int:
    """Return how many pixels lie between two places where a picture is looked for."""
    return max(1, side // PLACES)


def sampled(
    images: Float[Tensor, "*batch channels height width"], side: int
) -> Float[Tensor, "*batch channels points y x"]:
    """Return the points of the pictures at every place, each the mean of the pixels about it."""
    return _at_points(_means(images, side), side, range(len(CORNERLESS)))


def shown(
    images: Float[Tensor, "batch channels height width"], pictures: Pictures, side: int
) -> tuple[Int[Tensor, " hits"], ...]:
    """Return where images show pictures: the numbers of the image, of the picture, and of the place down and across.

    Args:
        images: In the standard deviations of their channels.
        pictures: As `sampled` gives them.
        side: Of the pictures, in pixels.
    """
    size = max(1, IN_CACHE // max(1, images[:1].numel() * len(FIRST)))
    parts = [_shown(_means(part, side), pictures, side) for part in images.split(size)]
    for number, part in enumerate(parts):
        part[0].add_(number * size)
    return tuple(torch.cat(each) for each in zip(*parts, strict=True))


def _shown(means: Tensor, pictures: Pictures, side: int) -> tuple[Int[Tensor, " hits"], ...]:
    limit = TOLERANCE**2 * pictures[:1].numel()
    # Rounding must not lose a pair: what agrees at all points agrees at a few, and a little beyond the limit.
    near = _distances(pictures[:, :, FIRST], _at_points(means, side, FIRST)) <= 1.01 * limit
    pairs = near.nonzero()
    if len(pairs) * FEW > near.numel():
        alike = _distances(pictures, _at_points(means, side, range(len(CORNERLESS)))) <= limit
        return (near & alike).nonzero(as_tuple=True)
    image, number, y, x = pairs.T
    difference = _at_places(means, side, image, y, x) - pictures[number]
    return tuple(pairs[difference.flatten(1).square().sum(1) <= limit].T)


def counted(
    images: Float[Tensor, "batch channels height width"],
    pictures: Pictures,
    side: int,
    within: Bool[Tensor, "batch y x"] | None = None,
) -> Int[Tensor, "n batch"]:
    """Return at how many places images show each picture: anywhere, or of those that are few."""
    if within is None:
        image, number, _, _ = shown(images, pictures, side)
        size = len(pictures) * len(images)
        return torch.bincount(number * len(images) + image, minlength=size).view(len(pictures), len(images))
    limit, counts = TOLERANCE**2 * pictures[:1].numel(), []
    for image, allowed in zip(images, within.to(images.device), strict=True):
        y, x = allowed.nonzero(as_tuple=True)
        places = _at_places(_means(image[None], side), side, torch.zeros_like(y), y, x)
        counts.append((_distances(pictures, places.movedim(0, -1)[..., None]) <= limit).flatten(1).sum(1))
    return torch.stack(counts, 1)


def _means(images: Tensor, side: int) -> Tensor:
    """The means of the pixels about each."""
    return F.avg_pool2d(images, max(1, side // POINTS), 1)


def _offsets(side: int) -> list[tuple[int, int]]:
    """Where the points of a picture begin, down and across."""
    along = [round(i * (side - max(1, side // POINTS)) / (POINTS - 1)) for i in range(POINTS)]
    return [(along[i // POINTS], along[i % POINTS]) for i in CORNERLESS]


def _at_points(means: Tensor, side: int, points: list[int] | range) -> Float[Tensor, "*batch channels points y x"]:
    offsets, stride = _offsets(side), stride_of(side)
    last = max(down for down, _ in offsets)
    rows, columns = means.shape[-2] - last, means.shape[-1] - last
    chosen = [offsets[i] for i in points]
    return torch.stack([means[..., y : y + rows : stride, x : x + columns : stride] for y, x in chosen], -3)


def _at_places(
    means: Tensor, side: int, image: Int[Tensor, " places"], y: Int[Tensor, " places"], x: Int[Tensor, " places"]
) -> Float[Tensor, "places channels points"]:
    """The points at some places of some images."""
    down, across = torch.tensor(_offsets(side), device=means.device).T
    stride = stride_of(side)
    return means.movedim(1, -1)[image[:, None], stride * y[:, None] + down, stride * x[:, None] + across].mT


def _distances(pictures: Pictures, places: Float[Tensor, "*part channels points y x"]) -> Float[Tensor, "*part n y x"]:
    """The squares of differences, as one product of matrices."""
    flat, every = pictures.flatten(1), places.flatten(-4, -3).flatten(-2)
    squares = every.square().sum(-2, keepdim=True) - 2 * (flat @ every) + flat.square().sum(1)[:, None]
    return squares.unflatten(-1, places.shape[-2:])


def covered(
    images: Float[Tensor, "batch channels height width"], pictures: Pictures, side: int
) -> Bool[Tensor, "batch height width"]:
    """Return the pixels of the pictures that images show, with half of their side around each."""
    size, stride = (images.shape[2], images.shape[3]), stride_of(side)
    image, _, y, x = shown(images, pictures, side)
    begins = torch.zeros(len(images), *((length - side) // stride + 1 for length in size), device=images.device)
    begins[image, y, x] = 1
    return _spread_out(begins.bool(), side, size)


def _spread_out(
    begins: Bool[Tensor, "batch y x"], side: int, size: tuple[int, int]
) -> Bool[Tensor, "batch height width"]:
    """The pixels of pictures that begin at some places, with half of their side around each."""
    counts = begins.int()
    for axis, length in enumerate(size, start=1):
        # Of each pixel, how many pictures begin up to the last that covers it, and before the first.
        stride, around = stride_of(side), side // 2
        pixels = torch.arange(length, device=begins.device)
        before = F.pad(counts.cumsum(axis), (1, 0) if axis == 2 else (0, 0, 1, 0))
        last = ((pixels + around) // stride + 1).clamp(max=begins.shape[axis])
        first = (-((side + around - 1 - pixels) // stride)).clamp(min=0, max=begins.shape[axis])
        counts = (before.index_select(axis, last) > before.index_select(axis, first)).int()
    return counts.bool()
