"""How much guidance counts beside the task: the factor that gradients decide, and when they are compared."""

from typing import Any, Literal

from lrptrain.guidance.dominance import Dominance
from lrptrain.guidance.schedule import BOUND_EVERY_N_BATCHES, bounded_factor, running_ratio

IDLE_STEPS = 10
"""So many optimizer steps a guidance may take without a gradient before it is refused."""


class Strength:
    """What scales the guidance, beside its weights by name and the schedule.

    Args:
        weight: The factor of all losses.
        bounded: Whether the task's gradient bounds the guidance.
        adaptive: Whether the guidance is scaled so that its gradient is as long as the task's, times `weight`.
        compare_every_n_batches: In one guided batch of so many gradients are compared; 0: never.
        every_n_batches: One batch in this many is guided.

    Attributes:
        ratio: The running ratio of the gradient norms, task over guidance, for `adaptive`; None before the first
            comparison.
        factor: The factor of the default bound; None before the first comparison.
        dominance: Watches a guidance that nothing bounds, where gradients may be compared at all.

    Raises:
        ValueError: If `adaptive` lacks comparisons.
    """

    ratio: float | None
    factor: float | None
    _seen: Literal["", "idle", "moves"]
    """Whether a comparison has found a gradient of the guidance yet."""
    _idle_since: int

    def __init__(
        self, weight: float, bounded: bool, adaptive: bool, compare_every_n_batches: int, every_n_batches: int
    ) -> None:
        if adaptive and compare_every_n_batches < 1:
            raise ValueError("adaptive=True needs compare_every_n_batches of at least 1")
        self.weight = weight
        self.bounded = bounded
        self.adaptive = adaptive
        self.compare_every_n_batches = compare_every_n_batches
        self.every_n_batches = every_n_batches
        # An adaptive guidance of a weight up to 1 is never longer than the task's gradient, but for its running mean.
        is_bounded = bounded or (adaptive and weight <= 1)
        self.dominance = Dominance(not is_bounded and compare_every_n_batches > 0)
        self.start_over()

    def start_over(self) -> None:
        """Forget what was measured."""
        self.ratio = None
        self.factor = None
        self._seen = ""
        self._idle_since = 0
        self.dominance.start_over()

    def __call__(self) -> float:
        """Return the factor of the guidance beside its weights and the schedule."""
        if self.adaptive:
            return self.weight * (self.ratio or 0.0)
        if self.bounded:
            return self.factor or 0.0  # nothing is applied before its gradient was measured
        return 1.0

    def measures_swaps(self, batch_idx: int) -> bool:
        """Return whether to measure the swap distance and compare gradients in this guided batch."""
        every = self.compare_every_n_batches * self.every_n_batches
        return every > 0 and (batch_idx % every == 0 or (self.adaptive and self.ratio is None))

    def compares(self, batch_idx: int) -> bool:
        """Return whether to compare gradients in this guided batch.

        The default bound needs a comparison in every batch until one succeeded, and then rarely.
        """
        # A guidance that had no gradient so far is compared until it has one, or is refused.
        if self.measures_swaps(batch_idx) or self._seen == "idle":
            return True
        if self.dominance.compares(batch_idx, self.every_n_batches):
            return True
        return self.bounded and (self.factor is None or batch_idx % (BOUND_EVERY_N_BATCHES * self.every_n_batches) == 0)

    def update(self, task_norm: float, guidance_norm: float, guess_norm: float = 0.0) -> None:
        """Take a comparison into account.

        Args:
            task_norm: The norm of the task's gradient.
            guidance_norm: The norm of the guidance's gradient, at a factor of 1.
            guess_norm: As for `bounded_factor`.
        """
        self.ratio = running_ratio(self.ratio, task_norm, guidance_norm)
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
                f"the guidance had no gradient in its first {IDLE_STEPS} steps (guidance/cosine is nan), so it "
                "changes nothing: does the annotation mark all of a sample, or nothing of it (1 is evidence, for masks "
                "of 0 and 255 pass `mask > 0`), or does the model give every class the same logit? If annotations come "
                "later, say so with sparse=True"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run continues."""
        return {"ratio": self.ratio, "factor": self.factor}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue a run; see `state_dict`."""
        self.ratio = state["ratio"]
        self.factor = state.get("factor")  # checkpoints of earlier versions have none: it is measured anew
