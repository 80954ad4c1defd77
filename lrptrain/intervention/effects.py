"""How far the prediction moves when a region is changed, and how far under the control."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lrptrain.batch import Sample, batch_length, collate, model_inputs
from lrptrain.batch.call import rows_of
from lrptrain.batch.content import content_tokens
from lrptrain.batch.logits import class_probabilities
from lrptrain.batch.reading import ANNOTATIONS
from lrptrain.cues.boxes import Box
from lrptrain.intervention.casing import CasedText, written_like
from lrptrain.intervention.changes import Change, KeptChanges
from lrptrain.intervention.common import drawn_at_random, pictures_in_common, with_picture
from lrptrain.monitor.confidence import sharpened
from lrptrain.intervention.detail import swap_detail
from lrptrain.intervention.edges import swap_edges
from lrptrain.intervention.images import filled, inpainted, shifted
from lrptrain.intervention.lengths import at_lengths, inner_tokens
from lrptrain.intervention.marks import elsewhere, pasted
from lrptrain.intervention.placement import as_large_as, at_place_of, swap_placement
from lrptrain.intervention.regions import Region, image_of, images_of, inside_boxes, pixels, tokens
from lrptrain.intervention.shading import swap_shading
from lrptrain.intervention.statistics import ValueRange, swap_statistics, value_range
from lrptrain.intervention.swap import (
    donors_by_prediction,
    donors_of_class,
    places_in_order,
    swap_pixels,
    swap_places,
)
from lrptrain.intervention.texts import random_tokens
from lrptrain.intervention.words import TextWords, with_words_of
from lrptrain.metrics.deletion import delete_tokens
from lrptrain.relevance.outputs import read_logits

INTERVENTIONS = ("swap", "inpaint", "fill")
SWAPS_OF_IMAGES = {
    "statistics": swap_statistics,
    "detail": swap_detail,
    "shading": swap_shading,
    "edges": swap_edges,
}
"""What an image as a whole takes from another one, by the kind of region."""
PLACEMENTS = {"location": at_place_of, "size": as_large_as}
"""What the evidence of an image takes from that of another one, by the kind of region."""


@dataclass(frozen=True)
class InterventionConfig:
    """How to intervene.

    Attributes:
        strategy: `"swap"`: what an annotation excludes is taken from a donor that the model reads as another class,
            without the donor's own evidence; the control is the same with a donor that it reads as the same class. So
            both are equally odd, and differ in what the region tells of the class. `"inpaint"`: images are continued
            smoothly. `"fill"`: the mean colour of all samples. Texts lose the tokens under the latter two. Places are
            painted over or deleted under all of them, unless they are to be exchanged (`Region.exchanged`).
        batch_size: The number of samples that are changed at a time; one forward pass has them under the change and
            under every control.
        margin: The pixels around the evidence that a swap of the surroundings keeps, other strategies keep those of
            `default_margin`. A model that was trained on swaps
            can have learned to read those that they keep: its judge keeps none. The shape of the evidence is then cut
            out, alike under the change and its control, and tells neither from the other.
        controls: The number of random regions per sample, the control of all strategies but the swap. One will do: the
            falls under it vary far less than those under a change that matters.
        seed: The seed of the choice of donors and of the random regions.

    Raises:
        ValueError: If the strategy is unknown, or the margin negative.
    """

    strategy: str = "swap"
    batch_size: int = 16
    margin: int = 0
    controls: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the strategy: an unknown one would be carried out as another."""
        if self.strategy not in INTERVENTIONS:
            raise ValueError(f"strategy must be one of {INTERVENTIONS}, not {self.strategy!r}")
        if self.margin < 0:
            raise ValueError(f"margin must not be negative, not {self.margin}")


def strategy_of(region: Region, grid: tuple[int, int] | None, config: InterventionConfig) -> str:
    """Return what is done to a region: what was configured, but places are only swapped if they are exchanged.

    Words are deleted otherwise, and places of images painted over.

    Properties, such as the statistics of an image or the length of a text, can only be swapped, and a mark pasted,
    whatever was configured for places.

    Args:
        region: What is changed.
        grid: Rows and columns of an image's tokens, None for texts.
        config: How to intervene.
    """
    if region.is_property:
        return region.kind if region.towards is None else f"{region.kind}_of_class"
    if region.kind == "mark":
        return "paste"
    if region.kind == "common":
        return "common"
    if config.strategy == "swap" and (region.by_annotation or region.exchanged):
        return "swap"
    if grid is None:
        return "delete"
    return "fill" if config.strategy == "fill" else "inpaint"


