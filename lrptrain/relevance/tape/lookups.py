"""In which order a model looks the explained token ids up: as they are, token by token, or in one row."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Lookup:
    """How the ids that a model looks up are arranged, against those that are explained, `[batch, ...]`.

    Attributes:
        samples: Number of samples.
        transposed: Whether the tokens come first, `[tokens, batch]`; otherwise the ids are in reading order.
    """

    samples: int
    transposed: bool = False

    def to_samples(self, embeddings: Tensor) -> Tensor:
        """Arrange what was looked up as `[batch, tokens, width]`; several texts of a sample become one."""
        if self.transposed:
            return embeddings.transpose(0, 1)
        return embeddings.reshape(self.samples, -1, embeddings.shape[-1])

    def from_samples(self, embeddings: Tensor, shape: torch.Size) -> Tensor:
        """Undo `to_samples`; `shape` is that of what was looked up, or of as many samples as there are."""
        if self.transposed:
            return embeddings.transpose(0, 1)
        return embeddings if embeddings.shape == shape else embeddings.reshape(shape)


def lookup_of(looked_up: Tensor, ids: Tensor) -> Lookup | None:
    """How `looked_up` arranges the explained ids, in any integer type; None if it holds others."""
    if looked_up is ids or (looked_up.shape == ids.shape and _equal(looked_up, ids)):
        return Lookup(ids.shape[0])
    if ids.ndim == 2 and looked_up.shape == ids.shape[::-1] and _equal(looked_up, ids.t()):
        return Lookup(ids.shape[0], transposed=True)
    if looked_up.numel() == ids.numel() and looked_up.ndim <= ids.ndim and _equal(looked_up.flatten(), ids.flatten()):
        return Lookup(ids.shape[0])
    return None


def copied_tokens(looked_up: Tensor, ids: Tensor) -> int:
    """Return how many tokens of the explained ids a second lookup reads once more, from its first token on.

    All of them, or all but the last behind a start token, as the decoder of a classifier does.
    """
    if looked_up.shape != ids.shape or ids.ndim != 2:
        return 0
    length = ids.shape[1]
    if looked_up is ids or _equal(looked_up, ids):
        return length
    return length - 1 if length > 1 and _equal(looked_up[:, 1:], ids[:, :-1]) else 0


def embedding_table(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Return the weight that a call of `embedding` looks up."""
    table: Tensor = args[1] if len(args) > 1 else kwargs["weight"]
    return table


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.device == other.device and bool((one == other).all())
