"""What is measured of a trained model: accuracy, reliance on what is not evidence, and where its maps lie."""

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

import lrptrain
from lrptrain.guidance.evidence import at_tokens
from lrptrain.guidance.swap import Swap
from lrptrain.metrics import energy_pointing_game

Images = Float[Tensor, "n 3 height width"]
MAPS = ("generic_attention", "attnlrp")


@torch.no_grad()
def logits(model: nn.Module, inputs: Tensor, at_once: int = 64) -> Float[Tensor, "n classes"]:
    """Of all samples, in batches."""
    return torch.cat([getattr(out, "logits", out) for out in map(model, inputs.split(at_once))])


def accuracy(scores: Float[Tensor, "n classes"], labels: Int[Tensor, " n"]) -> float:
    """Share of the samples whose class is on top."""
    return (scores.argmax(1) == labels).float().mean().item()


def moved(before: Float[Tensor, "n classes"], after: Float[Tensor, "n classes"]) -> float:
    """Mean total variation distance of the predictions, 0 (nothing changes) to 1."""
    return (before.softmax(1) - after.softmax(1)).abs().sum(1).div(2).mean().item()


def fill_outside(images: Images, mask: Tensor, margin: int = 2) -> Images:
    """Everything but the evidence and a margin around it in the mean colour of all the images."""
    kept = torch.nn.functional.max_pool2d((mask == 1)[:, None].float(), 2 * margin + 1, 1, margin) > 0
    return torch.where(kept, images, images.mean((0, 2, 3), keepdim=True))


def reliance(model: nn.Module, images: Images, mask: Tensor, labels: Int[Tensor, " n"]) -> dict[str, float]:
    """How far the prediction moves, and how right it stays, when what is not evidence is filled or swapped."""
    before, found = logits(model, images), {}
    swapped = Swap()(images, mask, torch.Generator().manual_seed(0)).explained
    for name, changed in {"fill": fill_outside(images, mask), "swap": swapped}.items():
        after = logits(model, changed)
        found |= {f"reliance, {name}": moved(before, after), f"accuracy, {name}": accuracy(after, labels)}
    return found


def focus(model: nn.Module, inputs: Tensor, labels: Tensor, annotation: Tensor, at_once: int = 32) -> dict[str, float]:
    """Mean energy pointing game of two methods' maps, for the label."""
    return focus_on(model, zip(*(t.split(at_once) for t in (inputs, labels, annotation)), strict=True))


def focus_on(model: nn.Module, batches: Iterable[tuple[Any, Tensor, Tensor]]) -> dict[str, float]:
    """The same on batches of inputs, labels and annotations."""
    found: dict[str, list[Tensor]] = {f"EPG, {method}": [] for method in MAPS}
    for x, label, evidence in batches:
        recorded = lrptrain.record(model, x)
        for method in MAPS:
            relevance = recorded.attribute(label, method)
            found[f"EPG, {method}"].append(energy_pointing_game(relevance.scores, at_tokens(evidence, relevance.grid)))
    return {name: torch.cat(values).nanmean().item() for name, values in found.items()}
