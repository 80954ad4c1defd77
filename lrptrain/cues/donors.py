"""Who gives to whom in a training step."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def random_donors(
    usable: Bool[Tensor, " batch"], generator: torch.Generator | None = None, itself: bool = True
) -> Int[Tensor, " batch"]:
    """Return for every usable sample a random one of these, each once; the others have themselves.

    Args:
        usable: Which samples give and take.
        generator: The random numbers.
        itself: Whether it may be the sample itself. Who never has itself for a donor has one of another class more
            often than by chance. A shortcut that is easy to read would tell the other class then: of 16 samples of two
            classes in 8 of 15, of 4 in 2 of 3.
    """
    donors = torch.arange(len(usable), device=usable.device)
    givers = usable.nonzero().flatten()
    order = torch.randperm(len(givers), generator=generator) if itself else random_cycle(len(givers), generator)
    donors[givers] = givers[order.to(usable.device)]
    return donors


def random_cycle(count: int, generator: torch.Generator | None = None) -> Int[Tensor, " count"]:
    """Return for each index another one, each once: all of them in one random cycle."""
    order = torch.randperm(count, generator=generator)
    # e.g. the order 2 0 1: 0 takes from 2, 1 takes from 0, 2 takes from 1
    return torch.empty_like(order).index_copy_(0, order, order.roll(1))
