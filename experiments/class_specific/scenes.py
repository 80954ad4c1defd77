"""Images of two objects of different classes, each with its own mask."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from lrptrain.batch.annotations import IGNORED
from lrptrain.data.common import stratified_split
from lrptrain.data.planted import STROKE_THRESHOLD, digit_strokes

CANVAS, DIGIT, PATCH = 32, 16, 4
"""Side of an image of digits, of a digit, and of a patch, in pixels."""
NOISE = 0.25
"""Upper end of the background's uniform noise; the strokes are at 1."""


@dataclass(frozen=True)
class Scenes:
    """Images with two objects.

    Attributes:
        images: As the model sees them.
        masks: Per object 1 on it, 0 elsewhere; 255 ignored.
        labels: Per object its class; -1 for an object that is not there.
    """

    images: Float[Tensor, "n 3 height width"]
    masks: UInt8[Tensor, "n 2 height width"]
    labels: Int[Tensor, "n 2"]

    @property
    def grid(self) -> tuple[int, int]:
        """Patches of 4 x 4 pixels."""
        return self.images.shape[2] // PATCH, self.images.shape[3] // PATCH

    def present(self, classes: int) -> Float[Tensor, "n classes"]:
        """1 for every class that is in the image."""
        counts = torch.zeros(len(self.labels), classes + 1)  # the last column takes what is not there
        return counts.scatter(1, self.labels % (classes + 1), 1.0)[:, :classes]


@dataclass(frozen=True)
class Digits:
    """Handwritten digits, 0..1, to compose scenes of."""

    strokes: Float[Tensor, "n side side"]
    labels: Int[Tensor, " n"]


def digit_pools(seed: int) -> dict[str, Digits]:
    """scikit-learn's 1,797 digits in `train` (60 %), `val` and `test`; `test` is the same for every seed."""
    strokes, labels = digit_strokes(DIGIT)
    rest, test = stratified_split(labels, 0.2, 0)
    train, val = (rest[part] for part in stratified_split(labels[rest], 0.25, seed))
    pools = {"train": train, "val": val, "test": test}
    return {name: Digits(torch.from_numpy(strokes[i]), torch.from_numpy(labels[i])) for name, i in pools.items()}


def digit_scenes(
    pool: Digits, count: int, generator: torch.Generator, alone: float = 0.0, alike: float = 0.0
) -> Scenes:
    """Two digits of different classes, each in its half of the image at a random patch, on noise.

    Args:
        pool: Digits to choose from.
        count: Number of scenes.
        generator: Of all that is random.
        alone: Share of the scenes in which the second digit is left out.
        alike: Share of them, before that, in which both are of one class.
    """
    pair = pairs(pool.labels, count, generator)
    if alike:
        of_one = torch.multinomial((pool.labels[pair[0]][:, None] == pool.labels).float(), 1, generator=generator)[:, 0]
        pair = pair[0], torch.where(torch.rand(count, generator=generator) < alike, of_one, pair[1])
    beside = torch.rand(count, generator=generator) < 0.5  # or one below the other
    pasted = []
    for half, chosen in zip((0, CANVAS // 2), pair, strict=True):
        along = PATCH * torch.randint((CANVAS - DIGIT) // PATCH + 1, (count,), generator=generator)
        across = torch.full_like(along, half)
        top, left = torch.where(beside, along, across), torch.where(beside, across, along)
        pasted.append(_pasted(pool.strokes[chosen], top, left))
    objects = torch.stack(pasted, 1)
    labels = torch.stack([pool.labels[chosen] for chosen in pair], 1)
    single = torch.rand(count, generator=generator) < alone
    labels[single, 1] = -1
    objects[single, 1] = 0
    noise = NOISE * torch.rand(count, 3, CANVAS, CANVAS, generator=generator)
    strokes = objects.amax(1, keepdim=True)
    masks = F.max_pool2d((objects > STROKE_THRESHOLD).float(), 3, stride=1, padding=1).to(torch.uint8)
    return Scenes((noise + strokes * (1 - noise) - 0.5) / 0.25, masks, labels)


def own_and_other(scenes: Scenes, index: int) -> UInt8[Tensor, "n height width"]:
    """1 on the object of that index, 0 on the other one, 255 (ignored) where neither or both are."""
    own, other = scenes.masks[:, index] == 1, scenes.masks[:, 1 - index] == 1
    return torch.where(own == other, IGNORED, own.to(torch.uint8))


def pairs(labels: Int[Tensor, " n"], count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Indices of two samples of different classes."""
    first = torch.randint(len(labels), (count,), generator=generator)
    differs = labels[first][:, None] != labels
    return first, torch.multinomial(differs.float(), 1, generator=generator)[:, 0]


def _pasted(
    strokes: Float[Tensor, "n side side"], top: Int[Tensor, " n"], left: Int[Tensor, " n"]
) -> Float[Tensor, "n height width"]:
    """Each digit on an empty canvas."""
    canvas = torch.zeros(len(strokes), CANVAS, CANVAS)
    steps = torch.arange(DIGIT)
    rows, columns = (top[:, None] + steps)[:, :, None], (left[:, None] + steps)[:, None]
    canvas[torch.arange(len(strokes))[:, None, None], rows, columns] = strokes
    return canvas
