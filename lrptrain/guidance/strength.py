"""How much guidance counts beside the task: the factor that gradients decide, and when they are compared."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

BOUND_EVERY_N_BATCHES = 10
"""In one batch of so many gradients are compared, which costs two backward passes: a fifth of one per batch.

What the ratio does in between: "A guidance's default weight of 1" in experiments/LOG.md."""
IDLE_STEPS = 10
"""So many optimizer steps, or bags, may come without anything to guide before that is refused: a choice."""
GRADIENT_SHARE = 0.5
"""The most that the guidance's gradient may have of the norm of the task's: however it points, a step on the sum of
both still goes at least half as far down the task's loss. Others are in "Guidance that fades" of experiments/LOG.md."""


class Strength:
    """What scales the guidance, beside its weights by name.

    Attributes:
        factor: The factor of the bound; None before the first comparison.
    """

    def __init__(self, bounded: bool, compare_every_n_batches: int) -> None:
        self.bounded = bounded
        self.compare_every_n_batches = compare_every_n_batches
        self.start_over()

    def start_over(self) -> None:
        """Forget what was measured."""
        self.factor: float | None = None
        # Whether a comparison has found a gradient of the guidance yet.
        self._seen: Literal["", "idle", "moves"] = ""
        self._idle_since = 0

    def __call__(self) -> float:
        """Return the factor of the guidance beside its weights: of a bounded one 0 before its gradient was measured."""
        return (self.factor or 0.0) if self.bounded else 1.0

    def measures_swaps(self, batch_idx: int) -> bool:
        """Return whether to measure the swap distance and compare gradients in this batch."""
        return self.compare_every_n_batches > 0 and batch_idx % self.compare_every_n_batches == 0

    def compares(self, batch_idx: int) -> bool:
        """Return whether to compare gradients in this batch; for the bound in every one until a comparison succeeded.

        A guidance that had no gradient so far is compared until it has one, or is refused.
        """
        if self.measures_swaps(batch_idx) or self._seen == "idle":
            return True
        return self.bounded and (self.factor is None or batch_idx % BOUND_EVERY_N_BATCHES == 0)

    def update(self, task_norm: float, guidance_norm: float) -> None:
        """Take a comparison into account; the arguments are those of `bounded_factor`."""
        if self.bounded:
            self.factor = bounded_factor(self.factor, task_norm, guidance_norm)

    def check_gradient(self, guidance_norm: float, step: int, excused: bool) -> None:
        """Reject a guidance that has had no gradient from its first comparison on; it is the same in all processes."""
        if guidance_norm > 0 or self._seen == "moves":
            self._seen = "moves"
        elif self._seen == "":
            # A last layer that is initialised with zeros has no map either, until its first steps.
            self._seen = "idle"
            self._idle_since = step
        elif step - self._idle_since >= IDLE_STEPS and not excused:
            raise ValueError(
                f"the guidance had no gradient in its first {IDLE_STEPS} steps (guidance/norm_ratio is 0), so it "
                "changes nothing: does the annotation mark all of a sample, or nothing of it (1 is evidence, for masks "
                "of 0 and 255 pass `mask > 0`), or does the model give every class the same logit? If annotations come "
                "later, say so with sparse=True"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run continues."""
        return {"factor": self.factor}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue a run; see `state_dict`."""
        self.factor = state["factor"]


def bounded_factor(factor: float | None, task_norm: float, guidance_norm: float) -> float | None:
    """Return a factor in 0..1 that keeps the guidance's gradient within `GRADIENT_SHARE` of the task's.

    It falls at once and at most doubles, as a single batch with a small guidance gradient says little about the next:
    norms of 1 (task) and 5 (guidance) make it 0.1, and norms of 1 and 0.1 afterwards 0.2, 0.4, 0.8 and 1. It stays as
    it was, None before the first comparison, where a norm is 0 or not finite.
    """
    if not (math.isfinite(task_norm) and math.isfinite(guidance_norm) and min(task_norm, guidance_norm) > 0):
        return factor
    allowed = min(1.0, GRADIENT_SHARE * task_norm / guidance_norm)
    return allowed if factor is None else min(allowed, 2 * factor)


def gradient_norm(
    loss: Float[Tensor, ""],
    weights: Sequence[Tensor],
    mean_over_processes: Callable[[Tensor], Tensor] = lambda gradient: gradient,
) -> float:
    """Return the norm of a loss's gradient at some weights, by a backward pass after which the graph is still there."""
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
