"""Do the task and the guidance pull the weights the same way, and how long does each take?"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Pull:
    """The gradients of task and guidance.

    Attributes:
        task: Norm of the task's.
        guidance: Norm of the guidance's.
        cosine: Between them, in -1..1; nan if one is 0.
        task_seconds: The task's backward pass.
        guidance_seconds: The guidance's.
    """

    task: float
    guidance: float
    cosine: float
    task_seconds: float
    guidance_seconds: float


def compare(
    loss: Float[Tensor, ""],
    guidance: Float[Tensor, ""],
    weights: Sequence[Tensor],
    mean: Callable[[Tensor], Tensor] = lambda gradient: gradient,
) -> Pull:
    """Measure both gradients, one backward pass each; the graph stays.

    Args:
        loss: Of the task.
        guidance: Its loss.
        weights: That are trained.
        mean: Over processes.
    """
    times = [now(loss.device)]
    gradients = []
    for each in (loss, guidance):
        found = flat_gradient(each, weights)
        gradients.append(torch.zeros(sum(x.numel() for x in weights), device=loss.device) if found is None else found)
        times.append(now(loss.device))
    task, guided = (mean(gradient) for gradient in gradients)
    return Pull(
        float(task.norm()), float(guided.norm()), cosine(task, guided), times[1] - times[0], times[2] - times[1]
    )


def flat_gradient(loss: Float[Tensor, ""], weights: Sequence[Tensor]) -> Float[Tensor, " numbers"] | None:
    """Gradient of a loss at all weights in one row, 0 where it does not reach them; None if it reaches none.

    The graph stays, for the backward pass to come.
    """
    if not loss.requires_grad:
        return None
    found = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
    if all(gradient is None for gradient in found):
        return None
    rows = [torch.zeros_like(x) if g is None else g.detach().to_dense() for g, x in zip(found, weights, strict=True)]
    return torch.cat([row.float().flatten() for row in rows])


def cosine(one: Float[Tensor, " numbers"], other: Float[Tensor, " numbers"]) -> float:
    """Cosine of two gradients, in -1..1; nan if one is 0."""
    length = one.norm() * other.norm()
    return float(torch.dot(one, other) / length) if length > 0 else float("nan")


def now(device: torch.device) -> float:
    """Seconds, once the device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.monotonic()
