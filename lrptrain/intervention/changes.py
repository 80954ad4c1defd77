"""The inputs that an intervention has made of a few samples, kept to be shown."""

from collections.abc import Collection, Mapping
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
    """

    changed: Mapping[str, Tensor]
    control: Mapping[str, Tensor]
    answer: Float[np.ndarray, " classes"]
    changed_answer: Float[np.ndarray, " classes"]
    control_answer: Float[np.ndarray, " classes"]


@dataclass
class KeptChanges:
    """Keeps what `effects` makes of chosen samples; all others are forgotten at once.

    Attributes:
        rows: Which samples are kept of each region, as indices into those that were scored.
        changes: What was kept, by region and index.
    """

    rows: Mapping[Region, Collection[int]]
    changes: dict[tuple[Region, int], Change] = field(default_factory=dict)

    def wants(self, region: Region, row: int) -> bool:
        """Return whether what becomes of a sample is to be kept."""
        return row in self.rows.get(region, ())

    def keep(
        self,
        region: Region,
        row: int,
        place: int,
        variants: list[Mapping[str, Tensor]],
        answers: list[Float[np.ndarray, "batch classes"]],
    ) -> None:
        """Keep a sample.

        Args:
            region: What was changed.
            row: The index of the sample.
            place: Its place in the batches.
            variants: The batch with the region changed, then under each control.
            answers: The class probabilities of the batch as it is, then of each variant.
        """
        changed, control = (
            {name: values[place].cpu().clone() for name, values in each.items()} for each in variants[:2]
        )
        # Copies: a view would keep the whole batch in memory.
        self.changes[region, row] = Change(changed, control, *(each[place].copy() for each in answers[:3]))
