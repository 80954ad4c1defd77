"""Who gives to whom in a training step."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def random_sources(usable: Bool[Tensor, " batch"], generator: torch.Generator | None = None) -> Int[Tensor, " batch"]:
    """Return for every usable sample a random other one of these, each once; the others have themselves.

    In a shuffled batch, another sample has the sample's class as often as any sample of the data, so that its cue says
    nothing. The sample itself always has it: one of `n` would be its own source with a chance of 1 / n, and small
    models learned a shortcut from that in batches of 8.
    """
    sources = torch.arange(len(usable), device=usable.device)
    givers = usable.nonzero().flatten()
    sources[givers] = givers[random_cycle(len(givers), generator).to(usable.device)]
    return sources


def random_cycle(count: int, generator: torch.Generator | None = None) -> Int[Tensor, " count"]:
    """Return for each index another one, each once: all of them in one random cycle."""
    order = torch.randperm(count, generator=generator)
    # e.g. the order 2 0 1: 0 takes from 2, 1 takes from 0, 2 takes from 1
    return torch.empty_like(order).index_copy_(0, order, order.roll(1))
