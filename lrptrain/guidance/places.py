"""Does the model see the images of a batch where the batch holds them? Their annotations do not move with them."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

# What the model got, compared with the batch's image in other places; measured on photographs of 32 and 64 pixels, of
# which none was taken for moved after noise, other colours, solarisation, blur or a mixture with another image.
TURNED_CORRELATION = 0.9
"""A flip or turn of the image correlates more than this with what the model got, if it is what the model got."""
SHIFTED_CORRELATION = 0.5
"""The same of a shift, of which what left the image on one side has no counterpart."""
RESIZED_CORRELATION = 0.9
"""What the model got in another size is the whole image if it correlates at least so with the resized one."""
CLEARLY = 0.05
"""A correlation that is higher by this much is higher, not as high."""
SHARPER = 3.0
"""The peak of a shift in the phase correlation, over the highest value around no shift."""
# Patches of what the model got, looked up in the batch's image; measured on 48 photographs of pets, birds, textures and
# CIFAR-10 under each change.
SIDE = 64
"""The size at which images are compared, in pixels."""
PATCH = 11
"""The size of a patch, in pixels."""
GRID = 7
"""Patches along each side."""
VIEWS = ((1.0, 0), (0.75, 0), (1.25, 0), (1.55, 0), (1.9, 0), (2.4, 0), (3.0, 0), (1.0, 15), (1.0, -15))
"""The enlargements, and the turns in degrees, that are tried; what lies between is found by the next of them."""
CONTRAST = 0.25
"""A patch has texture whose standard deviation is at least this share of its image's."""
LIKE = 0.6
"""A patch is found where it correlates more than this with the image."""
DISTINCT = 0.1
"""And by so much less at every other place."""
DISPLACED = 2.5
"""Pixels, of `SIDE`, between where patches are and where they would be in place."""
AGREEING = 10
"""So many patches must tell the same movement, and 1.5 times as many as are in place."""
IN_PLACE = 30
"""From so many patches in place on, nothing else is looked for."""
UNMATCHED = 2
"""Up to so many patches in place, out of at least 20, nothing of the image is there."""


def displaced_samples(
    seen: Shaped[Tensor, "batch channels height width"], image: Shaped[Tensor, "batch channels rows columns"]
) -> tuple[Bool[Tensor, " batch"], Bool[Tensor, " batch"]]:
    """Return which images the model sees cropped and enlarged, shifted or turned a little, and which it does not see.

    Patches of what the model got are looked up in the batch's image by their normalised correlation, in either
    direction, which other colours, brightness and contrast leave as it is. A patch that looks the same in several
    places tells nothing. An image is displaced if many patches agree about a movement and few are in place: noise,
    blur, what is erased, and other images that are mixed in make patches unlike, but none of them agree.

    A cutting of less than a third of the sides, mirrored ones, and turns by more than 20 degrees are mostly not found.

    Args:
        seen: What the model was given.
        image: The images of the batch, of any size.

    Returns:
        Which samples are displaced, and of which next to nothing was found anywhere.
    """
    displaced = torch.zeros(len(image), dtype=torch.bool, device=image.device)
    unmatched = displaced.clone()
    if min(*seen.shape[-2:], *image.shape[-2:]) < SIDE // 2:
        return displaced, unmatched  # too few pixels for patches
    reference = _scaled(image, SIDE)
    views = _scaled(seen.to(image.device), None)
    in_place = _patches_in_place(_scaled(views, SIDE), reference)
    textured = _textured(_scaled(views, SIDE)).sum(-1)
    rows = torch.nonzero((in_place < IN_PLACE) & (textured >= AGREEING)).flatten()
    if not len(rows):
        return displaced, unmatched
    counts = _moving(views[rows], reference[rows])
    # Shapes on a plain ground are like themselves in several sizes and places: the image itself seems to move then.
    by_itself = _moving(reference[rows], reference[rows])
    few = in_place[rows]
    displaced[rows] = (counts >= AGREEING) & (counts >= 1.5 * few) & (by_itself < AGREEING / 2)
    unmatched[rows] = (counts < AGREEING) & (few <= UNMATCHED) & (textured[rows] >= 20)
    return displaced, unmatched


def _moving(
    views: Float[Tensor, "batch 1 rows columns"], reference: Float[Tensor, "batch 1 64 64"]
) -> Int[Tensor, " batch"]:
    """Return how many patches agree about the movement that most of them agree about."""
    return torch.stack([_agreeing(views, reference, zoom, angle) for zoom, angle in VIEWS]).amax(0)


def _scaled(images: Tensor, side: int | None) -> Float[Tensor, "batch 1 side side"]:
    """Return images as squares without colours; of None for a side, in the size that they have."""
    grey = images.detach().float().mean(1, keepdim=True)
    return grey if side is None else F.interpolate(grey, (side, side), mode="bilinear", antialias=True)


