"""How much guidance counts in the course of training."""

import math
from dataclasses import dataclass
from typing import Literal

Decay = Literal["none", "linear", "cosine"]
KEPT = 0.9
"""Of the running mean of the ratio of gradient norms: the share that stays at each measurement."""


@dataclass(frozen=True)
class Schedule:
    """Warm-up, then decay to 0 at the end of training.

    Attributes:
        warmup_steps: Optimizer steps in which the weight rises linearly from 0.
        decay: Of the weight from there to the end: none, linear or half a cosine.

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
        """Share of the full weight, in 0..1, at an optimizer step of `total`."""
        if step < self.warmup_steps:
            return step / self.warmup_steps
        if self.decay == "none":
            return 1.0
        done = min((step - self.warmup_steps) / max(total - self.warmup_steps, 1), 1.0)
        return 1 - done if self.decay == "linear" else (1 + math.cos(math.pi * done)) / 2

    @property
    def needs_end(self) -> bool:
        """Whether the number of steps must be known."""
        return self.decay != "none"


def running_ratio(ratio: float | None, task_norm: float, guidance_norm: float) -> float | None:
    """Running geometric mean of the task gradient's norm over the guidance's; as before where one is 0 or not finite.

    A guidance loss times this ratio pulls as hard as the task (after the adaptive weights of Wang et al. 2021,
    "Understanding and mitigating gradient flow pathologies in physics-informed neural networks", eq. 40).
    """
    if not (math.isfinite(task_norm) and math.isfinite(guidance_norm)) or min(task_norm, guidance_norm) <= 0:
        return ratio
    now = task_norm / guidance_norm
    return now if ratio is None else ratio**KEPT * now ** (1 - KEPT)
