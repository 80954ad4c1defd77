"""The inputs that an intervention has made of a few samples, kept to be shown."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from torch import Tensor

from lrptrain.intervention.regions import Region


@dataclass(frozen=True)
class Change:
    """One sample with a region changed, and under the first control.

    Attributes:
        changed: The model's inputs with the region changed, without the batch axis, on the CPU.
        control: The same under the control.
        answer: The class probabilities of the sample as it is, sharpened as those that the verdict rests on.
        changed_answer: Those of the changed sample.
        control_answer: Those of the control.
        fall: How much further the probability of the predicted class falls than the control moves it, up or down.
    """

    changed: Mapping[str, Tensor]
    control: Mapping[str, Tensor]
    answer: Float[np.ndarray, " classes"]
    changed_answer: Float[np.ndarray, " classes"]
    control_answer: Float[np.ndarray, " classes"]
    fall: float


@dataclass
class KeptChanges:
    """Keeps what `effects` makes of the samples that fall furthest; all others are forgotten at once.

    Attributes:
        groups: For each region, groups of samples, as indices into those that were scored: of each the furthest are
            kept.
        most: The number of samples that are kept of a group.
        changes: What is kept, by region and index.
    """

    groups: Mapping[Region, Sequence[Collection[int]]]
    most: int
    changes: dict[tuple[Region, int], Change] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # With a thousand classes there are as many groups: each offer looks at those of its sample alone.
        self._numbers: dict[tuple[Region, int], list[int]] = {}
        for region, groups in self.groups.items():
            for number, group in enumerate(groups):
                for row in group:
                    self._numbers.setdefault((region, row), []).append(number)
        # By region and number of the group: the rows that are kept of it, those that fall furthest first.
        self._kept: dict[tuple[Region, int], list[int]] = {}

    def offer(self, region: Region, row: int, fall: float, make: Callable[[], Change]) -> None:
        """Keep a sample if it falls further than others of a group.

        Args:
            region: What was changed.
            row: The index of the sample.
            fall: As that of `Change`.
            make: Makes what is kept.
        """
        numbers = self._numbers.get((region, row), [])
        if not any(self._is_among_the_furthest(region, number, fall) for number in numbers):
            return
        self.changes[region, row] = make()
        displaced: list[int] = []
        for number in numbers:
            rows = self._furthest_first(region, {*self._kept.get((region, number), ()), row})
            self._kept[region, number] = rows[: self.most]
            displaced += rows[self.most :]
        # In before others are forgotten: a sample that it displaces in one group may be among the furthest of another.
        for other in set(displaced):
            if not any(other in self._kept.get((region, number), ()) for number in self._numbers[region, other]):
                del self.changes[region, other]

    def furthest(self, region: Region, group: Collection[int]) -> list[int]:
        """Return which of a group's samples are kept, those that fall furthest first."""
        return self._furthest_first(region, [row for row in group if (region, row) in self.changes])[: self.most]

    def _furthest_first(self, region: Region, rows: Iterable[int]) -> list[int]:
        # Of equal falls the smaller index, in whatever order processes or batches came.
        return sorted(rows, key=lambda row: (-self.changes[region, row].fall, row))

    def _is_among_the_furthest(self, region: Region, number: int, fall: float) -> bool:
        rows = self._kept.get((region, number), [])
        return len(rows) < self.most or fall > self.changes[region, rows[-1]].fall
