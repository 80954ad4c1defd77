"""A fixed, reproducible, class-stratified sample of a validation set, drawn while its batches are validated.

Every index of the validation set has a pseudo-random priority. The sample has, of each class, the samples of the
lowest priorities, as many as the class has places. So it depends neither on the size of batches nor on the number of
processes.
"""

from bisect import insort
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lrptrain.batch import IMAGES, Sample, batch_length, take
from lrptrain.batch.checks import Limits, unusable
from lrptrain.trainers.processes import DataShare, gather, rank_and_size

Key = tuple[float, int]  # (priority, index in the validation set)
Rank = tuple[int, int]  # (class, number of the sample in it, from 0 on)


class ValidationSample:
    """The sample of a validation set that several processes may share.

    A class's number of places only shrinks while more samples come, so that no candidate is dropped too early.

    Attributes:
        samples: What this process has of the sample; None until `finish` was called. Their ids are all different: where
            those of the batches repeat, the place in the validation set stands behind them.
        left_out: Why samples were left out by the draw, by such ids; in this process. Empty until `finish` was called.
        repeats: Of how many samples how many ids are different, in all processes, where some repeat; else None.
        counts: The number of samples of each class seen so far, from `finish` on in all processes; -1 is the class of
            samples without a label.
        candidates: For each class the candidates among all samples seen so far with their keys, by ascending key.
    """

    def __init__(self, max_samples: int, seed: int, limits: Limits | None = None, in_order: bool = True) -> None:
        self.samples: list[Sample] | None = None
        self.left_out: dict[int | str, str] = {}
        self.repeats: tuple[int, int] | None = None
        self.counts: Counter[int] = Counter()
        self.candidates: dict[int, list[tuple[Key, Sample]]] = {}
        self._max_samples = max_samples
        self._seed = seed
        self._limits = limits
        self._in_order = in_order
        self._seen = 0
        self._ranks: dict[int | str, Rank] = {}
        # The id of each sample that is left out and why, by its place in the validation set.
        self._problems: dict[int, tuple[int | str, str]] = {}

    def add_batch(
        self,
        batch: Mapping[str, Any],
        set_length: float = float("inf"),
        indices: Int[np.ndarray, " batch"] | None = None,
        share: DataShare | None = None,
    ) -> None:
        """Let the samples of a batch compete for the places.

        Without `indices`, batches come in the order of the set, dealt out in turn; beyond `set_length`, its length, a
        distributed sampler pads. Of a part that several processes are given, each counts every so many samples.
        """
        counted = np.ones(batch_length(batch), bool)
        if indices is None:
            share = share or DataShare(*rank_and_size())
            numbers = self._seen + np.arange(batch_length(batch))
            # A distributed sampler deals samples out in turn: process 1 of 2 has the indices 1, 3, 5, ...
            indices = numbers * share.parts + share.part
            counted = numbers % share.readers == share.reader
            self._seen += batch_length(batch)
        # Indices beyond the end are samples that the sampler repeated so that all processes have equally many.
        rows = np.flatnonzero(counted & (indices < set_length)).tolist()
        labels = batch["label"].clamp(min=-1).tolist() if "label" in batch else [-1] * batch_length(batch)
        # Before they are counted: a label that is no class would be a class of its own, with places.
        problems = unusable(batch, self._limits) if self._limits is not None else {}
        for row in problems.keys() & set(rows):
            place = int(indices[row])
            self._problems[place] = (take(batch, row, self._id(place)).sample_id, problems[row])
        rows = [row for row in rows if row not in problems]
        self.counts.update(labels[row] for row in rows)
        places = allocate(self.counts, self._max_samples)
        priority = priorities(indices, self._seed)
        for row in rows:
            candidates = self.candidates.setdefault(labels[row], [])
            key = (float(priority[row]), int(indices[row]))
            # One candidate more than places: so a class without any place, too, has one to compare with; `choose` drops
            # it.
            limit = places[labels[row]] + 1
            if len(candidates) < limit or key < candidates[-1][0]:
                # Only now is the sample copied: of a large validation set few samples get here.
                insort(candidates, (key, take(batch, row, self._id(key[1]))), key=lambda candidate: candidate[0])
                del candidates[limit:]

    def _id(self, place: int) -> int | str:
        return place if self._in_order else f"pass-{place}"

    def finish(self) -> list[Sample]:
        """Return what this process has of the sample; all processes must call it at the same time."""
        if self.samples is None:
            everywhere = gather((dict(self.counts), self.keys()))
            chosen = self.choose(everywhere)
            samples = _of_one_type(self._told_apart(chosen))
            self.counts = sum((Counter(part) for part, _ in everywhere), Counter())
            self.candidates.clear()
            # A table's column has one type: where one id is a string, all are, in all processes.
            named = any(gather(any(isinstance(sample.sample_id, str) for sample in samples)))
            self.samples = [replace(each, sample_id=str(each.sample_id)) for each in samples] if named else samples
            self._ranks = {each.sample_id: rank for each, (_, rank, _) in zip(self.samples, chosen, strict=True)}
        return self.samples

    @property
    def size(self) -> int:
        """The size of the whole sample, in all processes together, of which some may have been left out since."""
        return min(self._max_samples, self.counts.total())

    def first(self, count: int) -> list[Sample]:
        """Return what this process has of a smaller sample, drawn like the whole one and part of every larger one."""
        places = allocate(self.counts, count)
        ranked = ((sample, self._ranks[sample.sample_id]) for sample in self.samples or [])
        return [sample for sample, (label, number) in ranked if number < places[label]]

    def _told_apart(self, chosen: Sequence[tuple[int, Rank, Sample]]) -> list[Sample]:
        """Return samples whose ids do not repeat: one that fails later is left out by its id."""
        ids = [str(sample.sample_id) for _, _, sample in chosen]
        parts = gather((ids, [str(sample_id) for sample_id, _ in self._problems.values()]))
        counts = Counter(each for part in parts for column in part for each in column)
        of_samples = Counter(each for part, _ in parts for each in part)
        if of_samples.total() > len(of_samples):
            self.repeats = (of_samples.total(), len(of_samples))

        def unique(sample_id: int | str, place: int) -> int | str:
            return sample_id if counts[str(sample_id)] == 1 else f"{sample_id} (place {place})"

        # By places that all processes know, in the order in which batches came.
        problems = sorted(self._problems.items())
        self.left_out = {unique(sample_id, place): problem for place, (sample_id, problem) in problems}
        return [replace(sample, sample_id=unique(sample.sample_id, place)) for place, _, sample in chosen]

    def keys(self) -> dict[int, list[Key]]:
        """Return the candidates' keys by class, to be compared with those of other processes."""
        return {label: [key for key, _ in candidates] for label, candidates in self.candidates.items()}

    def choose(
        self, everywhere: Sequence[tuple[Mapping[int, int], Mapping[int, list[Key]]]]
    ) -> list[tuple[int, Rank, Sample]]:
        """Return the samples of this process that belong to the sample of the whole set, in the order of their classes.

        Each comes behind its place in the validation set, and its class and rank in it over all processes.
        """
        counts: Counter[int] = sum((Counter(part) for part, _ in everywhere), Counter())
        chosen = []
        # All processes see the keys of all, and reach the same choice; the samples themselves stay where they are.
        for label, places in allocate(counts, self._max_samples).items():
            in_order = sorted(key for _, keys in everywhere for key in keys.get(label, ()))[:places]
            ranks = {key: (label, rank) for rank, key in enumerate(in_order)}
            mine = self.candidates.get(label, ())
            chosen += [(key[1], ranks[key], sample) for key, sample in mine if key in ranks]
        return chosen


