"""A mark: a small picture that is the same wherever it lies, such as a dot, a tag or a sticker; or one an answer."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from lrptrain.batch import Sample, collate
from lrptrain.batch.call import samples_of
from lrptrain.cues.association import association, associations, distinct
from lrptrain.cues.cue import CANDIDATES, FEWEST, Batch, Role
from lrptrain.cues.images import Part, Where, image_of, pixels_of
from lrptrain.cues.pictures import CORNERLESS, TOLERANCE, counted, covered, sampled, stride_of
from lrptrain.cues.places import place_of

ON = {"image": "", "outside": " outside the annotation", "evidence": " on the annotated object"}
EACH = 8
"""So many images of an answer give pictures, fewer if there are more than `CANDIDATES` answers. First a picture is
looked for in a few others, at so many of their most relevant patches. Its name is of so many that show it. Halved, one
model in six has another first name, and the cause is first in as many; doubled, nothing changes
(`python -m experiments.benchmark.moved`)."""
MOST_COMPARED = 2**22
"""So many pairs of a picture and a place are compared per image at most, in a fiftieth of a second."""


@dataclass(frozen=True)
class Mark(Part):
    """Small pictures, wherever they lie.

    What a sample takes of its source is where either has a picture: it loses its own, and is given the source's.

    Attributes:
        where: In which part of images they count.
        pictures: Of each its side in pixels, and its points, `[channels, points]`, in the standard deviations of their
            channels.
        spread: These standard deviations.
        size: Height and width of the images that they were seen in.
    """

    kind: ClassVar[str] = "mark"
    is_proposed: ClassVar[bool] = True
    name: str
    role: Role
    where: Where
    pictures: tuple[tuple[int, tuple[tuple[float, ...], ...]], ...]
    spread: tuple[float, ...]
    size: tuple[int, int]

    @property
    def is_several(self) -> bool:
        """See `Cue`."""
        return len(self.pictures) > 1

    def locate(self, batch: Batch) -> Bool[Tensor, "batch height width"]:
        """Return the pixels that each covers, with half of its side around it; none of images without any."""
        _, images = image_of(batch)
        spread = torch.tensor(self.spread, device=images.device)[:, None, None]
        inside = torch.zeros_like(images[:, 0], dtype=torch.bool)
        for side in {side for side, _ in self.pictures}:
            values = [picture for size, picture in self.pictures if size == side]
            pictures = torch.tensor(values, device=images.device)
            inside |= covered(images.float() / spread, pictures, side)
        return inside & pixels_of(self.where, batch)

    def changed(self, batch: Batch, sources: Batch) -> Bool[Tensor, "batch height width"]:
        """See `Part`."""
        region = self.locate(batch) | self.locate(sources)
        return region & ~pixels_of("evidence", batch) if self.is_outside else region


Counted = tuple[Mark, Int[np.ndarray, " batch"]]
"""A mark, and at how many places each image shows it."""


class Marks:
    """Pictures that recur at the most relevant places of samples: found once, whichever of several answers asks.

    `maps` are the relevance of each image for its answer, `[tokens]`, and `answers` those to each, or to each of the
    labels that it has: images of one answer show one mark.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        maps: Sequence[Float[Tensor, " patches"]],
        grid: tuple[int, int],
        answers: Int[np.ndarray, " batch *labels"],
    ) -> None:
        self._samples, self._maps, self._grid = samples, maps, grid
        own = answers.reshape(len(answers), -1)
        # Of several labels, what a sample has is predictable from something in it; what it has not, from nothing.
        groups = np.unique(own)[:, None] == own.T if answers.ndim == 1 else own.T > 0
        self._groups: Bool[np.ndarray, "groups batch"] = groups
        self._found: dict[tuple[bytes, Where], list[Counted]] = {}

    def proposed(
        self, chosen: Int[np.ndarray, " n"], answers: Int[np.ndarray, " n"], where: Where, count: int
    ) -> Iterator[tuple[float, Mark]]:
        """Yield at most `count` marks of some images, ranked by how far their being there goes with the answers.

        Where each answer has a mark of its own, none decides much alone: together they are a cue, the last one.
        """
        batch = collate([self._samples[i] for i in chosen])
        key = chosen.tobytes(), where
        if key not in self._found:
            relevance = torch.stack([self._maps[i] for i in chosen])
            self._found[key] = _marks(batch, relevance, self._grid, self._groups[:, chosen], where)
        # Where all images show a picture, its number may tell the answer.
        scored = [
            (max(association(count > 0, answers), association(count > np.median(count), answers)), mark, count > 0)
            for mark, count in self._found[key]
        ]
        scored = sorted((each for each in scored if each[0] > 0), key=lambda each: -each[0])
        for score, mark, present in (scored[i] for i in distinct([each[2] for each in scored], count)):
            yield score, _placed(mark, batch, present)
        together = _one_of_each(self._found[key], answers) if count else []
        if len(together) > 1:
            pictures = tuple(picture for mark, _ in together for picture in mark.pictures)
            side = max(side for side, _ in pictures)
            several = replace(together[0][0], name=f"marks of {side} x {side} pixels{ON[where]}", pictures=pictures)
            yield 0.0, _placed(several, batch, np.any([count > 0 for _, count in together], 0))


