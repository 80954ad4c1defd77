"""How often the monitor evaluates, and how much, so that it takes no more than a share of a run's time.

Times are handed in, so that a planner can be asked about a simulated run. It never looks at a clock.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

SMALLEST = 16
"""No sample is made smaller, however short the time: a choice."""
SHORT = 10.0
"""So many seconds the checkpoint that is kept may always take, however short the run is: a choice."""
FEW_DRAWN = 4
"""Samples drawn where time is short: a choice."""
LONGEST_WAIT = 4.0
"""Validations between two evaluations beyond which the next ones are made smaller: a choice."""
SHOWN = 0.25
"""What drawing a sample costs, of its maps and tests, and each map of a further class as much, which is a backward pass
alone: an estimate, until evaluations were timed."""


@dataclass(frozen=True, order=True)
class EvaluationSize:
    """Numbers of samples, of those that are drawn, and of classes for which these have maps."""

    samples: int
    drawn: int
    class_maps: int

    @property
    def work(self) -> float:
        """Its work, in samples."""
        return self.samples + SHOWN * self.drawn * (1 + self.class_maps)


@dataclass
class Budget:
    """Plans evaluations within a share of the time.

    A run that is too short for the share has one evaluation, of the kept checkpoint, on as many samples as take `SHORT`
    seconds, `SMALLEST` at least. The first validation is evaluated where the run pays for two of the smallest, and
    another one once the share of the time has paid for it and for that of the kept checkpoint on all samples.

    Attributes:
        spent: Seconds of the monitor so far, in evaluations and beside them.
        seconds_per_sample: What is foreseen before there was an evaluation; None if nothing is known.
        in_every_validation: Whether each validation is evaluated, since something decides by the values.
        in_full: Whether each evaluation is a full one, since something decides by the score of a single class.
    """

    share: float
    most: EvaluationSize
    size: EvaluationSize | None = None
    spent: float = 0.0
    validations: int = 0
    evaluations: int = 0
    costs: dict[EvaluationSize, float] = field(default_factory=dict)
    seconds_per_sample: float | None = None
    in_every_validation: bool = False
    in_full: bool = False

    def __post_init__(self) -> None:
        """Check the share."""
        if not 0 < self.share < 1:
            raise ValueError(f"budget must be a share between 0 and 1, or None for no limit, not {self.share!r}")

    def plan(self, elapsed: float, share_done: float | None = None, keeps_last: bool = True) -> EvaluationSize | None:
        """Count a validation, and return the size of its evaluation; None if it is not evaluated.

        `elapsed` are seconds since training began; `share_done` is None if it has no known end; `keeps_last` says
        whether training leaves the weights of its last step.
        """
        self.validations += 1
        if share_done == 1 and keeps_last and not self.in_every_validation:
            # The checkpoint that is kept: what is logged now is among the values of a validation, later it is not.
            return self.plan_kept(elapsed)
        self.size = self._chosen(elapsed)
        is_due = self.in_every_validation or (not self.evaluations and self._pays_for_two(elapsed, share_done))
        kept = self.cost_of(self._with_all_samples()[-1])
        return self.size if is_due or self._paid(self.cost_of(self.size) + kept, elapsed) else None

    def plan_kept(self, elapsed: float) -> EvaluationSize:
        """Return the size of the evaluation of the checkpoint that is kept: the largest that is paid for.

        Where something decides by the values, it is of all samples.
        """
        if self.in_full:
            return self.most
        sizes = self._with_all_samples() if self.in_every_validation else sizes_within(self.most)
        left = max(self.share * elapsed, SHORT) - self.spent
        # What was only foreseen may be wrong by a few times: the smallest evaluation measures. And what was measured of
        # fewer samples was of a model that relied on less: twice as much is set aside.
        most = max((known.samples for known in self.costs), default=0)
        paid = (each for each in sizes if most and self.cost_of(each) * (1 + (each.samples > most)) <= left)
        return next(paid, sizes[-1])

    def note(self, size: EvaluationSize, seconds: float) -> None:
        """Note an evaluation that was made, and the seconds that it took."""
        self.evaluations += 1
        self.costs[size] = seconds

    def cost_of(self, size: EvaluationSize) -> float:
        """Return the seconds that an evaluation is foreseen to take; 0 if nothing is known."""
        if size in self.costs:
            return self.costs[size]
        if self.costs:
            # Of the nearest size that was measured. What does not grow with samples is counted twice if a larger
            # size is foreseen, which is the safe side, and not enough of a smaller one, until that was measured.
            nearest = min(self.costs, key=lambda known: abs(known.work - size.work))
            return self.costs[nearest] * size.work / nearest.work
        return 0.0 if self.seconds_per_sample is None else self.seconds_per_sample * size.work

    def is_exceeded(self, elapsed: float) -> bool:
        """Return whether the monitor took more than its share of the time, as it does in a short run."""
        return self.spent > self.share * elapsed

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run continues."""
        return {
            "extent": None if self.size is None else asdict(self.size),
            "spent": self.spent,
            "validations": self.validations,
            "evaluations": self.evaluations,
            "costs": [(asdict(size), seconds) for size, seconds in self.costs.items()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue a run; see `state_dict`."""
        self.size = None if state["extent"] is None else EvaluationSize(**state["extent"])
        self.spent = state["spent"]
        self.validations = state["validations"]
        self.evaluations = state["evaluations"]
        self.costs = {EvaluationSize(**size): seconds for size, seconds in state["costs"]}

    def _with_all_samples(self) -> list[EvaluationSize]:
        return [size for size in sizes_within(self.most) if size.samples == self.most.samples]

    def _pays_for_two(self, elapsed: float, share_done: float | None) -> bool:
        """Return whether the whole run pays for two of the smallest evaluations; yes if nobody knows."""
        if self.in_full or not share_done:
            return True
        return self._paid(2 * self.cost_of(sizes_within(self.most)[-1]), elapsed / share_done)

    def _paid(self, seconds: float, elapsed: float) -> bool:
        return self.spent + seconds <= self.share * elapsed

    def _chosen(self, elapsed: float) -> EvaluationSize:
        """Return the largest size that can be paid for often enough; the present one where that is near enough."""
        sizes = sizes_within(self.most)
        if self.in_full:
            return self.most
        if not self.costs:
            return sizes[-1]  # what was foreseen may be wrong by a few times: the first evaluation measures
        training = max(elapsed - self.spent, 1e-9) / max(self.validations, 1)
        # After how many validations the share of the time pays for an evaluation.
        wait = {size: self.cost_of(size) / (self.share * training) for size in sizes}
        # The first evaluation is made without waiting: more than the time has paid for by then would be a debt.
        longest = 1.0 if self.in_every_validation or not self.evaluations else LONGEST_WAIT
        wanted = next((size for size in sizes if wait[size] <= longest), sizes[-1])
        if self.evaluations < 2 or self.size not in sizes:
            return wanted  # the first one was as large as was paid for, not as large as is worth waiting for
        # Scores of epochs compare best over the same samples. So a larger sample has to fit twice over, and a smaller
        # one is taken only where the present one takes twice as long as it should: a choice.
        if wanted.work > self.size.work:
            larger = [size for size in sizes if wait[size] <= longest / 2]
            return max([*larger, self.size], key=lambda size: size.work)
        return wanted if wait[self.size] > 2 * longest else self.size


def sizes_within(most: EvaluationSize) -> list[EvaluationSize]:
    """Return the sizes that are planned with, the largest first: pictures are saved before samples are."""
    fewest = min(most.samples, SMALLEST)
    few = min(most.drawn, FEW_DRAWN)
    sizes = [most, EvaluationSize(most.samples, few, most.class_maps), EvaluationSize(most.samples, few, 0)]
    samples = most.samples
    while samples > fewest:
        samples = max(samples // 2, fewest)
        sizes.append(EvaluationSize(samples, few, 0))
    return list(dict.fromkeys(sizes))
