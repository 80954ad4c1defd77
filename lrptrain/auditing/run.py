"""Audit a model's explanations: all tests that fit into a time, each unit saved when it is done."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

from lrptrain.auditing.base import AuditTest, select_tests
from lrptrain.auditing.brought import evaluation_with_gradients
from lrptrain.auditing.context import AuditContext, Batch, fingerprint, predict_batches
from lrptrain.auditing.predict import UNSUPPORTED, Fill, synchronize
from lrptrain.auditing.result import AuditResult, UnitResult
from lrptrain.auditing.settings import AuditSettings
from lrptrain.auditing.store import Store, Values
from lrptrain.batch.task import CLASSES, Task
from lrptrain.relevance.preserve import unwrap
from lrptrain.relevance.registry import get_method

TRIAL_SAMPLES = 2
"""Samples of the trial that tells what a unit costs."""
UNITS_FILE = "units.jsonl"
"""The file of an audit's folder that keeps what was measured."""


def run_audit(
    model: nn.Module,
    batches: Iterable[Batch],
    methods: Sequence[str],
    *,
    budget: float = 600.0,
    folder: Path | str | None = None,
    tests: Sequence[str] | None = None,
    fill: Fill = 0.0,
    train_batches: Iterable[Batch] | None = None,
    retrain: Callable[[int], nn.Module] | None = None,
    retrain_seconds: float = 0.0,
    settings: AuditSettings | None = None,
    seed: int = 0,
    task: Task = CLASSES,
    progress: Callable[[UnitResult], None] | None = None,
) -> AuditResult:
    """Test on a model and its data whether methods are faithful; the predicted class is explained.

    The tests run in the order of `lrptrain.auditing.registered_tests()`. A unit (a test of a method, of a seed ...) is
    tried on two samples first; if it would not fit into what is left of the budget, it is left out, and the result says
    so. Units that fail say why. The model comes out as it was, to the bit.

    Args:
        model: As for `lrptrain.attribute`; audited in evaluation mode.
        batches: Validation samples in the contract of `lrptrain.batch`, on the model's device; `label` where known.
        methods: Some of `lrptrain.methods()`.
        budget: Seconds. A unit that has started is finished, so that a wrong estimate can exceed it by one unit's time.
        folder: Folder that keeps what is measured; an audit of the same model, samples and settings that is started
            again takes it from there, and has its budget for the rest. None: nothing is kept.
        tests: Names of the tests to run; None for all.
        fill: What removed pixels become; see `perturbation_curve`.
        train_batches: Training samples with labels, for the tests that train a model.
        retrain: `retrain(seed)` trains the model anew and returns it.
        retrain_seconds: About how long that takes. If it is not known, the first one starts when there is time left.
        settings: How much each test does.
        seed: Seed of all that is random.
        task: What the model's output means.
        progress: Called with the result of every unit when it is done, or left out.

    Raises:
        UnsupportedMethodError: If a method is unknown.
        UnsupportedModelError: If the model does not return logits.
        ValueError: If there is no sample or no method, a test is unknown, or the budget is negative.
    """
    methods = tuple(dict.fromkeys(get_method(name, {}).name for name in methods))
    selected = select_tests(tests, settings)
    if not methods:
        raise ValueError("an audit needs at least one method")
    if budget < 0:
        raise ValueError(f"budget must be 0 seconds or more, not {budget}")
    clock = _Clock(budget)
    batches = list(batches)
    train_batches = list(train_batches or ())
    with task.reading(), evaluation_with_gradients(unwrap(model)) as model:
        context = AuditContext(
            model=model,
            batches=predict_batches(model, batches),
            methods=methods,
            train_batches=predict_batches(model, train_batches) if train_batches else [],
            retrain=retrain,
            retrain_seconds=retrain_seconds,
            fill=fill,
            seed=seed,
        )
        store = Store(None if folder is None else Path(folder) / UNITS_FILE)
        runner = _Runner(context, store, fingerprint(model, [*batches, *train_batches]), clock)
        results = []
        for test in selected:
            for result in runner.run(test):
                results.append(result)
                if progress is not None:
                    progress(result)
    return AuditResult.from_units(context, results, budget, clock.spent())


