"""How long are the gradients of task and guidance?"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def gradient_norm(
    loss: Float[Tensor, ""],
    weights: Sequence[Tensor],
    mean_over_processes: Callable[[Tensor], Tensor] = lambda gradient: gradient,
) -> float:
    """Return the norm of a loss's gradient at some weights, by a backward pass after which the graph is still there.

    Args:
        loss: The loss.
        weights: The weights that are trained.
        mean_over_processes: Takes the mean of a gradient over all processes, which all must call.
    """
    gradient = flat_gradient(loss, weights)
    if gradient is None:
        gradient = torch.zeros(sum(weight.numel() for weight in weights), device=loss.device)
    return float(mean_over_processes(gradient).norm())


def flat_gradient(loss: Float[Tensor, ""], weights: Sequence[Tensor]) -> Float[Tensor, " numbers"] | None:
    """Return the gradient of a loss at all weights in one row, float32; None if the loss reaches no weight.

    It is 0 at weights that the loss does not reach. The graph stays, for the backward pass to come.
    """
    if not loss.requires_grad:
        return None
    gradients = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
    if all(gradient is None for gradient in gradients):
        return None
    rows = [
        # `to_dense`: embeddings may have sparse gradients.
        torch.zeros_like(weight) if gradient is None else gradient.detach().to_dense()
        for gradient, weight in zip(gradients, weights, strict=True)
    ]
    return torch.cat([row.float().flatten() for row in rows])
