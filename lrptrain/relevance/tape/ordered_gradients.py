"""A guard against a fault of torch: the gradient of batch norm is wrong where that at its output is transposed.

Seen with torch 2.15 on the CPU: `native_batch_norm_backward` mixes up the channels if the gradient at the output lies
in memory as [height, batch, width, channels], say, and the batch is 1. `instance_norm` runs it on one batch of all
samples, so that there more orders do it. `tests/relevance/tape/test_ordered_gradients.py` has the smallest case, and
fails once torch has fixed it.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from lrptrain.relevance.tape.functions import canonical_name

NORMS = frozenset({"batch_norm", "instance_norm"})


def with_ordered_gradient(name: str, result: Any) -> Any:
    """Return what an operation returned; the gradient at the output of such a norm will lie in memory in order."""
    if name in NORMS and isinstance(result, Tensor) and result.requires_grad:
        result.register_hook(_in_order)  # type: ignore[no-untyped-call]
    return result


class OrderedGradients(TorchFunctionMode):
    """Runs a model whose gradient is to be right, without a tape."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Carry out one call of the model."""
        return with_ordered_gradient(canonical_name(func), func(*args, **(kwargs or {})))


def _in_order(gradient: Tensor) -> Tensor:
    return gradient.contiguous()
