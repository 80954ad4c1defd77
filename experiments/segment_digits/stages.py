"""Seeds of one or two digits, their refinements, and segmenters trained on them."""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, UInt8
from torch import Tensor, nn

from experiments.class_specific.run import digit_model
from experiments.class_specific.scenes import CANVAS, Scenes, digit_pools, digit_scenes
from experiments.mask_scores import mean_iou_by_image
from experiments.parallel import Run
from experiments.per_method import Row, per_image, rows
from experiments.vision import fit, logits
from lrptrain.batch.annotations import IGNORED
from lrptrain.relevance.types import UnsupportedMethodError, UnsupportedModelError
from lrptrain.segmentation.decoder import PatchDecoder
from lrptrain.segmentation.masks import best_threshold, label_map, pseudo_masks
from lrptrain.segmentation.refinement import pixel_adaptive
from lrptrain.segmentation.seeds import seed_maps

CLASSES, CHUNK = 10, 64
MEAN, STD = (0.5,) * 3, (0.25,) * 3
COUNTS = {"train": 2000, "val": 200, "test": 200}
ALONE = 0.5
"""Share of the scenes with one digit."""
SHARE = 0.25
"""Probability above which a digit is predicted to be there."""
NEAR: dict[str, Any] = {"dilations": (1, 2, 4)}
"""Neighbours fit for 32 pixels."""
REFINEMENTS: dict[str, dict[str, Any] | None] = {"none": None, "pixel_adaptive": NEAR}
BRIGHTNESS = "brightness"
MARGIN = 0.15
STEPS, BATCH, LR = 1200, 32, 1e-3
Maps = Float[Tensor, "n classes height width"]


class Digits:
    """Model, scenes and true masks of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed, pools = seed, digit_pools(seed)
        self.model = digit_model(pools["train"], seed)
        self.scenes = {
            name: digit_scenes(pools[name], count, torch.Generator().manual_seed(10), ALONE)
            for name, count in COUNTS.items()
        }
        self.masks = {name: _of_classes(scenes) for name, scenes in self.scenes.items()}

    def present(self, split: str) -> Bool[Tensor, "n classes"]:
        """The digits' names."""
        return self.scenes[split].present(CLASSES) > 0

    def predicted(self, split: str) -> Bool[Tensor, "n classes"]:
        """What the model says is there."""
        return logits(self.model, self.scenes[split].images).softmax(1) > SHARE

    def seeds(self, row: Row, split: str, present: Bool[Tensor, "n classes"]) -> Maps:
        """Of a method, at one scale: a mirrored digit is none."""
        images = self.scenes[split].images
        return seed_maps(self.model, images, present, row.method, row.options, (1.0,), False, CHUNK)

    def refined(self, name: str, maps: Maps, split: str) -> Maps:
        """By one of `REFINEMENTS`."""
        options = REFINEMENTS[name]
        return maps if options is None else pixel_adaptive(_pixels(self.scenes[split].images), maps, **options)


def _pixels(images: Tensor) -> Float[Tensor, "n 3 height width"]:
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    return (images * std + mean).clamp(0, 1)


def _of_classes(scenes: Scenes) -> UInt8[Tensor, "n height width"]:
    """0 background, 1 + digit, ignored where both are."""
    value = (scenes.labels + 1).to(torch.uint8)[:, :, None, None] * scenes.masks
    both = (scenes.masks == 1).all(1)
    return value.amax(1).masked_fill(both, IGNORED)


def scored(
    masks: UInt8[Tensor, "n height width"], truth: UInt8[Tensor, "n height width"]
) -> tuple[list[float], list[float]]:
    """Mean IoU over background and digits, and over background and anything else: of all scenes, a number a scene."""
    anything = [torch.where(own == IGNORED, own, own.clamp(max=1)) for own in (masks, truth)]
    return per_image(mean_iou_by_image(masks, truth)), per_image(mean_iou_by_image(*anything))