def _windows(images: Float[Tensor, "batch 1 side side"]) -> tuple[Tensor, Bool[Tensor, "batch windows"]]:
    """Return all patches of the images, centred and of length 1, and which of them have texture."""
    patches = F.unfold(images, PATCH).transpose(1, 2)
    patches = patches - patches.mean(-1, keepdim=True)
    norms = patches.norm(dim=-1)
    textured = norms > CONTRAST * PATCH * images.flatten(1).std(1, keepdim=True).clamp(min=1e-6)
    return patches / norms.clamp(min=1e-12)[..., None], textured


def _grid(side: int) -> tuple[Int[Tensor, " patches"], Int[Tensor, " patches"]]:
    """Return the rows and columns at which the chosen patches of an image begin."""
    last = side - PATCH
    at = torch.linspace(0, last, min(GRID, last + 1)).round().long().unique()
    rows, columns = torch.meshgrid(at, at, indexing="ij")
    return rows.flatten(), columns.flatten()


def _textured(images: Float[Tensor, "batch 1 side side"]) -> Bool[Tensor, "batch patches"]:
    rows, columns = _grid(images.shape[-1])
    return _windows(images)[1][:, rows * (images.shape[-1] - PATCH + 1) + columns]


def _correlations(
    views: Float[Tensor, "batch 1 side side"], reference: Float[Tensor, "batch 1 64 64"]
) -> tuple[Float[Tensor, "batch patches places"], Bool[Tensor, "batch patches"]]:
    """Return how like every chosen patch is to each place of the reference, 0..1, and which patches have texture."""
    rows, columns = _grid(views.shape[-1])
    chosen = rows * (views.shape[-1] - PATCH + 1) + columns
    patches, textured = _windows(views)
    places, telling = _windows(reference)
    alike = (patches[:, chosen] @ places.transpose(1, 2)).abs() * telling[:, None]
    return alike, textured[:, chosen]


def _patches_in_place(
    views: Float[Tensor, "batch 1 64 64"], reference: Float[Tensor, "batch 1 64 64"]
) -> Int[Tensor, " batch"]:
    """Return how many patches are as like to the reference in place as anywhere."""
    alike, textured = _correlations(views, reference)
    rows, columns = _grid(SIDE)
    places = (rows * (SIDE - PATCH + 1) + columns).to(alike.device)
    in_place = alike.gather(-1, places[None, :, None].expand(len(alike), -1, 1))[..., 0]
    return (textured & (in_place > alike.amax(-1) - DISTINCT) & (in_place > LIKE / 2)).sum(-1)


