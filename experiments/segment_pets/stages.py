"""One run of each stage: a classifier, a source of seeds, its refinements, a segmenter."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

import lrptrain
from experiments.parallel import Run
from experiments.per_method import DEAR
from experiments.pets import RUNS, accuracy
from experiments.segment_pets.photographs import (
    CLASSES,
    FEW,
    SPLITS,
    Photographs,
    compared,
    in_parts,
    load,
    scored,
    tuned,
)
from experiments.segment_pets.training import as_breed, classifier, masked, predicted, probabilities, segmenter
from experiments.segment_pets.without_model import centre_prior, spectral_residual
from lrptrain.relevance.registry import get_method
from lrptrain.relevance.types import UnsupportedMethodError, UnsupportedModelError
from lrptrain.segmentation.masks import pseudo_masks
from lrptrain.segmentation.refinement import pixel_adaptive
from lrptrain.segmentation.seeds import seed_maps, unit

CENTRE, SALIENCY = "centre prior", "spectral residual"
OPTIONS: dict[str, dict[str, Any]] = {
    f"{name} (start_layer=1)": {"start_layer": 1}
    for name in ("rollout", "attention_norm", "generic_attention", "transformer_attribution")
}
METHODS = {name: get_method(name.partition(" ")[0], {}) for name in (*lrptrain.methods(), *OPTIONS)}
SOURCES = [CENTRE, SALIENCY, *METHODS]
SCALES = (1.0, 0.5)
"""Of the sources that are refined; 1.5 costs more than both, and was no better for rollout on validation images."""
SMALL = (1, 2, 4, 8, 12)
REFINEMENTS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "pixel_adaptive": {},
    "pixel_adaptive, small": {"dilations": SMALL},
}
"""With the published settings where nothing else is said; `small`: neighbours fit for 64 pixels."""
MARGIN = 0.15
"""Of the threshold, up and down: pixels in between are ignored in pseudo-masks."""
PSEUDO = "pseudo-masks"
PLAIN_ARMS = (PSEUDO, "full masks", "a tenth of the masks", f"{PSEUDO} and a tenth of the masks")
SAID, GIVEN = ", predicted breed", ", given breed"


@dataclass(frozen=True)
class Task:
    """One run.

    Attributes:
        seed: Of the split and of training.
        arm: Its name in the table.
        model: The classifier: plain or guided.
        source: Of the pseudo-masks that a segmenter is trained on.
        refinement: Of these.
    """

    seed: int
    arm: str
    model: str = "plain"
    source: str = ""
    refinement: str = ""

    @property
    def key(self) -> str:
        """Names the run in the results."""
        return " | ".join([self.arm, self.model, self.source, self.refinement, f"seed {self.seed}"])

    @property
    def head(self) -> Run:
        """What is saved of it beside its numbers."""
        return {"seed": self.seed, "arm": self.arm, "model": self.model}


def prepared(task: Task) -> tuple[nn.Module, dict[str, Photographs]]:
    """The classifier of a run, and its data."""
    torch.set_num_threads(1)
    data = load(task.seed)
    return classifier(data["train"], task.seed, task.model == "guided", _kept(task, "classifier")), data


def _kept(task: Task, name: str) -> Path:
    return RUNS / "segment_pets" / f"{name}_{task.model}_{task.seed}.pt"


def trained(task: Task) -> Run:
    """A classifier, and how often it is right."""
    started = time.process_time()
    net, data = prepared(task)
    found = {split: accuracy(net, data[split]) for split in SPLITS}
    return task.head | found | {"cpu seconds": time.process_time() - started}


def maps_of(
    task: Task,
    net: nn.Module,
    split: Photographs,
    labels: Int[Tensor, " n"],
    scales: tuple[float, ...],
) -> Float[Tensor, "n height width"]:
    """Of a source, for these breeds; with the mirror images if there are several scales."""
    name, _, times = task.arm.partition(" x ")
    if name == SALIENCY:
        return spectral_residual(split.rgb)
    if name == CENTRE or times:
        prior = centre_prior(task.seed).expand(len(labels), -1, -1)
        return prior if name == CENTRE else unit(prior * maps_of(plain(task, name), net, split, labels, scales))
    method, options = name.partition(" ")[0], OPTIONS.get(name, {})
    breeds = torch.nn.functional.one_hot(labels, CLASSES).bool()
    maps = seed_maps(net, split.images, breeds, method, options, scales, len(scales) > 1, chunk=16)
    return maps[torch.arange(len(labels)), labels]


def plain(task: Task, arm: str) -> Task:
    """The same with another source."""
    return Task(task.seed, arm, task.model)


def source(task: Task) -> Run:
    """One source of seeds at scale 1, not refined: its threshold tuned on `val`, scored on `train`, breeds given."""
    started = time.process_time()
    net, data = prepared(task)
    dear = task.arm in DEAR or task.arm.startswith("atb_ff")
    try:
        found = {"images": FEW if dear else None}
        few = {name: data[name].first(found["images"]) for name in ("val", "train")}
        maps = {name: maps_of(task, net, split, split.labels, (1.0,)) for name, split in few.items()}
    except (UnsupportedMethodError, UnsupportedModelError) as error:
        return task.head | {"unsupported": str(error)}
    for part in {FEW, found["images"]}:
        val, train = (data[name].first(part) for name in ("val", "train"))
        at = tuned(maps["val"][:part], val)
        for name, split in (("val", val), ("train", train)):
            breeds, pet = scored(maps[name][:part], split.labels, split, at)
            suffix = "" if part == found["images"] else ", few"
            found |= {f"{name}{suffix}": breeds, f"{name}, pet{suffix}": pet}
    return task.head | found | {"cpu seconds": time.process_time() - started}


def maps_everywhere(task: Task, net: nn.Module, data: dict[str, Photographs]) -> dict[str, Float[Tensor, "n h w"]]:
    """Multi-scale maps of all splits for the given breeds, and of the test images for the predicted ones; kept."""
    alone = plain(task, task.arm.partition(" x ")[0])
    path = _kept(task, f"maps_{alone.arm.replace(' ', '_')}")
    if not path.exists():
        asked = {**{split: (data[split], data[split].labels) for split in SPLITS}}
        asked |= {f"{split}{SAID}": (data[split], predicted(net, data[split])) for split in ("val", "test")}
        aside = path.with_suffix(f".{os.getpid()}")  # another process may want the same maps
        torch.save({key: maps_of(alone, net, *x, SCALES).half() for key, x in asked.items()}, aside)
        aside.replace(path)
    maps = {key: x.float() for key, x in torch.load(path, weights_only=True).items()}
    if " x " not in task.arm:
        return maps
    prior = centre_prior(task.seed)
    return {key: unit(prior * x) for key, x in maps.items()}


def refine(
    name: str, rgb: Float[Tensor, "n 3 height width"], maps: Float[Tensor, "n height width"]
) -> Float[Tensor, "n height width"]:
    """All maps of a split, refined."""
    options = REFINEMENTS[name]
    if options is None:
        return maps
    parts = in_parts(len(maps))
    return torch.cat([pixel_adaptive(rgb[part], maps[part, None], **options)[:, 0] for part in parts])


def refined(task: Task) -> Run:
    """One source at all scales with every refinement, each at its own threshold of the validation images."""
    started = time.process_time()
    net, data = prepared(task)
    maps = maps_everywhere(task, net, data)
    said = {f"{split}{SAID}": predicted(net, data[split]) for split in ("val", "test")}
    found: Run = {}
    for name in REFINEMENTS:
        own = {key: refine(name, data[key.partition(",")[0]].rgb, x) for key, x in maps.items()}
        at = found[f"{name} | threshold"] = tuned(own["val"], data["val"])
        for key, x in own.items():
            split = data[key.partition(",")[0]]
            breeds, pet = scored(x, said.get(key, split.labels), split, at)
            found |= {f"{name} | {key}": breeds, f"{name} | {key}, pet": pet}
    return task.head | found | {"cpu seconds": time.process_time() - started}


def segmenters(task: Task) -> Run:
    """One segmenter: trained on pseudo-masks, on masks, or on both."""
    started = time.process_time()
    net, data = prepared(task)
    train, few = data["train"], masked(data["train"].labels)
    masks = torch.full_like(train.masks, 255)
    if task.arm.startswith(PSEUDO):
        alone = Task(task.seed, task.source, task.model)
        maps = {key: x for key, x in maps_everywhere(alone, net, data).items() if key in ("val", "train")}
        better = {key: refine(task.refinement, data[key].rgb, x) for key, x in maps.items()}
        at = tuned(better["val"], data["val"])
        found = pseudo_masks(better["train"][:, None], (1 - MARGIN) * at, (1 + MARGIN) * at)
        masks = torch.where(found == 1, (train.labels + 1).to(torch.uint8)[:, None, None], found)
    if task.arm == "full masks":
        masks = train.masks
    elif "tenth" in task.arm:
        masks[few] = train.masks[few]
    # Without any mask an image teaches nothing: a tenth of the masks alone is a tenth of the images.
    some = (masks != 255).flatten(1).any(1)
    kept = Photographs(train.images[some], train.rgb[some], train.masks[some], train.labels[some])
    module = segmenter(net, kept, masks[some], task.seed)
    head = task.head | {"source": task.source, "refinement": task.refinement}
    return head | segmented(module, net, data) | {"cpu seconds": time.process_time() - started}


def segmented(module: nn.Module, net: nn.Module, data: dict[str, Photographs]) -> Run:
    """Scores of a segmenter by split: as it says, with the classifier's breed, with the given one; and refined."""
    result: Run = {}
    for split in SPLITS:
        said, breeds = probabilities(module, data[split]), predicted(net, data[split])
        for name, shares in (("", said), (", refined", pixel_adaptive(data[split].rgb, said))):
            own = shares.argmax(1).to(torch.uint8)
            forms = {"": own, SAID: as_breed(own, breeds), GIVEN: as_breed(own, data[split].labels)}
            for suffix, masks in forms.items():
                score = compared(masks, data[split])
                result |= {f"{split}{suffix}{name}": score.breeds, f"{split}{suffix}, pet{name}": score.pet}
    return result