def is_by_donors(strategy: str) -> bool:
    """Return whether what is done to a region, as `strategy_of` says, takes something of a donor drawn at random."""
    return strategy not in ("paste", "common", "delete", "fill", "inpaint")


@dataclass(frozen=True)
class _Chunk:
    """Some samples that are changed together.

    Attributes:
        batch: The samples as they are.
        donors: For each swap, a batch of donors in the order of the samples; empty if nothing is swapped.
        changed: Where each sample is changed: pixels, or tokens of a text.
        region: What is changed.
        config: How it is changed.
        grid: Rows and columns of an image's tokens, None for texts.
        random: Uniform random numbers, `[controls, samples, width]`.
        colour: The mean colour of all images, with which regions are filled; empty where they are not.
        valid: The values that pixels have in all images, where those are changed as a whole; else None.
        source: The image of a mark that is put into others; else None.
        rows: The indices of the samples.
        donor_rows: Those of the donors of each swap.
        most_tokens: The length of the longest text of all, which the model takes for sure.
        pictures: What is drawn on each sample, under the change and under the control; None where nothing is.
    """

    batch: Mapping[str, Tensor]
    donors: list[Mapping[str, Tensor]]
    changed: Bool[Tensor, " batch *place"]
    region: Region
    config: InterventionConfig
    grid: tuple[int, int] | None
    random: Float[Tensor, "controls batch width"]
    colour: Float[Tensor, " channels"]
    valid: ValueRange | None = None
    source: Float[Tensor, "channels height width"] | None = None
    rows: Int[np.ndarray, " batch"] | None = None
    donor_rows: Sequence[Int[np.ndarray, " batch"]] = ()
    most_tokens: int = 0
    pictures: Sequence[Float[Tensor, "batch channels height width"]] | None = None


