"""How far the prediction moves when a region is changed, and how far under the control."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lrptrain.batch import IMAGES, Sample, collate, model_inputs
from lrptrain.batch.content import content_tokens
from lrptrain.batch.logits import class_probabilities
from lrptrain.intervention import images, texts
from lrptrain.intervention.regions import Region, image_of, pixels, tokens
from lrptrain.metrics.deletion import delete_tokens
from lrptrain.relevance.recording import read_logits

INTERVENTIONS = ("swap", "inpaint", "fill")


@dataclass(frozen=True)
class Setting:
    """How to intervene.

    Attributes:
        how: `"swap"`: what an annotation excludes is taken from a sample that the model reads as another class, without
            that sample's own evidence; the control is the same with a sample that it reads as the same class. So both
            are equally odd, and differ in what the region tells of the class. `"inpaint"`: images are continued
            smoothly. `"fill"`: the mean colour of all samples. Tokens are deleted for the latter two. Fixed positions,
            tokens and places are never swapped.
        batch_size: Samples per forward pass.
        controls: Random regions per sample, the control of all but swaps.
        seed: Of what lends to what, and of the random regions.
    """

    how: str = "swap"
    batch_size: int = 16
    controls: int = 2
    seed: int = 0


class _Chunk(NamedTuple):
    """Some samples, those that lend to them, and the random numbers of their rows."""

    own: Mapping[str, Tensor]
    lenders: list[Mapping[str, Tensor]]
    region: Region
    setting: Setting
    grid: tuple[int, int] | None
    random: Tensor
    colour: Tensor


@torch.no_grad()
def effects(
    model: nn.Module,
    samples: Sequence[Sample],
    rows: Int[np.ndarray, " n"],
    mine: Sequence[int] | Int[np.ndarray, " m"],
    region: Region,
    probabilities: Float[np.ndarray, "samples classes"],
    grid: tuple[int, int] | None,
    setting: Setting,
    device: torch.device | str = "cpu",
    forward_context: Callable[[], AbstractContextManager] = nullcontext,
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Change the region in some samples, and see by how much the probability of the predicted class falls.

    The control of a swap is a swap with a sample of the same predicted class. (A random region would be none: a tinted
    background is everywhere.) The control of all else is an equally large random region: the same shape elsewhere,
    rolled around the edges of the image, or as many random tokens.

    Args:
        model: In evaluation mode.
        samples: The whole sample.
        rows: Of the samples that take part, in any process.
        mine: Those among them to be computed here.
        region: What is changed.
        probabilities: Of every sample as it is.
        grid: Rows and columns of an image's tokens, None for texts.
        setting: How.
        device: Where the model is.
        forward_context: Entered around forward passes (autocast).

    Returns:
        Change and control of `mine`, in [-1, 1]; nan where a sample has no such region.

    Raises:
        ValueError: If it cannot be done with these samples; says why.
    """
    predicted = probabilities.argmax(1)
    swap = setting.how == "swap" and region.by_annotation
    lending = [partners(predicted, rows, setting.seed, alike) for alike in (False, True)] if swap else []
    if grid is None and not swap and any("attention_mask" not in sample.tensors for sample in samples):
        raise ValueError("texts cannot lose tokens without an attention_mask in the batch")
    random, colour = _random_numbers(samples, grid, setting), _mean_colour(samples)
    changes, controls = [np.empty(0)], [np.empty(0)]
    for start in range(0, len(mine), setting.batch_size):
        part = np.asarray(mine[start : start + setting.batch_size])
        lenders = [np.where(lender[part] < 0, part, lender[part]) for lender in lending]
        own, *lent = _batches(samples, [part, *lenders], device)
        chunk = _Chunk(own, lent, region, setting, grid, random[:, part].to(device), colour)
        fallen = []
        for altered in _altered(chunk):
            with forward_context():
                output = model_output(model, altered)
            after = class_probabilities(output).cpu().numpy()
            fallen.append((probabilities[part] - after)[np.arange(len(part)), predicted[part]])
        untested = ~_where(chunk).flatten(1).any(1).cpu().numpy()
        for lender in lending:
            untested |= lender[part] < 0
        changes.append(np.where(untested, np.nan, fallen[0]))
        controls.append(np.where(untested, np.nan, np.mean(fallen[1:], axis=0)))
    return np.concatenate(changes), np.concatenate(controls)


def _batches(
    samples: Sequence[Sample], parts: Sequence[np.ndarray], device: torch.device | str
) -> list[Mapping[str, Tensor]]:
    """Batches of equally many samples, padded alike."""
    together = collate([samples[row] for part in parts for row in part], device)
    size = len(parts[0])
    return [{name: x[i * size : (i + 1) * size] for name, x in together.items()} for i in range(len(parts))]


