"""The first stage of a monitor: when it evaluates, how much, and of which weights that is."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import nn

from lrptrain.cues.followed import is_followed
from lrptrain.loggers.timeline import Moment
from lrptrain.monitor.budget import SMALLEST, Budget, EvaluationSize
from lrptrain.monitor.state import RunState, state
from lrptrain.monitor.weights import WeightsWatch, fingerprint
from lrptrain.trainers.context import TrainingContext
from lrptrain.trainers.processes import gather


class Clock:
    """Counts the monitor's own seconds between the points that it logs."""

    def __init__(self) -> None:
        self._last_point: float | None = None
        self._began: float | None = None
        self._elapsed_before = 0.0  # seconds of the run that this one continues from
        self.unlogged = 0.0

    def start(self, restart: bool = False) -> None:
        """Start the clock if it does not run, or start it again."""
        if self._last_point is None or restart:
            self._last_point = self._began = time.monotonic()
            self.unlogged = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since training began, those before it was resumed included."""
        return self._elapsed_before + (0.0 if self._began is None else time.monotonic() - self._began)

    def stop(self) -> None:
        """Count no time until the clock starts again: a trainer may continue with the same run later."""
        self._elapsed_before = self.elapsed
        self._began = None

    def resume(self, elapsed: float) -> None:
        """Continue from a run that had taken so many seconds."""
        self._elapsed_before = elapsed

    def costs(self, started: float) -> dict[str, float]:
        """Return the seconds since the last call, and their share of the time, within work that began at `started`.

        The rest of that work belongs to the next point.
        """
        now = time.monotonic()
        seconds = now - started + self.unlogged
        last_point = self._last_point if self._last_point is not None else started
        self._last_point = now
        self.unlogged = started - now  # negative: all of this work will be added, of which a part is logged now
        return {"relevance/seconds": seconds, "relevance/cost_share": seconds / max(now - last_point, 1e-9)}


def _resumed(_: Any, clock: Clock, elapsed: float) -> Clock:
    clock.resume(elapsed)
    return clock


def _saved(value: Any) -> Any:
    return None if value is None else value.state_dict()


def _loaded(_: Any, weights: WeightsWatch, plain: dict[str, Any]) -> WeightsWatch:
    weights.load_state_dict(plain)
    return weights


def _load_budget(planner: "Planner", budget: Budget | None, plain: dict[str, Any] | None) -> Budget | None:
    if budget is not None and plain is not None:
        budget.load_state_dict(plain)
        planner.size = budget.size or planner.size
    return budget


class Planner(RunState):
    """Plans evaluations, and reports where they take more than they should.

    Attributes:
        size: How much was evaluated last, or is from now on.
        in_full: An evaluation of all samples that were drawn.
        evaluated_epoch: The epoch of the last evaluation, also of one that failed.
        validated: Epoch and step of the last validation.
    """

    clock: Clock = state(lambda _: Clock(), "elapsed", lambda clock: clock.elapsed, _resumed)
    size: EvaluationSize = state(lambda self: self._config.full_size)
    in_full: EvaluationSize = state(lambda self: self._config.full_size)
    budget: Budget | None = state(lambda self: self._config.new_budget(), "budget", _saved, _load_budget)
    evaluated_epoch: int | None = state(lambda _: None, "evaluated_epoch")
    weights: WeightsWatch = state(lambda _: WeightsWatch(), "weights", _saved, _loaded)
    validated: Moment | None = state(lambda _: None)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count the time inside as the monitor's."""
        started = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - started
            self.clock.unlogged += seconds
            if self.budget is not None:
                self.budget.spent += seconds

    def foresee(self, seconds_per_sample: float) -> None:
        """Note what the maps of a sample take, before there was an evaluation."""
        if self.budget is not None:
            # Maps are about half of what a sample takes, tests the rest: an estimate, until an evaluation was timed.
            self.budget.seconds_per_sample = 2 * seconds_per_sample

    def evaluate_in_every_validation(self, in_full: bool = False) -> None:
        """Evaluate every validation, since something decides by the values; the budget then bounds the size alone.

        Where it decides by the score of a class or group, the sample must be a full one.
        """
        if self.budget is not None:
            self.budget.in_every_validation = True
            self.budget.in_full = in_full

    def fit_to(self, drawn: int) -> None:
        """Plan with as many samples as there are, now that they are drawn."""
        self.in_full = replace(self._config.full_size, samples=max(min(self._config.max_samples, drawn), 1))
        if self.budget is not None:
            self.budget.most = self.in_full
        if self.size == self._config.full_size:
            self.size = self.in_full

    def validation_of(self, model: nn.Module, context: TrainingContext) -> str:
        """Note a validation of a model, and return the fingerprint of its weights."""
        weights = fingerprint(model)
        if context.moment.is_training:
            self.validated = context.moment.epoch, context.moment.step
            self.weights.moments[weights] = self.validated
        return weights

    def is_due(self, epoch: int) -> bool:
        """Return whether `every_n_epochs` have passed; validations within an epoch that is due are all evaluated."""
        # Not due is what lies between: with every_n_epochs=3 and last=4, epochs 5 and 6. Epoch 4 again is another
        # validation within it, and an earlier epoch a new start.
        last = self.evaluated_epoch
        return last is None or not last < epoch < last + self._config.run.every_n_epochs

    def plan(self, context: TrainingContext) -> EvaluationSize | None:
        """Return how much is evaluated, as the first process plans it; None if nothing is."""
        if self.budget is None or not context.moment.is_training:
            return self.in_full
        if is_followed(context.module):
            self.evaluate_in_every_validation()
        return gather(self.budget.plan(self.clock.elapsed, context.moment.share_done, context.moment.keeps_last))[0]

    def plan_kept(self, weights: str) -> EvaluationSize | None:
        """Return how much of the checkpoint that is kept is evaluated; None if the last evaluation was just that."""
        size = self.in_full if self.budget is None else gather(self.budget.plan_kept(self.clock.elapsed))[0]
        return None if all(gather(self.weights.is_decided(weights, size.samples))) else size

    @contextmanager
    def evaluating(self, context: TrainingContext, size: EvaluationSize, weights: str) -> Iterator[None]:
        """Note an evaluation, and what it takes."""
        started = time.monotonic()
        self.size = size
        # Noted before the work: an evaluation that fails is not repeated in every epoch that follows.
        self.evaluated_epoch = context.moment.epoch
        self.weights.tried = weights, size.samples
        try:
            yield
        finally:
            if self.budget is not None and context.moment.is_training:
                self.budget.note(size, time.monotonic() - started)

    @property
    def cost(self) -> str:
        """What an evaluation takes, where all of them exceeded the budget; else ""."""
        if self.budget is None or not self.budget.is_exceeded(self.clock.elapsed):
            return ""
        smaller = f"max_samples={SMALLEST}" if self.size.samples > SMALLEST else "cues=None"
        return (
            f"One evaluation takes about {self.budget.cost_of(self.size):.0f} s, and this run lasted "
            f"{self.clock.elapsed:.0f} s: {self._config.kind}({smaller}) makes it faster."
        )

    @property
    def subject(self) -> str:
        """What the last evaluation was of, in words."""
        moment = self.weights.moment
        epoch = "" if moment is None else f"epoch {moment[0]}"
        if not self.weights.evaluated_kept:
            return f"{epoch or 'weights'} that {'was' if epoch else 'were'} not kept"
        if moment == self.validated and epoch:
            return epoch
        return f"the checkpoint that is kept{f' ({epoch})' if epoch else ''}"
