"""How much guidance counts in the course of training."""

import math
from dataclasses import dataclass
from typing import Literal

Decay = Literal["none", "linear", "cosine"]
RATIO_MOMENTUM = 0.9
"""How much of the running mean of the ratio of gradient norms stays at each comparison: a choice."""
GRADIENT_SHARE = 0.5
"""The default bound while nothing is learned: the norm of the guidance's gradient over that of the task's. A choice."""
BOUND_EVERY_N_BATCHES = 10
"""In one guided batch of so many the default bound compares gradients: a choice, for time."""


@dataclass(frozen=True)
class Schedule:
    """Warm-up, then decay to 0 at the end of training.

    Attributes:
        warmup_steps: The number of optimizer steps in which the weight rises linearly from 0.
        decay: How the weight falls from there to the end: not at all, linearly, or by half a cosine.

    Raises:
        ValueError: If the warm-up is negative or the decay unknown.
    """

    warmup_steps: int = 0
    decay: Decay = "none"

    def __post_init__(self) -> None:
        if self.warmup_steps < 0:
            raise ValueError(f"warmup_steps must not be negative, got {self.warmup_steps}")
        if self.decay not in ("none", "linear", "cosine"):
            raise ValueError(f"decay must be 'none', 'linear' or 'cosine', got {self.decay!r}")

    def __call__(self, step: int, total: float) -> float:
        """Return the share of the full weight, in 0..1, at an optimizer step of `total`."""
        if step < self.warmup_steps:
            return step / self.warmup_steps
        if self.decay == "none":
            return 1.0
        progress = min((step - self.warmup_steps) / max(total - self.warmup_steps, 1), 1.0)
        return 1 - progress if self.decay == "linear" else (1 + math.cos(math.pi * progress)) / 2

    @property
    def needs_end(self) -> bool:
        """Whether the number of steps must be known."""
        return self.decay != "none"


def running_ratio(ratio: float | None, task_norm: float, guidance_norm: float) -> float | None:
    """Update the running geometric mean of the task gradient's norm over the guidance's.

    A guidance loss times this ratio has a gradient as long as the task's (after the adaptive weights of Wang et al.
    2021, "Understanding and mitigating gradient flow pathologies in physics-informed neural networks", eq. 40).

    Returns:
        The new mean; the old one where a norm is 0 or not finite.
    """
    if not _comparable(task_norm, guidance_norm):
        return ratio
    # Geometric, as ratios are: one of 10 and one of 1 / 10 have the mean 1.
    latest = task_norm / guidance_norm
    return latest if ratio is None else ratio**RATIO_MOMENTUM * latest ** (1 - RATIO_MOMENTUM)


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
    if not _comparable(task_norm, guidance_norm):
        return factor
    gained = guess_norm - task_norm if math.isfinite(guess_norm) else 0.0
    allowed = min(1.0, max(GRADIENT_SHARE * task_norm, gained) / guidance_norm)
    return allowed if factor is None else min(allowed, 2 * factor)


def _comparable(task_norm: float, guidance_norm: float) -> bool:
    return math.isfinite(task_norm) and math.isfinite(guidance_norm) and min(task_norm, guidance_norm) > 0
