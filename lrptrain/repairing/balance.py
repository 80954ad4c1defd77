"""Samples in which a shortcut tells nothing of the class: with swapped surroundings, or with all groups alike."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lrptrain.batch import Sample, batched
from lrptrain.guidance.evidence import contrasted, evidence, swap_evidence
from lrptrain.intervention.swap import swap_surroundings

INPUTS = ("image", "pixel_values", "input_ids")


def annotated(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples whose annotation tells evidence from surroundings."""
    return [sample for sample in samples if _is_annotated(sample)]


def _is_annotated(sample: Sample) -> bool:
    if not sample.tensors.keys() & {"mask", "boxes", "rationale"}:
        return False
    return bool(contrasted(evidence(batched([sample], 1)[0])).any())


def swapped_batches(
    samples: Sequence[Sample], batch_size: int, device: torch.device, margin: int | None, generator: torch.Generator
) -> Iterator[tuple[Int[np.ndarray, " batch"], dict[str, Tensor]]]:
    """Yield batches in which every sample has the surroundings of another one, and the indices of their samples.

    The donor's own evidence is painted over, or not given: what is left of a donor is what the class must not be read
    from.

    Args:
        samples: Annotated samples.
        batch_size: Samples per batch.
        device: Where the model is.
        margin: Pixels or tokens around the evidence that stay; None for 0.
        generator: The random numbers of who gives to whom.
    """
    order = torch.randperm(len(samples), generator=generator).numpy()
    # A batch of one would have no donor: the last one takes the rest.
    starts = list(range(0, max(len(order) - 1, 1), batch_size))
    ends = [*starts[1:], len(order)]
    for start, end in zip(starts, ends, strict=True):
        rows = order[start:end]
        (batch,) = batched([samples[row] for row in rows], len(rows), device)
        name = next(each for each in INPUTS if each in batch)
        annotation = swap_evidence({**batch, "evidence": evidence(batch)})
        swapped, _ = swap_surroundings(batch[name], annotation, margin, generator, without_evidence=True)
        yield rows, {**batch, name: swapped}


def weights_by(members: Int[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
    """Return weights by which all groups count alike, with a mean of 1.

    E.g. the groups 0 0 0 1 have the weights 2/3, 2/3, 2/3 and 2.
    """
    _, index, sizes = np.unique(members, return_inverse=True, return_counts=True)
    return len(members) / (len(sizes) * sizes[index])