@torch.no_grad()
def effects(
    model: nn.Module,
    samples: Sequence[Sample],
    *,
    rows: Int[np.ndarray, " n"],
    computed_rows: Sequence[int] | Int[np.ndarray, " m"],
    region: Region,
    probabilities: Float[np.ndarray, "samples classes"],
    grid: tuple[int, int] | None,
    config: InterventionConfig,
    device: torch.device | str = "cpu",
    forward_context: Callable[[], AbstractContextManager[Any]] = nullcontext,
    power: float = 1.0,
    kept: KeptChanges | None = None,
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Change a region in some samples, and measure by how much the probability of the predicted class falls.

    The control of a swap, of surroundings as of properties, is a swap with a sample of the same predicted
    class. (A random region would be none: a tinted background is everywhere.) A place that is exchanged takes what the
    donor has in the same place, without the donor's evidence. The control of all else is an equally large random
    region: the same shape elsewhere, shifted around the edges of the image, or as many random tokens. A mark that is
    put into images has another piece of its image as control, put into the same places. Where what the images of a
    class have in common is drawn on others, or a class gives a property to them, it is measured by how much the
    probability of that class rises; the control is the same of a third class.

    Args:
        model: The model in evaluation mode.
        samples: All samples that were scored.
        rows: The indices of the samples that take part, in any process.
        computed_rows: Those of the rows whose effects this process computes.
        region: What is changed.
        probabilities: The class probabilities of every sample as it is.
        grid: Rows and columns of an image's tokens, None for texts.
        config: How to intervene.
        device: The device of the model.
        forward_context: Entered around forward passes (autocast).
        power: What sharpens all probabilities before they are compared; see `lrptrain.monitor.confidence`.
        kept: Keeps what is made of the samples that fall furthest.

    Returns:
        Change and control of `computed_rows`, in [-1, 1]; nan where a sample has no such region or no donor.

    Raises:
        ValueError: If the samples do not allow it: all are read as one class, or a text has no `attention_mask`.
    """
    predicted = probabilities.argmax(1)
    strategy = strategy_of(region, grid, config)
    swap = strategy == "swap" or region.is_property
    # Painting over continues what is kept: from the very edge of the evidence, it would spread that over the image.
    margin = config.margin if swap else None
    # Every sample has a place to give, also where that of a single class is tested; surroundings need an annotation,
    # and a text that has no word of a kind has none to exchange.
    givers = rows if region.by_annotation or region.kind in ("words", "case") else np.arange(len(samples))
    donors = _donors(predicted, givers, region, config.seed) if swap else []
    if grid is None and strategy != "swap" and not all(_says_its_padding(sample) for sample in samples):
        raise ValueError("texts cannot lose tokens without an attention_mask [batch, tokens] in the batch")
    if region.kind == "case" and any(region.texts[row] is None for row in rows):
        raise ValueError(
            "the tokenizer does not give most texts back as they were, or makes them too long in another case"
        )
    random = _random_numbers(samples, grid, config)
    colour = _mean_colour(samples) if config.strategy == "fill" else torch.empty(0)
    valid = value_range(images_of(samples)) if region.kind in (*SWAPS_OF_IMAGES, "common") else None
    in_common = {} if grid is None else _in_common(samples, predicted, region, grid)
    source = images_of(samples)[region.which[0]] if isinstance(region.which, tuple) and strategy == "paste" else None
    longest = max((len(each.tensors["input_ids"]) for each in samples if "input_ids" in each.tensors), default=0)
    changes = [np.empty(0)]
    controls = [np.empty(0)]
    for start in range(0, len(computed_rows), config.batch_size):
        chunk_rows = np.asarray(computed_rows[start : start + config.batch_size])
        # A sample without a donor stands in for it: the shapes fit, and its result is dropped below.
        donor_rows = [np.where(donor[chunk_rows] < 0, chunk_rows, donor[chunk_rows]) for donor in donors]
        batch, *donor_batches = _padded_alike(samples, [chunk_rows, *donor_rows], device)
        place = _changed_place(region, batch, chunk_rows, grid, margin)
        numbers = random[:, chunk_rows].to(device)
        chunk = _Chunk(
            batch,
            donor_batches,
            place,
            region,
            config,
            grid,
            numbers,
            colour,
            valid,
            source,
            chunk_rows,
            donor_rows,
            longest,
            _pictures_for(in_common, region, predicted[chunk_rows], numbers),
        )
        with forward_context():
            variants = list(_altered(chunk))
            answers = [class_probabilities(output).cpu().numpy() for output in _outputs(model, variants)]
        # Of the probability of each sample's predicted class, positive where it falls: under the change, then under
        # each control.
        # Indexing [chunk, classes] by (0, 1, 2 ...) and (the class of each) takes one number of every row.
        towards = region.towards
        each = np.arange(len(chunk_rows)), predicted[chunk_rows] if towards is None else towards
        before = sharpened(probabilities[chunk_rows], power)
        answers = [before, *(sharpened(after, power) for after in answers)]
        falls = [(before - after)[each] * (1 if towards is None else -1) for after in answers[1:]]
        # A sample without the region (no annotation, no such token) was not changed: its fall of 0 says nothing.
        untested = ~place.flatten(1).any(1).cpu().numpy()
        for donor in donors:
            untested |= donor[chunk_rows] < 0
        if kept is not None:
            for i in np.flatnonzero(~untested):
                # A control that moves the answer, up or down, shows that the sample is unsteady: one whose answer falls
                # by 0.1, and rises by 0.4 under the control, is a worse example than one that falls by 0.4 from a
                # control that leaves it.
                fall = float(falls[0][i] - abs(np.mean(falls[1:], axis=0)[i]))
                kept.offer(region, int(chunk_rows[i]), fall, partial(_change, variants, answers, int(i), fall))
        changes.append(np.where(untested, np.nan, falls[0]))
        # A swap has one control, the donor of the same class; for all else it is the mean over the random regions.
        controls.append(np.where(untested, np.nan, np.mean(falls[1:], axis=0)))
    return np.concatenate(changes), np.concatenate(controls)


def _donors(
    predicted: Int[np.ndarray, " samples"], givers: Int[np.ndarray, " n"], region: Region, seed: int
) -> list[Int[np.ndarray, " samples"]]:
    """Return the donor of every sample for the change, then for the control; -1 for none.

    They are of another class and of the same class; where a class gives a property to others, of it and of a third one.
    """
    if region.towards is not None:
        return [*donors_of_class(predicted, region.towards, seed)]
    return [donors_by_prediction(predicted, givers, seed, same) for same in (False, True)]


def _changed_place(
    region: Region,
    batch: Mapping[str, Tensor],
    rows: Int[np.ndarray, " batch"],
    grid: tuple[int, int] | None,
    margin: int | None,
) -> Bool[Tensor, " batch *place"]:
    """Return where each sample of a batch is changed: pixels, or tokens of a text."""
    if grid is None:
        return tokens(region, batch)
    if region.kind == "boxes":
        images = image_of(batch)[1]
        return inside_boxes([region.boxes[row] for row in rows], (images.shape[-2], images.shape[-1])).to(images.device)
    return pixels(region, batch, grid, margin)


def _in_common(
    samples: Sequence[Sample], predicted: Int[np.ndarray, " samples"], region: Region, grid: tuple[int, int]
) -> dict[int, Float[Tensor, "channels height width"]]:
    """Return by class what is drawn on images; nothing where nothing is."""
    if region.kind != "common" or region.towards is None:
        return {}
    images = images_of(samples)
    inside = pixels(region, {"image": images[0][None]}, grid)[0]
    # Of what has no label, the answer says the class.
    labels = np.array([each.label for each in samples])
    return pictures_in_common(images, np.where(labels < 0, predicted, labels), region.towards, inside)


def _pictures_for(
    in_common: Mapping[int, Float[Tensor, "channels height width"]],
    region: Region,
    predicted: Int[np.ndarray, " batch"],
    random: Float[Tensor, "controls batch width"],
) -> list[Float[Tensor, "batch channels height width"]] | None:
    """Return what is drawn on each sample of a batch, under the change and under the control; None for nothing."""
    if region.towards is None or not in_common:
        return None
    control = drawn_at_random(in_common, region.towards, predicted, random[0, :, 0].tolist())
    return [in_common[region.towards].expand_as(control), control]


def _change(variants: Sequence[Mapping[str, Tensor]], answers: Sequence[np.ndarray], place: int, fall: float) -> Change:
    """Return what became of one sample of a batch.

    Args:
        variants: The batch with the region changed, then under each control.
        answers: The class probabilities of the batch as it is, then of each variant.
        place: The place of the sample in the batch.
        fall: See `Change`.
    """
    # Copies: views would keep the whole batch in memory.
    changed, control = (
        {name: x[place].cpu().clone() for name, x in each.items() if isinstance(x, Tensor)} for each in variants[:2]
    )
    before, after, under_control = (each[place].copy() for each in answers[:3])
    return Change(changed, control, before, after, under_control, fall)


def _padded_alike(
    samples: Sequence[Sample], groups: Sequence[np.ndarray], device: torch.device | str
) -> list[Mapping[str, Tensor]]:
    """Return one batch per group of equally many rows, all padded to the same length."""
    # The random numbers of a sample's tokens also order those of its donor: both need the same length.
    joint = collate([samples[row] for group in groups for row in group], device)
    size = len(groups[0])
    return [rows_of(joint, slice(i * size, (i + 1) * size)) for i in range(len(groups))]


def _outputs(model: nn.Module, variants: Sequence[Mapping[str, Tensor]]) -> list[Float[Tensor, "batch classes"]]:
    """Return the logits of several batches, by one forward pass if they have the same shapes."""
    # Texts that have lost tokens differ in length: one by one, no padding has to be made up.
    columns = [{name: x for name, x in variant.items() if isinstance(x, Tensor)} for variant in variants]
    if len({tuple((name, x.shape) for name, x in sorted(each.items())) for each in columns}) > 1:
        return [model_output(model, variant) for variant in variants]
    joint = {**variants[0], **{name: torch.cat([each[name] for each in columns]) for name in columns[0]}}
    return list(model_output(model, joint).chunk(len(variants)))


def model_output(model: nn.Module, batch: Mapping[str, Tensor]) -> Float[Tensor, "batch classes"]:
    """Return the logits of a batch in the contract's form."""
    inputs = model_inputs(model, batch)
    output = model(inputs) if isinstance(inputs, Tensor) else model(**inputs)
    return read_logits(output, batch_length(batch))


def _says_its_padding(sample: Sample) -> bool:
    """Return whether a text has a mask that tells padding; one of pairs of tokens cannot be made for another length."""
    mask = sample.tensors.get("attention_mask")
    return mask is not None and mask.ndim == 1


def _random_numbers(
    samples: Sequence[Sample], grid: tuple[int, int] | None, config: InterventionConfig
) -> Float[Tensor, "controls samples width"]:
    """Return uniform numbers of all samples, so that they do not depend on which process computes what."""
    width = 2 if grid is not None else max((len(sample.tensors["input_ids"]) for sample in samples), default=0)
    shape = (max(config.controls, 2), len(samples), width)  # two for the two swaps
    return torch.from_numpy(np.random.default_rng(config.seed + 1).random(shape))


def _mean_colour(samples: Sequence[Sample]) -> Float[Tensor, " channels"]:
    """Return the mean colour of all images; nothing for texts."""
    images = images_of(samples)
    return torch.stack([image.double().mean((1, 2)) for image in images]).mean(0) if images else torch.empty(0)


def _altered(chunk: _Chunk) -> Iterator[dict[str, Tensor]]:
    """Yield the samples with the region changed, then with each control."""
    return _altered_texts(chunk) if chunk.grid is None else _altered_images(chunk)


def _altered_images(chunk: _Chunk) -> Iterator[dict[str, Tensor]]:
    grid = chunk.grid
    region = chunk.changed
    name, images = image_of(chunk.batch)
    assert grid is not None
    if chunk.source is not None:
        assert isinstance(chunk.region.which, tuple)
        box = Box(*chunk.region.which[1:])
        size = (images.shape[2], images.shape[3])
        controls = [elsewhere(box, size, draw) for draw in chunk.random[1, :, 0].tolist()]
        for boxes in ([box] * len(images), controls):
            yield {**chunk.batch, name: pasted(images, chunk.source, boxes, chunk.random[0])}
        return
    if chunk.pictures is not None:
        assert chunk.valid is not None
        for pictures in chunk.pictures:
            yield {**chunk.batch, name: with_picture(images, pictures, chunk.valid)}
        return
    for donors in chunk.donors:
        if chunk.region.kind in PLACEMENTS:
            donor_evidence = pixels(chunk.region, donors, grid)
            yield {**chunk.batch, name: swap_placement(images, region, donor_evidence, PLACEMENTS[chunk.region.kind])}
            continue
        if chunk.valid is not None:
            swapped = SWAPS_OF_IMAGES[chunk.region.kind](images, image_of(donors)[1], chunk.valid)
            yield {**chunk.batch, name: swapped}
            continue
        # With the default margin, whatever that of the swap: masks seldom hold the very edge of an object, and that of
        # a donor would be evidence for its class.
        donor_evidence = ~pixels(Region("outside"), donors, grid)
        yield {**chunk.batch, name: swap_pixels(images, region, image_of(donors)[1], donor_evidence)}
    if chunk.donors:
        return
    # e.g. images of 224 x 224 in 14 x 14 patches: patches of 16 x 16 pixels, a side of 14 units.
    patch = torch.tensor([s // g for s, g in zip(region.shape[1:], grid, strict=True)], device=region.device)
    unit = patch if chunk.region.kind == "patches" else torch.ones_like(patch)
    sides = torch.tensor(region.shape[1:], device=region.device) // unit
    # Between a quarter and three quarters of the side away, by whole patches where the region is made of such.
    offsets = ((0.25 + 0.5 * chunk.random[: chunk.config.controls]) * sides).round().long().clamp(min=1) * unit
    for mask in (region, *(shifted(region, offset) for offset in offsets)):
        fill = chunk.config.strategy == "fill"
        yield {**chunk.batch, name: filled(images, mask, chunk.colour) if fill else inpainted(images, mask)}


def _given_tokens(region: Region, donors: Mapping[str, Tensor]) -> Bool[Tensor, "batch tokens"]:
    """Return which tokens donors may give: those in the same place, or else all; but never their evidence."""
    if not region.exchanged:
        return tokens(Region("outside"), donors)
    place = tokens(region, donors)
    return place & (donors["rationale"] != 1) if "rationale" in donors else place


def _reworded(chunk: _Chunk) -> Iterator[dict[str, Tensor]]:
    """Yield the texts with the wording of their donors of another class, then of those of the same class."""
    texts = chunk.region.texts
    assert chunk.rows is not None
    for donors, rows in zip(chunk.donors, chunk.donor_rows, strict=True):
        changed, of_donors = ([texts[row] for row in each] for each in (chunk.rows, rows))
        if chunk.region.kind == "case":
            yield written_like(chunk.batch, cast("list[CasedText]", changed), cast("list[CasedText]", of_donors))
        else:
            words = cast("list[TextWords]", changed), cast("list[TextWords]", of_donors)
            yield with_words_of(chunk.batch, donors, *words, chunk.most_tokens)


def _altered_texts(chunk: _Chunk) -> Iterator[dict[str, Tensor]]:
    batch = chunk.batch
    if chunk.region.kind == "length":
        yield from at_lengths(batch, [inner_tokens(donors).sum(1) for donors in chunk.donors])
        return
    if chunk.region.is_wording:
        yield from _reworded(chunk)
        return
    content = content_tokens(batch)
    region = chunk.changed
    random = chunk.random[..., : content.shape[1]]
    for donors, keys in zip(chunk.donors, random, strict=False):
        usable = _given_tokens(chunk.region, donors)
        places = places_in_order(region, usable, keys)
        changeable = region & usable.any(1, keepdim=True)
        yield {**batch, "input_ids": swap_places(batch["input_ids"], changeable, donors["input_ids"], places)}
    if chunk.donors:
        return
    inputs = {name: x for name, x in batch.items() if name not in (*ANNOTATIONS, "label")}
    for mask in (region, *(random_tokens(content, region.sum(1), keys) for keys in random[: chunk.config.controls])):
        yield delete_tokens(inputs, ~mask & (batch["attention_mask"] != 0))