def _placed(mark: Mark, batch: Batch, present: Bool[np.ndarray, " batch"]) -> Mark:
    """Return a mark with the edge of images in its name at which those lie that show it, if there is one."""
    shown = np.flatnonzero(present)[: EACH * len(mark.pictures)]
    place = place_of(mark.locate(samples_of(batch, torch.from_numpy(shown))))
    return replace(mark, name=f"{mark.name}, at {place}") if place else mark


def _one_of_each(found: Sequence[Counted], answers: Int[np.ndarray, " batch"]) -> list[Counted]:
    """Return the mark whose being there goes furthest with each answer, each mark once."""
    if not found:
        return []
    present = np.stack([count > 0 for _, count in found])
    scores = [associations(present, answers, answer) for answer in np.unique(answers)]
    return [found[number] for number in dict.fromkeys(int(each.argmax()) for each in scores if each.max() > 0)]


def _marks(
    batch: Batch,
    relevance: Float[Tensor, "batch patches"],
    grid: tuple[int, int],
    groups: Bool[np.ndarray, "groups batch"],
    where: Where,
) -> list[Counted]:
    """Return the pictures that recur in images of one group, and how often each of all images shows each."""
    _, images = image_of(batch)
    size = (images.shape[2], images.shape[3])
    patch = min(size[0] // grid[0], size[1] // grid[1])
    spread = images.float().std((0, 2, 3), correction=0).clamp(min=1e-6)
    role: Role = "shortcut" if where == "outside" else "unreviewed"
    inside = pixels_of(where, batch)
    found = []
    scaled = images.float() / spread[:, None, None]
    for side in sorted({max(3, patch // 2), max(3, patch)}):
        pictures = _recurring(scaled, relevance, grid, inside, side, groups)
        for values, count in zip(pictures, counted(scaled, pictures, side).cpu().numpy(), strict=True):
            if (count > 0).sum() >= FEWEST:
                plain = tuple(tuple(round(float(x), 3) for x in channel) for channel in values)
                name = f"a mark of {side} x {side} pixels{ON[where]}"
                found.append((Mark(name, role, where, ((side, plain),), tuple(spread.tolist()), size), count))
    return found


def _recurring(
    images: Float[Tensor, "batch channels height width"],
    relevance: Float[Tensor, "batch patches"],
    grid: tuple[int, int],
    inside: Bool[Tensor, "batch height width"],
    side: int,
    groups: Bool[np.ndarray, "groups batch"],
) -> Float[Tensor, "n channels points"]:
    """Return the pictures at the most relevant places that another image of the same group shows, too."""
    kept = [images.new_zeros(0, images.shape[1], len(CORNERLESS))]
    groups = groups[groups.any(1)]
    size = (images.shape[2], images.shape[3])
    for group in groups:
        members = np.flatnonzero(group)
        givers = members[: min(EACH, max(FEWEST, CANDIDATES * EACH // len(groups)))]
        siblings = members[: CANDIDATES + 1]
        taken = [_at_peaks(images[[i]], relevance[[i]], grid, inside[[i]], side) for i in givers]
        near = [_begin_near(_near(relevance[i], grid, inside[i]), size, side) for i in siblings]
        present = (counted(images[siblings], torch.cat(taken), side, torch.stack(near)) > 0).cpu().numpy()
        owners = np.repeat(givers, [len(each) for each in taken])
        kept.append(torch.cat(taken)[(present & (siblings != owners[:, None])).any(1)])
    found = torch.cat(kept)
    places = size[0] * size[1] / stride_of(side) ** 2
    return found[:: max(1, math.ceil(len(found) * places / MOST_COMPARED))]


def _near(
    relevance: Float[Tensor, " patches"], grid: tuple[int, int], inside: Bool[Tensor, "height width"]
) -> Int[Tensor, "rows columns"]:
    """Return 1 for an image's most relevant patches, of those that count, and 0 for the others."""
    allowed = F.adaptive_avg_pool2d(inside[None].float(), grid).flatten()
    best = (relevance.clamp(min=0) * allowed.to(relevance)).topk(min(EACH, len(relevance))).indices
    return torch.zeros(len(relevance), dtype=torch.long).index_fill_(0, best.cpu(), 1).view(grid)


def _begin_near(patches: Int[Tensor, "rows columns"], size: tuple[int, int], side: int) -> Bool[Tensor, "y x"]:
    """Return which pictures, by where they begin, cover any pixel of patches that are 1."""
    sums = F.pad(patches.cumsum(0).cumsum(1), (1, 0, 1, 0))
    first, last = [], []
    for count, length in zip(patches.shape, size, strict=True):
        starts = torch.arange(0, length - side + 1, stride_of(side))
        first.append(starts * count // length)
        last.append((starts + side - 1) * count // length + 1)
    upper, lower = sums[first[0]], sums[last[0]]
    return (lower - upper)[:, last[1]] > (lower - upper)[:, first[1]]


def _at_peaks(
    images: Float[Tensor, "batch channels height width"],
    relevance: Float[Tensor, "batch patches"],
    grid: tuple[int, int],
    where: Bool[Tensor, "batch height width"],
    side: int,
) -> Float[Tensor, "n channels points"]:
    """Return the pictures that begin in or shortly before the most relevant patches of every image."""
    height, width = where.shape[1:]
    allowed = F.adaptive_avg_pool2d(where[:, None].float(), grid).flatten(1)
    best = (relevance.clamp(min=0) * allowed.to(relevance)).topk(min(CANDIDATES, relevance.shape[1]), 1).indices
    down, across, stride = height // grid[0], width // grid[1], stride_of(side)
    step = max(1, side // 4 // stride)
    found = []
    for image, peaks in zip(images, best.tolist(), strict=True):
        points = sampled(image, side)
        for peak in peaks:
            top, left = peak // grid[1] * down, peak % grid[1] * across
            rows, columns = (
                slice(max(0, at - side // 2) // stride, min(count, (at + length) // stride), step)
                for at, length, count in ((top, down, points.shape[2]), (left, across, points.shape[3]))
            )
            found.append(points[:, :, rows, columns].flatten(2).permute(2, 0, 1))
    pictures = torch.cat([images.new_zeros(0, images.shape[1], len(CORNERLESS)), *found])
    if not len(pictures):
        return pictures
    return pictures[pictures.flatten(1).std(1, correction=0) > TOLERANCE]  # a plain piece is the same everywhere
