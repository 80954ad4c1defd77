"""The swap of cues: what an inspection names is exchanged between the samples of a training batch.

It is the exchange that the test of the cue is made by, so that whatever is named can be mended by what it names.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from lrptrain.batch.annotations import IGNORED
from lrptrain.batch.call import ARGUMENT, TEXTS, rows_of
from lrptrain.cues.another_input import AnotherInput
from lrptrain.cues.cue import Cue
from lrptrain.guidance.swaps import Swap, Swapped
from lrptrain.cues.donors import random_donors

LABELS = ("label", "labels")


def cues_among(swap: Any) -> list[Cue]:
    """Return the cues that a user names: cues, or what an inspection has judged; none of other swaps.

    Raises:
        ValueError: If an inspection named nothing, or cues are mixed with anything else.
    """
    if isinstance(swap, str):
        return []
    several = list(swap) if isinstance(swap, Iterable) else [swap]
    cues = [cue for each in several if isinstance(cue := getattr(each, "cue", each), Cue)]
    if not several:
        raise ValueError("swap=[] names nothing: an inspection that finds no fault has nothing to swap")
    if cues and len(cues) < len(several):
        raise ValueError("swap= mixes cues with something else: pass cues alone, such as report.faults")
    return cues


def cue_swap(cues: Sequence[Cue]) -> Swap:
    """Return the swap of cues, each taken from a donor of its own.

    Args:
        cues: The cues, all of images or all of texts. Faults are told by annotations, which batches need then.

    Raises:
        ValueError: If they are of both, or one is another input of the model as a whole.
    """
    if any(isinstance(cue, AnotherInput) for cue in cues):
        raise ValueError("another input of the model is no swap of the explained one: leave the cue out of swap=")
    rewrites = [hasattr(cue, "language") for cue in cues]
    if any(rewrites) and not all(rewrites):
        raise ValueError("swap= names cues of images and of texts: train on those of one kind")
    names = ", ".join(dict.fromkeys(cue.name for cue in cues))
    needs = any(cue.needs_annotation for cue in cues)
    return Swap(names, partial(_exchange, tuple(cues)), needs_annotation=needs, rewrites=all(rewrites))


def _exchange(
    cues: Sequence[Cue],
    explained: Tensor,
    annotation: Shaped[Tensor, " batch *area"],
    margin: int | None,
    generator: torch.Generator | None,
    without_evidence: bool,
    donors: Int[Tensor, " batch"] | None,
    itself: bool,
    arguments: Mapping[str, Any] = MappingProxyType({}),
) -> Swapped:
    """Give every sample the cues of others; see `Swap`."""
    usable = (annotation != IGNORED).flatten(1).any(1).to(explained.device)
    rows = usable & (usable.sum() > 1)
    if not rows.any():
        return Swapped(explained, rows)
    is_text = hasattr(cues[0], "language")
    batch = _texts(explained, annotation, arguments) if is_text else {"image": explained, "mask": annotation}
    name = next(iter(batch))
    changed: dict[str, Any] = dict(batch)
    for cue in cues:
        donor = random_donors(usable, generator) if donors is None else donors.to(usable.device)
        given = rows_of(batch, donor)
        if is_text:
            given = _as_wide_as(changed, given)
        changed = cue.exchange(changed, given)
    if not is_text:
        return Swapped(torch.where(rows[:, None, None, None], changed[name], explained), rows)
    others = {key.removeprefix(ARGUMENT): x for key, x in changed.items() if key not in (name, "rationale")}
    return Swapped(changed[name], rows, others)


def _texts(
    explained: Tensor, annotation: Shaped[Tensor, "batch tokens"], arguments: Mapping[str, Any]
) -> dict[str, Tensor]:
    """Return the texts of a step as a batch: what the model is given for each token, and the annotation.

    Raises:
        ValueError: If they are no token ids with an attention mask, which is what becomes longer or shorter.
    """
    mask = arguments.get("attention_mask")
    if explained.ndim != 2 or explained.is_floating_point() or not isinstance(mask, Tensor):
        raise ValueError(
            "a swap of cues rewrites texts by their token ids: the step has to give the model input_ids and an "
            "attention_mask of their shape"
        )
    of_tokens = {
        name if name in TEXTS else f"{ARGUMENT}{name}": x
        for name, x in arguments.items()
        if isinstance(x, Tensor) and x is not explained and x.shape[:2] == explained.shape and name not in LABELS
    }
    return {"input_ids": explained, **of_tokens, "rationale": annotation.to(explained.device)}


def _as_wide_as(batch: Mapping[str, Tensor], donors: Mapping[str, Any]) -> dict[str, Any]:
    """Return donors padded to the width of texts that have become longer; see `lrptrain.batch.reading`."""
    more = batch["input_ids"].shape[1] - donors["input_ids"].shape[1]
    if more <= 0:
        return dict(donors)
    padding = {name: IGNORED if name == "rationale" else 0 for name in donors}
    return {
        name: torch.cat([x, x.new_full((len(x), more, *x.shape[2:]), padding[name])], 1) for name, x in donors.items()
    }
