"""What the scenes are of, and the classifier that was told their names: digits, or pets that were cut out."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor, nn

from experiments import vision
from experiments.class_specific.run import digit_model
from experiments.class_specific.scenes import Scenes, digit_pools, digit_scenes
from experiments.per_method import Row, rows
from experiments.segment_scenes import photographs
from experiments.vision import logits
from lrptrain.batch.annotations import IGNORED
from lrptrain.segmentation.refinement import pixel_adaptive
from lrptrain.segmentation.seeds import seed_maps

CHUNK = 64
ALONE = 0.5
"""Share of the scenes with one thing."""
NEAR: dict[str, Any] = {"dilations": (1, 2, 4)}
"""Neighbours fit for 32 pixels."""
REFINEMENTS: dict[str, dict[str, Any] | None] = {"none": None, "pixel_adaptive": NEAR}
Maps = Float[Tensor, "n classes height width"]


class Things(ABC):
    """Model, scenes and true masks of one seed.

    Attributes:
        classes: How many names there are.
        mean: The channels' means that images were normalised with.
        std: Their standard deviations.
        share: Probability above which a thing is predicted to be there.
        steps: Of a segmenter's training.
        counts: Scenes of each split.
    """

    classes: ClassVar[int]
    mean: ClassVar[tuple[float, ...]]
    std: ClassVar[tuple[float, ...]]
    steps: ClassVar[int]
    counts: ClassVar[dict[str, int]]
    share: ClassVar[float] = 0.25
    model: nn.Module

    def __init__(self, seed: int) -> None:
        self.seed, self.scenes = seed, self.drawn(seed)
        self.masks = {name: _of_classes(scenes) for name, scenes in self.scenes.items()}

    @abstractmethod
    def drawn(self, seed: int) -> dict[str, Scenes]:
        """Set `model`, and return the scenes of `counts`."""

    @abstractmethod
    def methods(self) -> list[Row]:
        """Whose maps are measured."""

    def present(self, split: str) -> Bool[Tensor, "n classes"]:
        """The names of what is there."""
        return self.scenes[split].present(self.classes) > 0

    def predicted(self, split: str) -> Bool[Tensor, "n classes"]:
        """What the model says is there."""
        return logits(self.model, self.scenes[split].images).softmax(1) > self.share

    def seeds(self, source: str, split: str, present: Bool[Tensor, "n classes"]) -> Maps:
        """Of one of `methods`, at one scale: a mirrored digit is none."""
        (row,) = (row for row in self.methods() if row.name == source)
        images = self.scenes[split].images
        return seed_maps(self.model, images, present, row.method, row.options, (1.0,), False, CHUNK)

    def refined(self, name: str, maps: Maps, split: str) -> Maps:
        """By one of `REFINEMENTS`."""
        options = REFINEMENTS[name]
        return maps if options is None else pixel_adaptive(self.pixels(split), maps, **options)

    def pixels(self, split: str) -> Float[Tensor, "n 3 height width"]:
        """The images in 0..1."""
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in (self.mean, self.std))
        return (self.scenes[split].images * std + mean).clamp(0, 1)


class Digits(Things):
    """Handwritten ones on noise."""

    classes, mean, std, steps = 10, (0.5,) * 3, (0.25,) * 3, 1200
    counts: ClassVar = {"train": 2000, "val": 200, "test": 200}

    def drawn(self, seed: int) -> dict[str, Scenes]:
        """Of digits that are in no other split."""
        pools = digit_pools(seed)
        self.model = digit_model(pools["train"], seed)
        return {
            name: digit_scenes(pools[name], count, torch.Generator().manual_seed(10), ALONE)
            for name, count in self.counts.items()
        }

    def methods(self) -> list[Row]:
        """All but the dear ones."""
        return [row for row in rows(1) if row.limit is None]


class Pets(Things):
    """Photographs' cut-outs before textures."""

    classes, mean, std, steps = photographs.BREEDS, vision.MEAN, vision.STD, 500
    counts: ClassVar = {"train": 1000, "val": 200, "test": 200}

    def drawn(self, seed: int) -> dict[str, Scenes]:
        """Of pets and textures that are in no other split."""
        pools = photographs.cutouts(seed)
        self.model = photographs.pet_model(pools["train"], seed)
        return {
            name: photographs.scenes(pools[name], count, torch.Generator().manual_seed(10), ALONE)
            for name, count in self.counts.items()
        }

    def methods(self) -> list[Row]:
        """Those that did best on digits, of either kind."""
        asked = ("attnlrp", "gamma_lrp", "generic_attention", "transformer_attribution")
        return [Row(name) for name in (*asked, "rollout", "attention_norm")]


def _of_classes(scenes: Scenes) -> UInt8[Tensor, "n height width"]:
    """0 background, 1 + class, ignored where both things are."""
    value = (scenes.labels + 1).to(torch.uint8)[:, :, None, None] * scenes.masks
    both = (scenes.masks == 1).all(1)
    return value.amax(1).masked_fill(both, IGNORED)
