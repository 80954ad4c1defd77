"""How far the prediction moves when a region is changed, and when an equally large random region is."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lrptrain.batch import IMAGES, Sample, collate, model_inputs
from lrptrain.intervention import images, texts
from lrptrain.intervention.regions import Region, content_tokens, image_of, pixels, tokens
from lrptrain.metrics.deletion import delete_tokens
from lrptrain.relevance.attribute import read_logits

INTERVENTIONS = ("swap", "inpaint", "fill")


@dataclass(frozen=True)
class Setting:
    """How to intervene.

    Attributes:
        how: `"swap"`: what an annotation excludes is taken from a sample that the model reads as another class, without
            that sample's own evidence. `"inpaint"`: images are continued smoothly. `"fill"`: the mean colour of all
            samples. Tokens are deleted for the latter two. Fixed positions, tokens and places are never swapped.
        batch_size: Samples per forward pass.
        controls: Random regions per sample.
        seed: Of what lends to what, and of the random regions.
    """

    how: str = "swap"
    batch_size: int = 16
    controls: int = 2
    seed: int = 0


class _Chunk(NamedTuple):
    """Some samples, those that lend to them, and the random numbers of their rows."""

    own: Mapping[str, Tensor]
    lenders: Mapping[str, Tensor] | None
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
    """Change the region in some samples, then an equally large random region, and see what the model says.

    The prediction's change is, of a swap, by how much the probability of the lender's class rises; else by how much
    that of the predicted class falls. The control is the same shape elsewhere, rolled around the edges of the image,
    or as many random tokens.

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
    lender = partners(predicted, rows, setting.seed) if swap else None
    measured = predicted if lender is None else predicted[lender]
    if grid is None and not swap and any("attention_mask" not in sample.tensors for sample in samples):
        raise ValueError("texts cannot lose tokens without an attention_mask in the batch")
    random, colour = _random_numbers(samples, grid, setting), _mean_colour(samples)
    changes, controls = [], []
    for start in range(0, len(mine), setting.batch_size):
        part = list(mine[start : start + setting.batch_size])
        borrowed = [samples[lender[row]] for row in part] if lender is not None else []
        batch = collate([*(samples[row] for row in part), *borrowed], device)
        own = {name: x[: len(part)] for name, x in batch.items()}
        lent = {name: x[len(part) :] for name, x in batch.items()} if borrowed else None
        index = torch.tensor(part, device=device)
        chunk = _Chunk(own, lent, region, setting, grid, random.to(device)[:, index], colour)
        moved = []
        for altered, nothing in _altered(chunk):
            with forward_context():
                output = model_output(model, altered)
            after = class_probabilities(output).cpu().numpy()[np.arange(len(part)), measured[part]]
            moved.append(np.where(nothing.cpu().numpy(), np.nan, after - probabilities[part, measured[part]]))
        signed = np.stack(moved) if swap else -np.stack(moved)
        changes.append(signed[0])
        controls.append(signed[1:].mean(0))
    empty = [np.empty(0)]
    return np.concatenate(changes or empty), np.concatenate(controls or empty)


def class_probabilities(logits: Float[Tensor, "batch classes"]) -> Float[Tensor, "batch _classes"]:
    """Softmax in float64; a single logit is one of two classes, the other's being 0."""
    wide = logits.double()
    return (wide if wide.shape[1] > 1 else F.pad(wide, (1, 0))).softmax(1)


def model_output(model: nn.Module, batch: Mapping[str, Tensor]) -> Float[Tensor, "batch classes"]:
    """The logits of a batch in the contract's form."""
    inputs = model_inputs(model, batch)
    output = model(inputs) if isinstance(inputs, Tensor) else model(**inputs)
    return read_logits(output, len(next(iter(batch.values()))))