def _of_one_type(samples: list[Sample]) -> list[Sample]:
    """Return samples whose images have the type that most have, in all processes: it is what the model takes."""
    types = Counter(str(x.dtype) for sample in samples for x in _images(sample).values())
    counts = sum(gather(types), Counter[str]())
    if len(counts) < 2:
        return samples
    most = getattr(torch, max(counts, key=lambda name: (counts[name], name)).removeprefix("torch."))
    return [
        replace(sample, tensors=sample.tensors | {name: x.to(most) for name, x in _images(sample).items()})
        for sample in samples
    ]


def _images(sample: Sample) -> dict[str, Tensor]:
    return {name: sample.tensors[name] for name in IMAGES if name in sample.tensors}


def priorities(indices: Int[np.ndarray, " n"], seed: int) -> Float[np.ndarray, " n"]:
    """Return a uniform number in [0, 1) for every index, by the mixer of splitmix64 (Steele et al. 2014)."""
    with np.errstate(over="ignore"):  # the arithmetic is modulo 2^64
        # Its state grows by a constant per step, so that the number of an index needs none of those before: index i
        # gives the (i + 1)-th output of a generator with this seed, in whichever process the sample turns up.
        x = (indices.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (x ^ (x >> np.uint64(31))).astype(np.float64) / 2.0**64


def allocate(counts: Mapping[int, int], places: int) -> dict[int, int]:
    """Allocate places to classes as evenly as their sizes allow; what is left over goes to the lower classes.

    Six places for classes of 1, 9 and 9 samples are allocated as 1, 3 and 2.
    """
    remaining = {label: count for label, count in sorted(counts.items()) if count}
    allocated = dict.fromkeys(remaining, 0)
    while places > 0 and remaining:
        per_class = max(1, places // len(remaining))
        # With fewer places than classes only the first of them get one.
        for label in list(remaining)[:places]:
            added = min(per_class, remaining[label])
            allocated[label] += added
            remaining[label] -= added
            places -= added
        remaining = {label: count for label, count in remaining.items() if count}
    return allocated
