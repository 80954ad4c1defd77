"""Long texts that are cut into chunks of one width, `[batch, chunks, tokens]`: read as texts of all their tokens."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lrptrain.batch.call import CHUNK


def flattened(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a batch whose chunks stand one behind the other, with their width; any other batch as it is.

    What has a value for each token follows: the mask, the rationale. The model is given them in their own form again.
    """
    ids = batch.get("input_ids")
    if not isinstance(ids, Tensor) or ids.ndim != 3 or ids.is_floating_point():
        return dict(batch)
    flat = {
        name: x.flatten(1, 2) if isinstance(x, Tensor) and x.shape[:3] == ids.shape else x for name, x in batch.items()
    }
    return {**flat, CHUNK: torch.full((len(ids),), ids.shape[2], device=ids.device)}


def chunk_width(batch: Mapping[str, Any]) -> int | None:
    """Return how many tokens a chunk has; None for texts in one piece."""
    return int(batch[CHUNK][0]) if CHUNK in batch else None
