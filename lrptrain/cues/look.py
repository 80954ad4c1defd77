"""A look: what an image has as a whole, or outside or inside of its evidence, and can take from another image."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lrptrain.cues.cue import Batch, Cue, Role
from lrptrain.cues.images import OF, Where, image_of, pasted, pixels_of

Pixels = Bool[Tensor, " batch *places"]
Images = Float[Tensor, "batch channels *places"]


@dataclass(frozen=True)
class Look(Cue):
    """A look of images: a file in `lrptrain/cues/visual`, under `register_look`.

    Attributes:
        word: What a person calls it, without saying where.
        order: Looks are tested by this number.
        keeps_places: Whether each pixel still shows what it did, so that labels of pixels hold, and that a part of
            an image can have a look of its own.
        is_of_evidence: Whether it is tested in the annotated object alone, too.
    """

    name: str
    role: Role
    where: Where
    word: ClassVar[str]
    order: ClassVar[int]
    keeps_places: ClassVar[bool] = True
    is_of_evidence: ClassVar[bool] = False

    @classmethod
    def of(cls, where: Where, role: Role) -> Self:
        """Return the look of a part of images."""
        return cls(f"the {cls.word} {OF[where]}", role, where)

    @abstractmethod
    def transplant(self, images: Images, own: Pixels, sources: Images, theirs: Pixels) -> Images:
        """Return images with the look of their sources."""

    def locate(self, batch: Batch) -> Pixels | None:
        """Return the pixels that have it."""
        return None if self.where == "image" else pixels_of(self.where, batch)

    def exchange(self, batch: Batch, sources: Batch) -> dict[str, Any]:
        """See `Cue`; values beyond those of both images are brought to the nearest of them."""
        _, images = image_of(batch)
        _, given = image_of(sources)
        wide = torch.promote_types(images.dtype, torch.float32)
        images, given = images.to(wide), given.to(wide)
        own, theirs = pixels_of(self.where, batch), pixels_of(self.where, sources)
        changed = self.transplant(images, own, given, theirs)
        places = tuple(range(2, images.ndim))
        low = torch.minimum(images.amin(places, keepdim=True), given.amin(places, keepdim=True))
        high = torch.maximum(images.amax(places, keepdim=True), given.amax(places, keepdim=True))
        both = own.flatten(1).any(1) & theirs.flatten(1).any(1)
        return pasted(
            batch, torch.maximum(torch.minimum(changed, high), low), own & both.view(-1, *[1] * (own.ndim - 1))
        )


def mean_of(images: Images, inside: Pixels) -> Float[Tensor, "batch channels *ones"]:
    """Return the mean of every channel over some pixels; 0 of none."""
    weights = inside[:, None].to(images.dtype)
    places = tuple(range(2, images.ndim))
    return (images * weights).sum(places, keepdim=True) / weights.sum(places, keepdim=True).clamp(min=1)


def smoothed(
    images: Float[Tensor, "batch channels height width"],
    inside: Bool[Tensor, "batch height width"],
    deviation: float,
) -> Float[Tensor, "batch channels height width"]:
    """Return the low frequencies of a part of images; what lies outside counts for nothing, and spreads nothing."""
    down, across = (gaussian(length, deviation).to(images) for length in images.shape[2:])
    weights = inside[:, None].to(images.dtype)
    known = down @ weights @ across
    return down @ (images * weights) @ across / known.clamp(min=torch.finfo(images.dtype).eps)


def gaussian(length: int, deviation: float) -> Float[Tensor, "length length"]:
    """Return how much each place along a side gives to each other one: two products are faster than wide kernels."""
    places = torch.arange(length, dtype=torch.float64)
    weights = torch.exp(-0.5 * ((places[:, None] - places) / deviation) ** 2)
    return weights / (deviation * math.sqrt(2 * math.pi))