def _agreeing(
    views: Float[Tensor, "batch 1 rows columns"], reference: Float[Tensor, "batch 1 64 64"], zoom: float, angle: float
) -> Int[Tensor, " batch"]:
    """Return how many patches agree about a movement, if what the model got is an image enlarged and turned so."""
    side = round(SIDE / zoom)
    turn = math.radians(angle)
    matrix = torch.tensor([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]], device=views.device)
    turned = _scaled(views, side)
    if angle:
        matrices = F.pad(matrix, (0, 1)).expand(len(turned), 2, 3)
        grid = F.affine_grid(matrices, list(turned.shape), align_corners=False)
        turned = F.grid_sample(turned, grid, padding_mode="reflection", align_corners=False)
    alike, textured = _correlations(turned, reference)
    best, place = alike.max(-1)
    span = SIDE - PATCH + 1
    down = place // span
    right = place % span
    at = torch.arange(span * span, device=alike.device)
    near = ((at // span - down[..., None]).abs() <= 3) & ((at % span - right[..., None]).abs() <= 3)
    matched = textured & (best > LIKE) & (best - alike.masked_fill(near, 0).amax(-1) > DISTINCT)
    rows, columns = (x.to(alike.device) for x in _grid(side))
    # Two patches agree if the distance between them stayed nearly the same: a turn or a stretch changes it by a share.
    between = ((rows[:, None] - rows) ** 2 + (columns[:, None] - columns) ** 2).float().sqrt()
    moves = torch.stack([down - rows, right - columns], -1).float()
    agree = (torch.cdist(moves, moves) <= 1 + 0.2 * between) & matched[:, :, None] & matched[:, None]
    count, leader = agree.sum(-1).max(-1)
    members = agree[torch.arange(len(agree), device=agree.device), leader]
    # Where the middle of a patch is in what the model got, and where in the batch's image, both from -1 to 1.
    middle = PATCH / 2
    seen = torch.stack([columns + middle, rows + middle], -1) * 2 / side - 1
    held = torch.stack([right + middle, down + middle], -1) * 2 / SIDE - 1
    off = (held - seen @ matrix.T) * SIDE / 2
    distance = off.norm(dim=-1).masked_fill(~members, float("nan")).nanmedian(1).values
    return torch.where(distance > DISPLACED, count, 0)


def moved_samples(
    seen: Shaped[Tensor, "batch channels height width"], image: Shaped[Tensor, "batch planes rows columns"]
) -> tuple[Bool[Tensor, " batch"], Bool[Tensor, " batch"]]:
    """Return which images the model sees in another place than the batch holds them, and which of them can tell.

    An image is moved if a flip or a quarter turn of the batch's image, or a shift by whole pixels, is clearly more like
    what the model got than the image in place. A normalisation, other colours, noise or a mixture of images make it
    less alike in every place. Shifts by a single pixel are not noticed; of crops that are resized, see
    `displaced_samples`.

    Args:
        seen: What the model was given.
        image: What the batch holds, of any size and any number of channels.

    Returns:
        The moved images, and those with enough contrast to be compared at all.
    """
    image = image.to(seen.device)
    if seen.shape != image.shape:
        return _other_shape(seen, image)
    if torch.equal(seen, image.to(seen.dtype)):
        return torch.zeros(len(image), dtype=torch.bool, device=seen.device), _contrast(image).any(1)
    seen = seen.detach().float()
    image = image.detach().float()
    in_place = _correlation(seen, image)
    turns = [image.flip(-1), image.flip(-2), image.rot90(2, (2, 3))]
    if image.shape[2] == image.shape[3]:
        turns += [image.rot90(1, (2, 3)), image.rot90(3, (2, 3))]
    turned = torch.stack([_correlation(seen, turn) for turn in turns]).amax(0)
    # Symmetric images are as alike in both places, and noise lowers all correlations: neither passes both bounds.
    flipped = (turned > TURNED_CORRELATION) & (turned > in_place + CLEARLY)
    return flipped | _shifted(seen, image), (_contrast(seen) & _contrast(image)).any(1)


def _other_shape(seen: Tensor, image: Tensor) -> tuple[Bool[Tensor, " batch"], Bool[Tensor, " batch"]]:
    """Return the same of a model's input of another size or with other channels, such as grey ones repeated.

    Resized or not, it must show the whole image in place: any cutting or padding changes the size, too.
    """
    everywhere = torch.ones(len(image), dtype=torch.bool, device=seen.device)
    if seen.shape[2:] == image.shape[2:]:  # other channels alone: their mean stays where it is
        first, second = (images.detach().float().mean(1, keepdim=True) for images in (seen, image))
        return moved_samples(first, second)
    resized = F.interpolate(image.detach().float(), seen.shape[2:], mode="bilinear", antialias=True)
    in_place = _correlation(*(images.detach().float().mean(1, keepdim=True) for images in (seen, resized)))
    return in_place < RESIZED_CORRELATION, everywhere


def _correlation(first: Tensor, second: Tensor) -> Float[Tensor, " batch"]:
    """Return the median of the channels' correlations, in either direction; 0 where none has contrast."""
    products = (_centred(first) * _centred(second)).sum(-1).abs()
    norms = _centred(first).norm(dim=-1) * _centred(second).norm(dim=-1)
    # Of the channels with contrast the median: one may have been mixed away, as in greyscale.
    counted = _contrast(first) & _contrast(second)
    return torch.where(counted, products / norms, float("nan")).nanmedian(1).values.nan_to_num(0.0)


def _contrast(image: Tensor) -> Bool[Tensor, "batch channels"]:
    """Return which channels have some: a flat one's rounding errors, or what noise makes of it, say nothing."""
    magnitude = image.detach().float().flatten(1).norm(dim=1, keepdim=True)
    return _centred(image).norm(dim=-1) > 1e-3 * magnitude


def _shifted(seen: Tensor, image: Tensor) -> Bool[Tensor, " batch"]:
    """Return which images are shifted by whole pixels, as by a crop after padding.

    The phase correlation (Kuglin and Hines, 1975) proposes one shift: natural images are smooth, so that their plain
    correlation has a broad peak, but that of their phases is sharp. The plain correlation at this shift decides.
    """
    first, second = (
        _centred(values.mean(1, keepdim=True)).view(len(values), *values.shape[2:]) for values in (seen, image)
    )
    cross = torch.fft.fft2(first) * torch.fft.fft2(second).conj()
    size = cross.abs()
    # Frequencies that hardly occur have the phases of rounding errors; they weigh little.
    floor = (1e-3 * size.amax((1, 2), keepdim=True)).clamp(min=1e-20)
    phases = torch.fft.ifft2(cross / (size + floor)).real.abs()
    # What lies within one pixel of no shift comes first.
    phases = phases.roll((1, 1), (1, 2))
    near = phases[:, :3, :3].amax((1, 2))
    phases[:, :3, :3] = 0
    peak = phases.roll((-1, -1), (1, 2)).flatten(1).max(1)
    norms = first.flatten(1).norm(dim=1) * second.flatten(1).norm(dim=1)
    plain = torch.fft.ifft2(cross).real.abs().flatten(1) / norms.clamp(min=1e-20)[:, None]
    shifted = plain.gather(1, peak.indices[:, None])[:, 0]
    sharp = peak.values > SHARPER * near
    return sharp & (shifted > SHIFTED_CORRELATION) & (shifted > plain[:, 0] + CLEARLY)


def _centred(values: Tensor) -> Float[Tensor, "batch channels pixels"]:
    flat = values.detach().float().flatten(2)
    return flat - flat.mean(-1, keepdim=True)
