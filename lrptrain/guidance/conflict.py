"""Do the gradients of task and guidance point the same way, how long are they, and what does each cost?"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class GradientConflict:
    """The gradients of task and guidance beside each other.

    Attributes:
        task_norm: The norm of the task's gradient.
        guidance_norm: The norm of the guidance's gradient.
        cosine: The cosine of the two, in [-1, 1]; nan if one is 0.
        task_seconds: The seconds of the task's backward pass.
        guidance_seconds: The seconds of the guidance's backward pass.
        guess_norm: The norm of the gradient that the task would have if all answers were guesses; 0 where it is not
            known.
    """

    task_norm: float
    guidance_norm: float
    cosine: float
    task_seconds: float
    guidance_seconds: float
    guess_norm: float = 0.0

    @property
    def norm_ratio(self) -> float:
        """Norm of the guidance's gradient over that of the task's; nan if the latter is 0."""
        return self.guidance_norm / self.task_norm if self.task_norm else float("nan")

    @property
    def guess_ratio(self) -> float:
        """Norm of the gradient of guesses over that of the task's; nan if the latter is 0."""
        return self.guess_norm / self.task_norm if self.task_norm else float("nan")


def compare_gradients(
    task_loss: Float[Tensor, ""],
    guidance: Float[Tensor, ""],
    weights: Sequence[Tensor],
    mean_over_processes: Callable[[Tensor], Tensor] = lambda gradient: gradient,
    guesses: Float[Tensor, ""] | None = None,
    with_guesses: bool = False,
) -> GradientConflict:
    """Measure both gradients with one backward pass each, and that of guesses with another; the graph stays.

    Args:
        task_loss: The loss of the task.
        guidance: The loss of the guidance.
        weights: The weights that are trained.
        mean_over_processes: Takes the mean of a gradient over all processes.
        guesses: What `loss_of_guesses` returned; None counts as a gradient of 0.
        with_guesses: Whether to measure that, too; the same in all processes.
    """
    # The times between which the two backward passes ran: start, after the task's, after the guidance's.
    times = [synchronized_time(task_loss.device)]
    gradients = []
    for loss in (task_loss, guidance):
        gradients.append(_gradient_or_zeros(loss, weights))
        times.append(synchronized_time(task_loss.device))
    task_gradient, guidance_gradient = (mean_over_processes(gradient) for gradient in gradients)
    guess_norm = 0.0
    if with_guesses:
        loss = task_loss.new_zeros(()) if guesses is None else guesses
        guess_norm = float(mean_over_processes(_gradient_or_zeros(loss, weights)).norm())
    return GradientConflict(
        task_norm=float(task_gradient.norm()),
        guidance_norm=float(guidance_gradient.norm()),
        cosine=cosine(task_gradient, guidance_gradient),
        task_seconds=times[1] - times[0],
        guidance_seconds=times[2] - times[1],
        guess_norm=guess_norm,
    )


def _gradient_or_zeros(loss: Float[Tensor, ""], weights: Sequence[Tensor]) -> Float[Tensor, " numbers"]:
    """Return the gradient of a loss in one row; zeros where it reaches no weight.

    Not None: the mean over processes is a collective call, which every process must make.
    """
    gradient = flat_gradient(loss, weights)
    return torch.zeros(sum(weight.numel() for weight in weights), device=loss.device) if gradient is None else gradient


def flat_gradient(loss: Float[Tensor, ""], weights: Sequence[Tensor]) -> Float[Tensor, " numbers"] | None:
    """Return the gradient of a loss at all weights in one row; None if the loss reaches no weight.

    It is 0 at weights that the loss does not reach, and float32. The graph stays, for the backward pass to come.
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


def cosine(first: Float[Tensor, " numbers"], second: Float[Tensor, " numbers"]) -> float:
    """Return the cosine of two gradients, in -1..1; nan if one is 0."""
    length = first.norm() * second.norm()
    return float(torch.dot(first, second) / length) if length > 0 else float("nan")


def synchronized_time(device: torch.device) -> float:
    """Return the time in seconds, after all work that is queued on the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.monotonic()
