"""Draw the sample while a validation set passes by, in as many processes as there are."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lrptrain.batch import Sample, batch_length
from lrptrain.monitor.sample import SampleKeeper
from lrptrain.trainers.processes import gather, rank_and_size


class Draw:
    """The sample of a validation set, empty until it has passed once.

    Args:
        max_samples: In all processes together.
        seed: Of the draw.
    """

    def __init__(self, max_samples: int, seed: int) -> None:
        self.samples: list[Sample] | None = None
        self._keeper, self._passed = SampleKeeper(max_samples, seed), 0

    def pass_by(self, batch: Mapping[str, Any], undivided: float) -> None:
        """Let a batch pass by; `undivided` is the length of the whole set, beyond which a sampler pads."""
        rank, size = rank_and_size()
        indices = (self._passed + np.arange(batch_length(batch))) * size + rank
        self._passed += batch_length(batch)
        self._keeper.add(batch, indices, (indices < undivided).tolist())

    def drawn(self) -> list[Sample]:
        """What this process has of the sample; all processes must ask at the same time."""
        if self.samples is None:
            self.samples = self._keeper.choose(gather((dict(self._keeper.counts), self._keeper.keys())))
            self._keeper.kept.clear()
        return self.samples