def model_output(model: nn.Module, batch: Mapping[str, Tensor]) -> Float[Tensor, "batch classes"]:
    """The logits of a batch in the contract's form."""
    inputs = model_inputs(model, batch)
    output = model(inputs) if isinstance(inputs, Tensor) else model(**inputs)
    return read_logits(output, len(next(iter(batch.values()))))


def partners(
    predicted: Int[np.ndarray, " n"], rows: Int[np.ndarray, " m"], seed: int, alike: bool = False
) -> Int[np.ndarray, " n"]:
    """For each of the rows another one, at random, that is read as another class, or as the same; -1 where none is.

    Raises:
        ValueError: If all are read as the same class.
    """
    if len(np.unique(predicted[rows])) < 2:
        raise ValueError("the model predicts the same class for all of these samples: there is nothing to swap")
    rng = np.random.default_rng([seed, alike])
    order = rows[np.lexsort((rng.random(len(rows)), predicted[rows]))]
    classes, place = predicted[order], np.arange(len(order))
    first, behind = (np.searchsorted(classes, classes, side) for side in ("left", "right"))
    size = behind - first
    if alike:
        chosen = first + (place - first + 1 + np.floor(rng.random(len(order)) * (size - 1)).astype(int)) % size
    else:
        chosen = (behind + np.floor(rng.random(len(order)) * (len(order) - size)).astype(int)) % len(order)
    found = np.full(len(predicted), -1)
    found[order] = np.where(order[chosen] == order, -1, order[chosen])
    return found


def _random_numbers(samples: Sequence[Sample], grid: tuple[int, int] | None, setting: Setting) -> Tensor:
    """Uniform numbers `[controls, samples, width]`, which do not depend on who computes what."""
    width = 2 if grid is not None else max((len(sample.tensors["input_ids"]) for sample in samples), default=0)
    shape = (max(setting.controls, 2), len(samples), width)  # two for the two swaps
    return torch.from_numpy(np.random.default_rng(setting.seed + 1).random(shape))


def _mean_colour(samples: Sequence[Sample]) -> Float[Tensor, " channels"]:
    """Of all images; nothing of texts."""
    found = [sample.tensors[name] for sample in samples for name in IMAGES if name in sample.tensors]
    return torch.stack([image.double().mean((1, 2)) for image in found]).mean(0) if found else torch.empty(0)


def _where(chunk: _Chunk) -> Bool[Tensor, "batch *place"]:
    """The region in every sample."""
    return pixels(chunk.region, chunk.own, chunk.grid) if chunk.grid is not None else tokens(chunk.region, chunk.own)


def _altered(chunk: _Chunk) -> Iterator[dict[str, Tensor]]:
    """The samples with the region changed, then with each control."""
    return _altered_images(chunk) if chunk.grid is not None else _altered_texts(chunk)


def _altered_images(chunk: _Chunk) -> Iterator[dict[str, Tensor]]:
    grid, (name, given), region = chunk.grid, image_of(chunk.own), _where(chunk)
    assert grid is not None
    for lenders in chunk.lenders:
        evidence = ~pixels(Region("outside"), lenders, grid)
        without = images.inpainted(image_of(lenders)[1], evidence)
        yield {**chunk.own, name: images.swapped(given, region, without)}
    if chunk.lenders:
        return
    steps = torch.tensor([s // g for s, g in zip(region.shape[1:], grid, strict=True)], device=region.device)
    unit = steps if chunk.region.kind == "patches" else torch.ones_like(steps)
    sides = torch.tensor(region.shape[1:], device=region.device) // unit
    # Between a quarter and three quarters of the side away, by whole patches where the region is made of such.
    offsets = ((0.25 + 0.5 * chunk.random) * sides).round().long().clamp(min=1) * unit
    for mask in (region, *(images.rolled(region, offset) for offset in offsets)):
        fill = chunk.setting.how == "fill"
        yield {**chunk.own, name: images.filled(given, mask, chunk.colour) if fill else images.inpainted(given, mask)}


def _altered_texts(chunk: _Chunk) -> Iterator[dict[str, Tensor]]:
    own, content, region = chunk.own, content_tokens(chunk.own), _where(chunk)
    random = chunk.random[..., : content.shape[1]]
    for lenders, keys in zip(chunk.lenders, random, strict=False):
        lendable = tokens(Region("outside"), lenders)
        yield {**own, "input_ids": texts.lent(own["input_ids"], region, lenders["input_ids"], lendable, keys)}
    if chunk.lenders:
        return
    wanted = {name: own[name] for name in ("input_ids", "attention_mask", "token_type_ids") if name in own}
    for mask in (region, *(texts.random_tokens(content, region.sum(1), keys) for keys in random)):
        yield delete_tokens(wanted, ~mask & (own["attention_mask"] != 0))
