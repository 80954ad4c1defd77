"""Audit a model's explanations: all tests that fit into a time, each saved when it is done."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from lrptrain.audit.battery import TESTS, AuditTest
from lrptrain.audit.comparison import UNSUPPORTED, Fill
from lrptrain.audit.effort import Effort
from lrptrain.audit.result import AuditResult, Unit
from lrptrain.audit.store import Store, Values
from lrptrain.audit.subject import Batch, Subject, fingerprint, prepare
from lrptrain.relevance.preserve import preserved, unwrap
from lrptrain.relevance.registry import get_method

TRIED = 2
"""Samples of the trial that tells what a unit costs."""
FILE = "units.jsonl"
"""Of an audit's folder: what was measured."""


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
    effort: Effort | None = None,
    seed: int = 0,
    progress: Callable[[Unit], None] | None = None,
) -> AuditResult:
    """Test on a model and its data whether methods are faithful; explained is the predicted class.

    The tests run in the order of `lrptrain.audit.battery.TESTS`. A unit (a test of a method, a seed ...) is tried on
    two samples first; if it would not fit into what is left of the budget, it is left out, and the result says so.
    Units that fail say why. The model comes out as it was, to the bit.

    Args:
        model: As for `lrptrain.attribute`; audited in evaluation mode.
        batches: Validation samples in the contract of `lrptrain.batch`, where the model is; `label` where known.
        methods: Some of `lrptrain.methods()`.
        budget: Seconds. A unit that was begun is finished, so that a wrong estimate can exceed it by one unit's time.
        folder: Keeps what is measured; an audit of the same model, samples and settings that is started again takes it
            from there, and has its budget for the rest. None: nothing is kept.
        tests: Names of those to run, by default all.
        fill: What pixels become that are removed; see `perturbation_curve`.
        train_batches: Training samples with labels, for the tests that train something.
        retrain: `retrain(seed)` trains the model anew and returns it.
        retrain_seconds: About how long that takes. If it is not known, the first is begun when there is time left.
        effort: Of each test.
        seed: Of all that is drawn.
        progress: Called with every unit when it is done, or left out.

    Raises:
        UnsupportedMethodError: If a method is unknown.
        UnsupportedModelError: If the model does not return logits.
        ValueError: If there is no sample or no method, a test is unknown, or the budget is negative.
    """
    methods = tuple(dict.fromkeys(get_method(name, {}).name for name in methods))
    chosen, effort = chosen_tests(tests), effort or Effort()
    if not methods:
        raise ValueError("an audit needs at least one method")
    if budget < 0:
        raise ValueError(f"budget must be 0 seconds or more, not {budget}")
    clock = _Clock(budget)
    batches, train_batches = list(batches), list(train_batches or ())
    with _auditing(unwrap(model)) as model:
        parts, train = prepare(model, batches), prepare(model, train_batches) if train_batches else []
        subject = Subject(model, parts, methods, train, retrain, retrain_seconds, fill, seed)
        key = fingerprint(model, [*batches, *train_batches])
        store = Store(None if folder is None else Path(folder) / FILE)
        units = []
        for test in chosen:
            for unit in _units(test, subject, effort, store, key, clock):
                units.append(unit)
                if progress is not None:
                    progress(unit)
    return AuditResult.of(subject, units, budget, clock.spent())


@dataclass
class _Clock:
    budget: float
    started: float = field(default_factory=time.monotonic)

    def spent(self) -> float:
        return time.monotonic() - self.started

    def left(self) -> float:
        return self.budget - self.spent()


def _units(test: AuditTest, subject: Subject, effort: Effort, store: Store, key: str, clock: _Clock) -> Iterator[Unit]:
    """All units of a test: from the store, measured, or with what kept them from it."""
    why = test.obstacle(subject)
    if why:
        yield Unit(test.name, "", problem=f"not run: {why}")
        return
    pace = 1.0  # what the last unit took by what was expected of it
    for of in test.units(subject, effort):
        own = f"{key} {test.name} {of} {_settings(test, subject, effort)}"
        known = store.get(own)
        if known is not None:
            yield Unit(test.name, of, known["values"], known["seconds"])
            continue
        try:
            unit, pace = _measured(test, of, subject, effort, clock, pace)
        except UNSUPPORTED as error:
            unit = Unit(test.name, of, problem=f"not possible here: {error}")
        except Exception as error:
            unit = Unit(test.name, of, problem=f"failed: {type(error).__name__}: {error}")
        if not unit.problem:
            store.add(own, {"values": unit.values, "seconds": unit.seconds})
        yield unit


def _settings(test: AuditTest, subject: Subject, effort: Effort) -> dict[str, object]:
    """What the values of a test depend on beside the model and the samples."""
    owners = {name: effort if hasattr(effort, name) else subject for name in test.settings}
    return {"seed": subject.seed, **{name: getattr(owner, name) for name, owner in owners.items()}}


def _measured(
    test: AuditTest, of: str, subject: Subject, effort: Effort, clock: _Clock, pace: float
) -> tuple[Unit, float]:
    """A unit, if it fits into what is left; and what it took by what was expected."""
    if clock.left() <= 0:
        return Unit(test.name, of, problem=f"not run: the budget of {clock.budget:g} s is used up"), pace
    expected = _expected(test, of, subject, effort)
    if expected * pace > clock.left():
        left = max(clock.left(), 0.0)
        why = f"not run: it takes about {expected * pace:.0f} s, and {left:.0f} s of {clock.budget:g} s are left"
        return Unit(test.name, of, problem=f"{why}: raise the budget"), pace
    values, seconds = _timed(lambda: test.run(subject, of, effort), subject)
    if not test.tried:
        subject.retrain_seconds = seconds
        return Unit(test.name, of, values, seconds), 1.0
    return Unit(test.name, of, values, seconds), min(seconds / max(expected, 1e-9), 1.0)


def _expected(test: AuditTest, of: str, subject: Subject, effort: Effort) -> float:
    """Seconds that a unit takes on all samples, by a trial on a few."""
    if not test.tried:
        return subject.retrain_seconds
    few = subject.once("few", lambda: subject.few(TRIED))

    def trial() -> float:
        return _timed(lambda: test.run(few, of, effort.small()), subject)[1]

    first = trial()
    return test.expected(first, trial() if test.grows else first, subject, few, effort)


def _timed(run: Callable[[], Values], subject: Subject) -> tuple[Values, float]:
    wait = torch.cuda.synchronize if subject.logits.is_cuda else lambda: None
    started = time.monotonic()
    values = run()
    wait()
    return values, time.monotonic() - started


def chosen_tests(tests: Sequence[str] | None) -> list[AuditTest]:
    """The tests of these names in their order; all without.

    Raises:
        ValueError: If one is unknown.
    """
    names = [test.name for test in TESTS]
    unknown = [name for name in tests or () if name not in names]
    if unknown:
        raise ValueError(f"unknown tests {unknown}; known are {', '.join(names)}")
    return [test for test in TESTS if tests is None or test.name in tests]


@contextmanager
def _auditing(model: nn.Module) -> Iterator[nn.Module]:
    """The model in evaluation mode, with gradients to be had; left as it was."""
    with preserved(model), torch.inference_mode(False), torch.enable_grad():
        model.eval()
        yield model
