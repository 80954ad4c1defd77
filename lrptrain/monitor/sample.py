"""A fixed, reproducible, class-stratified sample of a validation set, drawn while its batches pass by."""

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from lrptrain.batch import Sample, batch_length, take

Key = tuple[float, int]  # (priority, index in the validation set)


def priorities(indices: Int[np.ndarray, " n"], seed: int) -> Float[np.ndarray, " n"]:
    """A uniform number in [0, 1) for every index, by the mixer of splitmix64 (Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        x = (indices.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (x ^ (x >> np.uint64(31))).astype(np.float64) / 2.0**64


def allot(counts: Mapping[int, int], places: int) -> dict[int, int]:
    """Share places out over classes as evenly as their sizes allow; what is left over goes to the lower classes."""
    left = {label: count for label, count in sorted(counts.items()) if count}
    shares = dict.fromkeys(left, 0)
    while places > 0 and left:
        each = max(1, places // len(left))
        for label in list(left)[:places]:
            given = min(each, left[label])
            shares[label] += given
            left[label] -= given
            places -= given
        left = {label: count for label, count in left.items() if count}
    return shares


@dataclass
class SampleKeeper:
    """Keeps the candidates of a stratified sample; more passing samples can only make it smaller per class.

    Attributes:
        max_samples: Size of the sample.
        seed: Of the draw.
        counts: How many samples of every class have passed.
    """

    max_samples: int
    seed: int = 0
    counts: Counter[int] = field(default_factory=Counter)
    kept: dict[int, list[tuple[Key, Sample]]] = field(default_factory=dict)

    def add(self, batch: Mapping[str, Any], indices: Int[np.ndarray, " batch"], valid: Iterable[bool]) -> None:
        """Let a batch pass by.

        Args:
            batch: In the contract's form.
            indices: Position of every sample in the whole validation set.
            valid: False for samples that another process counts (a distributed sampler's padding).
        """
        labels = batch["label"].clamp(min=-1).tolist() if "label" in batch else [-1] * batch_length(batch)
        rows = [row for row, counts in enumerate(valid) if counts]
        self.counts.update(labels[row] for row in rows)
        limits = allot(self.counts, self.max_samples)
        drawn = priorities(indices, self.seed)
        for row in rows:
            candidates = self.kept.setdefault(labels[row], [])
            key, limit = (float(drawn[row]), int(indices[row])), limits[labels[row]] + 1
            if len(candidates) < limit or key < candidates[-1][0]:
                insort(candidates, (key, take(batch, row, key[1])), key=lambda entry: entry[0])
                del candidates[limit:]

    def keys(self) -> dict[int, list[Key]]:
        """The candidates' keys per class, to compare with those of other processes."""
        return {label: [key for key, _ in candidates] for label, candidates in self.kept.items()}

    def choose(self, everywhere: Iterable[tuple[Mapping[int, int], Mapping[int, list[Key]]]]) -> list[Sample]:
        """The samples of this process that belong to the sample of the whole validation set, by class and priority.

        Args:
            everywhere: `(counts, keys())` of every process, this one included.
        """
        everywhere = list(everywhere)
        counts: Counter[int] = sum((Counter(part) for part, _ in everywhere), Counter())
        chosen: set[Key] = set()
        for label, places in allot(counts, self.max_samples).items():
            chosen.update(sorted(key for _, keys in everywhere for key in keys.get(label, ()))[:places])
        return [sample for label in sorted(self.kept) for key, sample in self.kept[label] if key in chosen]
