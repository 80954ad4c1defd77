"""Models that take one sample without a batch axis, such as one bag `[rows, numbers]`, as models of batches."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn


class OfOneSample(nn.Module):
    """A model that takes one sample without a batch axis, as one that takes a batch of one.

    Args:
        model: The model.
        bare: The parameters that take a sample without a batch axis.
    """

    def __init__(self, model: nn.Module, bare: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self.bare = bare
        self.training = model.training

    def forward(self, *samples: Tensor, **arguments: Any) -> Any:
        """Return what the model makes of the only sample."""
        return self.model(*(x[0] for x in samples), **self.without_axis(arguments))

    def with_axis(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call of the model as those of a batch of one."""
        return {name: x[None] if name in self.bare else x for name, x in arguments.items()}

    def without_axis(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inverse of `with_axis`."""
        return {name: x[0] if name in self.bare else x for name, x in arguments.items()}


def bare_arguments(arguments: Mapping[str, Any], explained: str) -> tuple[str, ...]:
    """Return the arguments that have as many rows as an explained bag `[rows, numbers]`; none of another input."""
    bag = arguments[explained]
    if bag.ndim != 2 or not bag.is_floating_point():
        return ()
    return tuple(name for name, x in arguments.items() if isinstance(x, Tensor) and x.shape[:1] == bag.shape[:1])
