"""Annotations of samples that a loader does not bring, because its collator drops or cannot pad them."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from lrptrain.batch.annotations import IGNORED

_PADDING = {"rationale": IGNORED, "boxes": float("nan")}


class WholeBatch(dict[str, Any]):
    """A batch with all columns of its samples; `own` are those that the loader itself gives."""

    own: Collection[str] = ()


@dataclass(frozen=True)
class WholeBatches:
    """A loader that gives, beside what another one gives, all columns of the samples; it has what `read_once` asks for.

    Attributes:
        dataset: The samples: mappings, or anything else, which is handed on as it is; also a stream of them.
        batch_sampler: Which samples a batch has; None of a stream.
        dropped: The columns that `collate` is not given. (Not those that it is given: a transform of a dataset makes
            others than the dataset names.)
    """

    dataset: Any
    batch_sampler: Any
    collate: Callable[[list[Any]], Any]
    dropped: Collection[str] = ()
    num_workers: int = 0
    batch_size: int = 1

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of a stream."""
        samples = iter(self.dataset)
        while some := list(islice(samples, self.batch_size)):
            yield self.collate_fn(some)

    def collate_fn(self, samples: list[Any]) -> Any:
        """Return the batch of `collate`, and beside it those columns that this leaves out."""
        if not all(isinstance(sample, Mapping) for sample in samples):
            return self.collate(samples)
        known = [{name: x for name, x in sample.items() if name not in self.dropped} for sample in samples]
        batch = self.collate(known)
        if not isinstance(batch, Mapping):
            return batch
        unread = [name for name in samples[0] if name not in batch and all(name in sample for sample in samples)]
        # Rationales of texts are padded where their tokens are, when the batch is read.
        padding = {name: value for name, value in _PADDING.items() if name == "boxes" or "input_ids" not in batch}
        columns = {name: _column([sample[name] for sample in samples], padding.get(name)) for name in unread}
        whole = WholeBatch({**batch, **columns})
        whole.own = tuple(batch)
        return whole


def _column(values: list[Any], padding: float | None) -> Any:
    """Return a column as a tensor, padded if `padding` is a number; as it is where it is no numbers."""
    try:
        rows = [torch.as_tensor(value) for value in values]
        if padding is None:
            return torch.stack(rows)
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=padding)
    except (TypeError, ValueError, RuntimeError):
        return values
