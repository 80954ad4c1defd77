"""How much guidance counts beside the task: the factor that gradients decide, and when they are compared."""

import math
from typing import Any, Literal

BOUND_EVERY_N_BATCHES = 10
"""In one batch of so many gradients are compared, for the bound: a matter of time alone."""
IDLE_STEPS = 10
"""So many optimizer steps a guidance may take without a gradient before it is refused."""
GRADIENT_SHARE = 0.5
"""The bound while nothing is learned: the norm of the guidance's gradient over that of the task's. A choice."""


class Strength:
    """What scales the guidance, beside its weights by name.

    Args:
        bounded: Whether the task's gradient bounds the guidance.
        compare_every_n_batches: In one batch of so many gradients are compared; 0: never.

    Attributes:
        factor: The factor of the bound; None before the first comparison.
    """

    factor: float | None
    _seen: Literal["", "idle", "moves"]
    """Whether a comparison has found a gradient of the guidance yet."""
    _idle_since: int

    def __init__(self, bounded: bool, compare_every_n_batches: int) -> None:
        self.bounded = bounded
        self.compare_every_n_batches = compare_every_n_batches
        self.start_over()

    def start_over(self) -> None:
        """Forget what was measured."""
        self.factor = None
        self._seen = ""
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

    def update(self, task_norm: float, guidance_norm: float, guess_norm: float = 0.0) -> None:
        """Take a comparison into account; the arguments are those of `bounded_factor`."""
        if self.bounded:
            self.factor = bounded_factor(self.factor, task_norm, guidance_norm, guess_norm)

    def check_gradient(self, guidance_norm: float, step: int, excused: bool) -> None:
        """Reject a guidance that has had no gradient from its first comparison on; it is the same in all processes.

        Args:
            guidance_norm: The norm of the guidance's gradient.
            step: The optimizer steps so far.
            excused: Whether there is a reason to go on without any.

        Raises:
            ValueError: After some optimizer steps without any.
        """
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


def bounded_factor(
    factor: float | None, task_norm: float, guidance_norm: float, guess_norm: float = 0.0
) -> float | None:
    """Update the factor that keeps the guidance's gradient below what the task can set against it.

    That is half of the task's gradient while nothing is learned. As answers become right, that gradient fades, and the
    guidance would with it; then it is what the task's gradient would gain if the model lost its answers, `guess_norm`
    less `task_norm`, where that is more. So the task's gradient is the longer one wherever answers are guesses.

    The factor falls at once and rises slowly: a single batch with a small guidance gradient says little about the
    next. E.g. with norms of 1 (task) and 5 (guidance) the factor becomes 0.1 whatever it was; with norms of 1 and 0.1
    afterwards it becomes 0.2, then 0.4, 0.8 and 1. With norms of 1 and 5, where guesses would have 4, it becomes 0.6.

    Args:
        factor: The factor so far; None before the first comparison.
        task_norm: The norm of the task's gradient.
        guidance_norm: The norm of the guidance's gradient, at a factor of 1.
        guess_norm: The norm of the gradient that the task would have if all answers were guesses; 0 where that is not
            known.

    Returns:
        The new factor in 0..1; the old one where a norm is 0 or not finite.
    """
    if not (math.isfinite(task_norm) and math.isfinite(guidance_norm) and min(task_norm, guidance_norm) > 0):
        return factor
    gained = guess_norm - task_norm if math.isfinite(guess_norm) else 0.0
    allowed = min(1.0, max(GRADIENT_SHARE * task_norm, gained) / guidance_norm)
    return allowed if factor is None else min(allowed, 2 * factor)