def partners(predicted: Int[np.ndarray, " n"], rows: Int[np.ndarray, " m"], seed: int) -> Int[np.ndarray, " n"]:
    """For each of the rows another one that is read as another class, at random; of all other rows -1.

    Raises:
        ValueError: If all are read alike.
    """
    if len(np.unique(predicted[rows])) < 2:
        raise ValueError("the model predicts the same class for all of these samples: there is nothing to swap")
    rng = np.random.default_rng(seed)
    order = rows[np.lexsort((rng.random(len(rows)), predicted[rows]))]
    classes = predicted[order]
    size = np.searchsorted(classes, classes, "right") - np.searchsorted(classes, classes, "left")
    others = np.floor(rng.random(len(order)) * (len(order) - size)).astype(int)
    found = np.full(len(predicted), -1)
    found[order] = order[(np.searchsorted(classes, classes, "right") + others) % len(order)]
    return found


def _random_numbers(samples: Sequence[Sample], grid: tuple[int, int] | None, setting: Setting) -> Tensor:
    """Uniform numbers `[controls + 1, samples, width]`, which do not depend on who computes what."""
    width = 2 if grid is not None else max((len(sample.tensors["input_ids"]) for sample in samples), default=0)
    shape = (setting.controls + 1, len(samples), width)
    return torch.from_numpy(np.random.default_rng(setting.seed + 1).random(shape))


def _mean_colour(samples: Sequence[Sample]) -> Float[Tensor, " channels"]:
    """Of all images; nothing of texts."""
    found = [sample.tensors[name] for sample in samples for name in IMAGES if name in sample.tensors]
    return torch.stack([image.double().mean((1, 2)) for image in found]).mean(0) if found else torch.empty(0)


def _altered(chunk: _Chunk) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    """The samples with the region changed, then with each control; and which of them have no such region."""
    return _altered_images(chunk) if chunk.grid is not None else _altered_texts(chunk)


def _altered_images(chunk: _Chunk) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    grid, (name, given) = chunk.grid, image_of(chunk.own)
    assert grid is not None
    region = pixels(chunk.region, chunk.own, grid)
    nothing = ~region.flatten(1).any(1)
    lenders = None
    if chunk.lenders is not None:
        evidence = ~pixels(Region("outside"), chunk.lenders, grid)
        lenders = images.inpainted(image_of(chunk.lenders)[1], evidence)
    steps = torch.tensor([s // g for s, g in zip(region.shape[1:], grid, strict=True)], device=region.device)
    unit = steps if chunk.region.kind == "patches" else torch.ones_like(steps)
    sides = torch.tensor(region.shape[1:], device=region.device) // unit
    # Between a quarter and three quarters of the side away, by whole patches where the region is made of such.
    offsets = ((0.25 + 0.5 * chunk.random[1:]) * sides).round().long().clamp(min=1) * unit
    for mask in (region, *(images.rolled(region, offset) for offset in offsets)):
        if lenders is not None:
            altered = images.swapped(given, mask, lenders)
        else:
            fill = chunk.setting.how == "fill"
            altered = images.filled(given, mask, chunk.colour) if fill else images.inpainted(given, mask)
        yield {**chunk.own, name: altered}, nothing


def _altered_texts(chunk: _Chunk) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    own, content = chunk.own, content_tokens(chunk.own)
    region, random = tokens(chunk.region, own), chunk.random[..., : content.shape[1]]
    count = region.sum(1)
    for mask in (region, *(texts.random_tokens(content, count, keys) for keys in random[1:])):
        if chunk.lenders is not None:
            lendable = tokens(Region("outside"), chunk.lenders)
            ids = texts.lent(own["input_ids"], mask, chunk.lenders["input_ids"], lendable, random[0])
            yield {**own, "input_ids": ids}, count == 0
        else:
            wanted = {name: own[name] for name in ("input_ids", "attention_mask", "token_type_ids") if name in own}
            yield delete_tokens(wanted, ~mask & (own["attention_mask"] != 0)), count == 0
