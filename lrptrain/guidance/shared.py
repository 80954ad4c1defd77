"""Means of losses over the samples of all processes."""

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.guidance.objective import Term
from lrptrain.metrics.base import at_least_float32

Sum = Callable[[Float[Tensor, " numbers"]], Float[Tensor, " numbers"]]


def share(
    terms: Mapping[str, Term],
    names: Sequence[str],
    counts: Mapping[str, int],
    loss: Tensor,
    processes: int,
    add_up: Sum,
) -> tuple[dict[str, Tensor], dict[str, float], dict[str, int]]:
    """Take every loss's mean over the samples of all processes, with one sum over processes.

    Args:
        terms: Of this process; one that is not finite is left out.
        names: Of all losses, the same in every process.
        counts: To be summed over processes, too.
        loss: Of the task, for its device and precision.
        processes: How many there are.
        add_up: Sums a row of numbers over them.

    Returns:
        What this process adds to its own loss, by name: the mean over processes of what they add, which DDP takes of
        their gradients, is the mean over all samples; the mean over all samples itself, of losses that have some; and
        the summed counts, with `skipped`, the terms that were not finite.
    """
    fine = {name: term for name, term in terms.items() if bool(term.total.isfinite())}
    zero, counts = at_least_float32(loss.detach()).new_zeros(()), {**counts, "skipped": len(terms) - len(fine)}
    pairs = [(fine[name].count, fine[name].total.detach()) if name in fine else (zero, zero) for name in names]
    row = torch.stack([*(x.to(zero) for pair in pairs for x in pair), *(zero + count for count in counts.values())])
    summed = add_up(row).tolist()
    samples = dict(zip(names, summed[: 2 * len(names) : 2], strict=True))
    totals = dict(zip(names, summed[1 : 2 * len(names) : 2], strict=True))
    mine = {name: term.total * processes / max(samples[name], 1) for name, term in fine.items()}
    means = {name: totals[name] / samples[name] for name in names if samples[name]}
    return mine, means, {name: int(x) for name, x in zip(counts, summed[2 * len(names) :], strict=True)}