def every() -> dict[str, Row]:
    """Sources: all methods but the dear ones."""
    return {row.name: row for row in rows(1) if row.limit is None}


def _maps(digits: Digits, name: str) -> dict[str, Maps]:
    """Of a source, on the validation and the test scenes; of the brightness the same for every digit that is there."""
    asked = {"val": digits.present("val"), "test": digits.present("test"), "said": digits.predicted("test")}
    splits = {"val": "val", "test": "test", "said": "test"}
    if name == BRIGHTNESS:
        grey = {key: _pixels(digits.scenes[split].images).mean(1, keepdim=True) for key, split in splits.items()}
        return {key: grey[key] * present[:, :, None, None] for key, present in asked.items()}
    return {key: digits.seeds(every()[name], splits[key], present) for key, present in asked.items()}


def sources(digits: Digits) -> dict[str, Run]:
    """Scores of every source with every refinement, each at its own threshold of the validation scenes."""
    found: dict[str, Run] = {}
    for name in (BRIGHTNESS, *every()):
        try:
            maps = _maps(digits, name)
        except (UnsupportedMethodError, UnsupportedModelError):
            continue
        found[name] = {}
        for step in REFINEMENTS:
            own = {key: digits.refined(step, x, "val" if key == "val" else "test") for key, x in maps.items()}
            at, val = best_threshold(own["val"], digits.masks["val"])
            test = {key: scored(label_map(own[key], at), digits.masks["test"]) for key in ("test", "said")}
            found[name][step] = {
                "threshold": at, "val": val, "test": test["test"][0], "said": test["said"][0],
            }  # fmt: skip
            if step == "none":  # the table has it of no other
                found[name][step]["digit"] = test["test"][1]
    return found


def best(found: dict[str, Run]) -> tuple[str, str]:
    """The source and the refinement that are best on the validation scenes."""
    pairs = [(name, step) for name in found if name != BRIGHTNESS for step in REFINEMENTS]
    return max(pairs, key=lambda pair: found[pair[0]][pair[1]]["val"])


def segmenters(digits: Digits, found: dict[str, Run]) -> Run:
    """Trained on the best pseudo-masks, and on all true masks: mean IoU on the test scenes."""
    source, step = best(found)
    masks = {"pseudo-masks": pseudo(digits, found, source, step), "full masks": digits.masks["train"]}
    scores = {name: _score(segmenter(digits, own), digits) for name, own in masks.items()}
    return {"source": source, "refinement": step, **scores}


def pseudo(digits: Digits, found: dict[str, Run], source: str, step: str) -> UInt8[Tensor, "n height width"]:
    """Pseudo-masks of the training scenes."""
    at = found[source][step]["threshold"]
    maps = digits.refined(step, digits.seeds(every()[source], "train", digits.present("train")), "train")
    return pseudo_masks(maps, (1 - MARGIN) * at, (1 + MARGIN) * at)


def segmenter(digits: Digits, masks: UInt8[Tensor, "n height width"]) -> nn.Module:
    """A decoder on a copy of the classifier, trained along."""
    torch.manual_seed(digits.seed)
    net = PatchDecoder(copy.deepcopy(digits.model), CLASSES, CANVAS)
    images = digits.scenes["train"].images

    def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(images), (BATCH,), generator=generator)
        return images[chosen], masks[chosen].long()

    return fit(net, draw, STEPS, LR, lambda said, truth: F.cross_entropy(said, truth, ignore_index=IGNORED))


@torch.no_grad()
def said(net: nn.Module, scenes: Scenes) -> UInt8[Tensor, "n height width"]:
    """By a segmenter."""
    return net(scenes.images).argmax(1).to(torch.uint8)


def _score(net: nn.Module, digits: Digits) -> Run:
    mean, digit = scored(said(net, digits.scenes["test"]), digits.masks["test"])
    return {"test": mean, "digit": digit}