@dataclass
class _Clock:
    """The time that an audit has, and what is left of it, in seconds."""

    budget: float
    started: float = field(default_factory=time.monotonic)

    def spent(self) -> float:
        return time.monotonic() - self.started

    def left(self) -> float:
        return self.budget - self.spent()


@dataclass
class _Runner:
    """Runs tests unit by unit, as long as there is time.

    Attributes:
        context: What is audited.
        store: What was measured before.
        fingerprint: Tells this model and these samples from others in the store.
        clock: The time that the audit has.
    """

    context: AuditContext
    store: Store
    fingerprint: str
    clock: _Clock

    def run(self, test: AuditTest) -> Iterator[UnitResult]:
        """Yield the results of all units of a test: from the store, measured, or with the reason why there is none."""
        obstacle = test.obstacle(self.context)
        if obstacle:
            yield UnitResult(test.name, "", problem=f"not run: {obstacle}")
            return
        pace = 1.0  # seconds of the last unit by those that were expected
        for unit in test.units(self.context):
            key = f"{self.fingerprint} {test.name} {unit} {test.value_settings(self.context)}"
            saved = self.store.get(key)
            if saved is not None:
                yield UnitResult(test.name, unit, saved["values"], saved["seconds"])
                continue
            # A failure costs its unit, not the audit.
            try:
                result, pace = self._measure(test, unit, pace)
            except UNSUPPORTED as error:
                result = UnitResult(test.name, unit, problem=f"not possible here: {error}")
            except Exception as error:
                result = UnitResult(test.name, unit, problem=f"failed: {type(error).__name__}: {error}")
            if not result.problem:
                self.store.add(key, {"values": result.values, "seconds": result.seconds})
            yield result

    def _measure(self, test: AuditTest, unit: str, pace: float) -> tuple[UnitResult, float]:
        """Return the result of a unit, if it fits into the time that is left, and the new pace."""
        # Estimates from a few samples are too high (a batch costs less than its samples one by one), so the pace of the
        # last unit corrects them; it never makes them larger.
        budget = self.clock.budget
        if self.clock.left() <= 0:
            return UnitResult(test.name, unit, problem=f"not run: the budget of {budget:g} s is used up"), pace
        expected = self._expected_seconds(test, unit)
        if expected * pace > self.clock.left():
            left = max(self.clock.left(), 0.0)
            reason = f"it takes about {expected * pace:.0f} s, and {left:.0f} s of {budget:g} s are left"
            return UnitResult(test.name, unit, problem=f"not run: {reason}: raise the budget"), pace
        values, seconds = self._timed(lambda: test.run(self.context, unit))
        if test.needs_retraining:
            # The next one takes as long; there is no trial, so no pace.
            self.context.retrain_seconds = seconds
            return UnitResult(test.name, unit, values, seconds), 1.0
        return UnitResult(test.name, unit, values, seconds), min(seconds / max(expected, 1e-9), 1.0)

    def _expected_seconds(self, test: AuditTest, unit: str) -> float:
        """Return about how long a unit takes on all samples, by a trial on a few."""
        if test.needs_retraining:
            return self.context.retrain_seconds
        # The same few samples for all tests: their maps are made once.
        few = self.context.cached("first samples", lambda: self.context.first_samples(TRIAL_SAMPLES))
        trial = test.for_trial()
        first = self._timed(lambda: trial.run(few, unit))[1]
        second = self._timed(lambda: trial.run(few, unit))[1] if test.cost_setting else first
        return test.expected_seconds(first, second, len(self.context) / len(few))

    def _timed(self, run: Callable[[], Values]) -> tuple[Values, float]:
        started = time.monotonic()
        values = run()
        synchronize(self.context.logits.device)
        return values, time.monotonic() - started
