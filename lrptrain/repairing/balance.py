"""Samples in which a shortcut says nothing about the class: with something of others, or with all groups alike."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lrptrain.batch import IMAGES, Sample, batched
from lrptrain.batch.call import samples_of
from lrptrain.cues.sources import random_cycle
from lrptrain.guidance.evidence import contrasted, evidence
from lrptrain.guidance.swap import Swap
from lrptrain.guidance.swap_names import OF_IMAGES, OUTSIDE

GROUPS = "groups"
NAMES = (*OF_IMAGES, GROUPS)
"""What may tell nothing of the class: what `swap=` takes of images, given by others, or the samples' groups."""
FEWEST = 20
"""Fewer samples than this are refused: a last layer has more numbers than they could fix."""


def noun(balance: str) -> str:
    """Return what samples are given of others, in words."""
    return "surroundings" if balance == OUTSIDE else balance


def needed(balance: str) -> str:
    """Return what a balance needs of a sample beside its label."""
    return {OUTSIDE: "an annotation (mask, boxes or rationale)", GROUPS: "a `group`"}.get(balance, "an image")


def is_usable(sample: Sample, balance: str) -> bool:
    """Return whether a sample has what a balance needs, and a label."""
    if sample.label < 0:
        return False
    if balance == GROUPS:
        return sample.group is not None
    return is_annotated(sample) if balance == OUTSIDE else has_image(sample)


def has_image(sample: Sample) -> bool:
    """Return whether a sample has an image."""
    return bool(set(sample.tensors) & set(IMAGES))


def groups_of(samples: Sequence[Sample]) -> Int[np.ndarray, " samples"]:
    """Return a number for each pair of a class and a group.

    A background, or a scanner, tells the class until it is as frequent in each of them: so groups are those of a class,
    whether the samples' `group` says so or not.
    """
    pairs = np.array([(sample.group, sample.label) for sample in samples])
    return np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)


class Swaps(NamedTuple):
    """How something is swapped between samples."""

    copies: int
    batch_size: int
    seed: int


class SwappedBatch(NamedTuple):
    """Samples that were given something of others."""

    rows: Int[np.ndarray, " batch"]
    batch: dict[str, Tensor]


def is_annotated(sample: Sample) -> bool:
    """Return whether a sample's annotation tells evidence from surroundings."""
    if not sample.tensors.keys() & {"mask", "boxes", "rationale"}:
        return False
    return bool(contrasted(evidence(batched([sample], 1)[0])).any())


def swapped_batches(
    samples: Sequence[Sample], balance: str, swaps: Swaps, device: torch.device, generator: torch.Generator
) -> Iterator[SwappedBatch]:
    """Yield batches in which every sample is given something of another one.

    The source's own evidence is painted over, or not given: what is left of a source is what the class must not be read
    from.
    """
    order = torch.randperm(len(samples), generator=generator).numpy()
    # A batch of one would have no source: the last one takes the rest.
    starts = list(range(0, max(len(order) - 1, 1), swaps.batch_size))
    ends = [*starts[1:], len(order)]
    for start, end in zip(starts, ends, strict=True):
        rows = order[start:end]
        (batch,) = batched([samples[row] for row in rows], len(rows), device)
        sources = random_cycle(len(rows), generator)
        yield SwappedBatch(rows, _swapped(batch, sources, balance))


class ExchangedBatch(NamedTuple):
    """Samples that were given something of one of their own class, and of one of another class.

    Attributes:
        same: What the model is given with that of the same class: the control.
        other: What it is given with that of another class.
    """

    rows: Int[np.ndarray, " batch"]
    same: dict[str, Tensor]
    other: dict[str, Tensor]


def exchanged_batches(
    samples: Sequence[Sample],
    folds: Sequence[Int[np.ndarray, " samples"]],
    balance: str,
    swaps: Swaps,
    device: torch.device,
) -> Iterator[ExchangedBatch]:
    """Yield each sample with something of a source of its class, and with that of one of another class.

    Sources are of the sample's own fold, so that a layer that was made without the fold has seen neither. Samples
    without such sources are left out.
    """
    rng = np.random.default_rng(swaps.seed)
    label = np.array([sample.label for sample in samples])
    exchanged: list[tuple[int, int, int]] = []
    for fold in folds:
        for row in fold:
            alike, unlike = fold[(label[fold] == label[row]) & (fold != row)], fold[label[fold] != label[row]]
            if len(alike) and len(unlike):
                exchanged.append((int(row), int(rng.choice(alike)), int(rng.choice(unlike))))
    size = max(swaps.batch_size // 3, 1)
    for start in range(0, len(exchanged), size):
        # [samples, 3]: each sample and its two sources are in one batch, padded and scaled alike.
        rows = np.array(exchanged[start : start + size])
        (batch,) = batched([samples[row] for row in rows.T.flatten()], rows.size, device)
        same, other = (_with_sources(batch, len(rows), column, balance) for column in (1, 2))
        yield ExchangedBatch(rows[:, 0], same, other)


def _with_sources(batch: dict[str, Tensor], count: int, column: int, balance: str) -> dict[str, Tensor]:
    """Return the first samples of a batch, each with something of the one that stands so many columns behind it."""
    sources = torch.arange(3 * count)
    sources[:count] += column * count
    swapped = _swapped(batch, sources, balance)
    return {name: values[:count] for name, values in swapped.items()}


def _swapped(batch: dict[str, Tensor], sources: Int[Tensor, " batch"], balance: str) -> dict[str, Tensor]:
    """Return a batch in which each sample has something of its source."""
    given = samples_of(batch, sources.to(next(iter(batch.values())).device))
    (cue,) = Swap([balance]).cues("images" if any(name in batch for name in IMAGES) else "texts")
    return cue.exchange(batch, given)


def weights_by(members: Int[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
    """Return weights by which all groups count alike, with a mean of 1.

    E.g. the groups 0 0 0 1 have the weights 2/3, 2/3, 2/3 and 2.
    """
    _, index, sizes = np.unique(members, return_inverse=True, return_counts=True)
    return len(members) / (len(sizes) * sizes[index])
