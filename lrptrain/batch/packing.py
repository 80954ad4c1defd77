"""Rows that hold several texts, one behind the other: each has an answer of its own, so that no row is a sample."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

_BOUNDS = ("cu_seqlens", "cu_seq_lens", "cu_seq_lens_q", "cu_seq_lens_k", "seq_idx", "sequence_ids")
"""Where texts begin in a row, as flash attention and `DataCollatorWithFlattening` of transformers name it."""


def check_unpacked(batch: Mapping[str, Any]) -> None:
    """Reject a batch in which one sample holds several texts."""
    name = next((name for name in _BOUNDS if name in batch), "")
    positions = batch.get("position_ids")
    if not name and not (isinstance(positions, Tensor) and positions.ndim == 2 and _restarts(positions)):
        return
    what = f"{name!r} says" if name else "'position_ids' start anew within a sample, which says"
    raise ValueError(
        f"{what} that a sample holds several packed texts: make each text a sample, as by "
        "collate_fn=transformers.DataCollatorWithPadding(tokenizer), or without packing"
    )


def _restarts(positions: Tensor) -> bool:
    """Return whether a row counts from 0 on again; padding counts nothing."""
    before, first, after = positions[:, :-2], positions[:, 1:-1], positions[:, 2:]
    return bool(((before > 0) & (first == 0) & (after == 1)).any())
