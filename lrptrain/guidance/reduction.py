"""Means of losses over the samples of all processes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.guidance.losses import LossSum
from lrptrain.relevance.propagation.propagator import at_least_float32

SumOverProcesses = Callable[[Float[Tensor, " numbers"]], Float[Tensor, " numbers"]]


@dataclass(frozen=True)
class ReducedLosses:
    """Every loss as the mean over the samples of all processes.

    Attributes:
        local: What this process adds to its own loss, by name, with its graph. The mean over processes of what they
            add, which DDP takes of their gradients, is the mean over all samples.
        means: The mean over the samples of all processes, of losses that have some.
        counts: The counts, summed over processes; with `skipped`, the number of losses that were not finite.
    """

    local: dict[str, Float[Tensor, ""]]
    means: dict[str, float]
    counts: dict[str, int]


def reduce_losses(
    losses: Mapping[str, LossSum],
    names: Sequence[str],
    counts: Mapping[str, int],
    task_loss: Tensor,
    processes: int,
    sum_over_processes: SumOverProcesses,
) -> ReducedLosses:
    """Take every loss's mean over the samples of all processes, with one sum over processes."""
    # A loss that is not finite would make every weight nan: it is left out, and counted. Its name stays in `names`, for
    # the row below must be equally long in all processes.
    finite = {name: loss for name, loss in losses.items() if bool(loss.total.isfinite())}
    zero = at_least_float32(task_loss.detach()).new_zeros(())
    counts = {**counts, "skipped": len(losses) - len(finite)}
    # One row for all: [samples of loss 1, total of loss 1, samples of loss 2, ..., count 1, count 2, ...]
    pairs = [(finite[name].count, finite[name].total.detach()) if name in finite else (zero, zero) for name in names]
    row = torch.stack([*(x.to(zero) for pair in pairs for x in pair), *(zero + count for count in counts.values())])
    summed = sum_over_processes(row).tolist()
    samples = dict(zip(names, summed[: 2 * len(names) : 2], strict=True))
    totals = dict(zip(names, summed[1 : 2 * len(names) : 2], strict=True))
    return ReducedLosses(
        # e.g. 2 processes with totals 3 of 2 samples and 6 of 1: they add 3 * 2 / 3 = 2 and 6 * 2 / 3 = 4, of which DDP
        # takes the mean, 3: that of all three samples. The mean of the processes' own means would be 3.75.
        local={name: loss.total * processes / max(samples[name], 1) for name, loss in finite.items()},
        means={name: totals[name] / samples[name] for name in names if samples[name]},
        counts={name: int(x) for name, x in zip(counts, summed[2 * len(names) :], strict=True)},
    )
