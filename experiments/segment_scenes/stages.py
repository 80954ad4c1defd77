"""Seeds of one or two things, their refinements, and segmenters trained on them."""

import copy

import torch
import torch.nn.functional as F
from jaxtyping import UInt8
from torch import Tensor, nn

from experiments.class_specific.scenes import Scenes
from experiments.mask_scores import mean_iou_by_image
from experiments.parallel import Run
from experiments.per_method import per_image
from experiments.segment_scenes.things import REFINEMENTS, Maps, Things
from experiments.vision import fit
from lrptrain.batch.annotations import IGNORED
from lrptrain.relevance.types import UnsupportedMethodError, UnsupportedModelError
from lrptrain.segmentation.decoder import PatchDecoder
from lrptrain.segmentation.masks import best_threshold, label_map, pseudo_masks

BRIGHTNESS = "brightness"
OUTLINE = "true outline of all things"
MARGIN = 0.15
BATCH, LR = 32, 1e-3


def scored(
    masks: UInt8[Tensor, "n height width"], truth: UInt8[Tensor, "n height width"]
) -> tuple[list[float], list[float]]:
    """Mean IoU over background and things, and over background and anything else: of all scenes, a number a scene."""
    anything = [torch.where(own == IGNORED, own, own.clamp(max=1)) for own in (masks, truth)]
    return per_image(mean_iou_by_image(masks, truth)), per_image(mean_iou_by_image(*anything))


def _maps(things: Things, name: str) -> dict[str, Maps]:
    """Of a source, on the validation and the test scenes; what asks for no class is the same for all that are there."""
    asked = {"val": things.present("val"), "test": things.present("test"), "said": things.predicted("test")}
    splits = {"val": "val", "test": "test", "said": "test"}
    if name in (BRIGHTNESS, OUTLINE):
        make = _brightness if name == BRIGHTNESS else _outline
        return {key: make(things, splits[key]) * present[:, :, None, None] for key, present in asked.items()}
    return {key: things.seeds(name, splits[key], present) for key, present in asked.items()}


def _brightness(things: Things, split: str) -> Maps:
    return things.pixels(split).mean(1, keepdim=True)


def _outline(things: Things, split: str) -> Maps:
    return (things.masks[split] > 0)[:, None].float()


def sources(things: Things) -> dict[str, Run]:
    """Scores of every source with every refinement, each at its own threshold of the validation scenes."""
    found: dict[str, Run] = {}
    for name in (BRIGHTNESS, OUTLINE, *(row.name for row in things.methods())):
        try:
            maps = _maps(things, name)
        except (UnsupportedMethodError, UnsupportedModelError):
            continue
        found[name] = {}
        for step in REFINEMENTS:
            own = {key: things.refined(step, x, "val" if key == "val" else "test") for key, x in maps.items()}
            at, val = best_threshold(own["val"], things.masks["val"])
            test = {key: scored(label_map(own[key], at), things.masks["test"]) for key in ("test", "said")}
            found[name][step] = {
                "threshold": at, "val": val, "test": test["test"][0], "said": test["said"][0],
            }  # fmt: skip
            if step == "none":  # the table has it of no other
                found[name][step]["anything"] = test["test"][1]
    return found


def best(found: dict[str, Run]) -> tuple[str, str]:
    """The source and the refinement that are best on the validation scenes."""
    pairs = [(name, step) for name in found if name not in (BRIGHTNESS, OUTLINE) for step in REFINEMENTS]
    return max(pairs, key=lambda pair: found[pair[0]][pair[1]]["val"])


def segmenters(things: Things, found: dict[str, Run]) -> Run:
    """Trained on the best pseudo-masks, and on all true masks: mean IoU on the test scenes."""
    source, step = best(found)
    masks = {"pseudo-masks": pseudo(things, found, source, step), "full masks": things.masks["train"]}
    scores = {name: _score(segmenter(things, own), things) for name, own in masks.items()}
    return {"source": source, "refinement": step, **scores}


def pseudo(things: Things, found: dict[str, Run], source: str, step: str) -> UInt8[Tensor, "n height width"]:
    """Pseudo-masks of the training scenes."""
    at = found[source][step]["threshold"]
    maps = things.refined(step, things.seeds(source, "train", things.present("train")), "train")
    return pseudo_masks(maps, (1 - MARGIN) * at, (1 + MARGIN) * at)


def segmenter(things: Things, masks: UInt8[Tensor, "n height width"]) -> nn.Module:
    """A decoder on a copy of the classifier, trained along."""
    torch.manual_seed(things.seed)
    images = things.scenes["train"].images
    height, width = images.shape[2:]
    net = PatchDecoder(copy.deepcopy(things.model), things.classes, (height, width))

    def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(images), (BATCH,), generator=generator)
        return images[chosen], masks[chosen].long()

    return fit(net, draw, things.steps, LR, lambda said, truth: F.cross_entropy(said, truth, ignore_index=IGNORED))


@torch.no_grad()
def said(net: nn.Module, scenes: Scenes) -> UInt8[Tensor, "n height width"]:
    """By a segmenter."""
    return net(scenes.images).argmax(1).to(torch.uint8)


def _score(net: nn.Module, things: Things) -> Run:
    mean, anything = scored(said(net, things.scenes["test"]), things.masks["test"])
    return {"test": mean, "anything": anything}
