"""Whether maps are faithful on a model and a loader, where they lie, and what they cost."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from lrptrain.auditing.base import AuditTest, select_tests
from lrptrain.auditing.brought import UNSUPPORTED, evaluation_with_gradients, synchronize
from lrptrain.auditing.context import AuditContext, AuditSettings, Batch, fingerprint, predict_batches
from lrptrain.auditing.report import write_audit_report
from lrptrain.auditing.result import AuditResult, UnitResult
from lrptrain.auditing.samples import draw_samples
from lrptrain.auditing.store import Store, Values
from lrptrain.batch import BatchAdapter, batched
from lrptrain.batch.matters import FEWEST_SAMPLES
from lrptrain.batch.task import CLASSES, Task, TaskName, find_task
from lrptrain.relevance.model.preserve import unwrap
from lrptrain.relevance.registry import get_method
from lrptrain.trainers.checks import check_counts
from lrptrain.trainers.discover import device_of, logits_model

AUDITED_METHODS = (
    "raw_attention",
    "rollout",
    "generic_attention",
    "transformer_attribution",
    "attnlrp",
    "input_x_gradient",
    "random",
)
"""The methods that are audited where none are named."""


def audit(
    model: nn.Module,
    loader: Iterable[Any],
    methods: Sequence[str] = AUDITED_METHODS,
    *,
    budget: float = 900.0,
    max_samples: int = 64,
    batch_adapter: BatchAdapter | None = None,
    task: TaskName | Task | None = None,
    settings: AuditSettings | None = None,
    output: Path | str | None = None,
    verbose: bool = False,
) -> AuditResult:
    """Measure on a model and a loader which methods are faithful, where their maps lie, and what they cost.

    `print(result)` shows the table and a verdict per method: yes, weakly, no, or why it is not judged. The predicted
    class is explained, in evaluation mode; the model is left as it was.

    Examples:
        >>> import torch, lrptrain
        >>> loader = [(torch.rand(8, 3, 16, 16), torch.arange(8) % 2)]
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 8, 8), torch.nn.Flatten(), torch.nn.Linear(16, 2))
        >>> result = lrptrain.audit(model, loader, ["attnlrp", "random"], max_samples=8)
        >>> [verdict.method for verdict in result.verdicts]
        ['attnlrp', 'random']

    Args:
        model: Any module whose forward returns logits `[batch, classes]` or an object with `.logits`.
        loader: Batches as for `RelevanceMonitor`, or tuples (image, label[, mask]).
        methods: Some of `lrptrain.methods()`.
        budget: Seconds; tests that do not fit are left out, and named.
        max_samples: How many samples are taken, evenly over the classes; a verdict needs 8.
        batch_adapter: Brings a batch of another form to the names of the contract.
        task: What output and labels mean; see `RelevanceMonitor`. Not `EachLabel`.
        settings: Which tests are run, and how they measure; see `lrptrain.auditing.AuditSettings`.
        output: Folder for audit.html, results.json and units.jsonl; the same audit, started again, resumes there.
        verbose: Whether to print how far it is.

    Raises:
        KeyboardInterrupt: At Ctrl-C, after what is done has been written.
        UnsupportedMethodError: If a method is unknown.
        UnsupportedModelError: If the model does not return logits.
        ValueError: If the loader has no sample, a batch cannot be read, a test is unknown, or a number is not positive.
    """
    started = time.monotonic()
    settings = settings or AuditSettings()
    check_counts(max_samples=max_samples)
    names = check_arguments(methods, settings, budget)
    network = logits_model(model)
    chosen = find_task(task, network)
    samples = draw_samples(loader, max_samples, settings.seed, batch_adapter, chosen)
    batches = batched(samples, settings.batch_size, device_of(network))
    # They are used twice: for the audit, and after Ctrl-C to read what it has measured.
    options: dict[str, Any] = {"folder": output, "settings": settings, "task": chosen, "started": started}
    try:
        result = run_audit(network, batches, names, budget=budget, progress=_print_unit if verbose else None, **options)
    except KeyboardInterrupt:
        if output is not None:
            if verbose:
                print("\nstopped: what is done is kept\n", flush=True)
            # Every unit was saved when it was done: with no budget left, the result is read from the folder.
            _conclude(run_audit(network, batches, names, budget=0, **options), output, verbose)
        raise
    _conclude(result, output, verbose)
    return result


def check_arguments(methods: Sequence[str], settings: AuditSettings, budget: float) -> tuple[str, ...]:
    """Reject wrong arguments now, and not after minutes of work; return the names of the methods."""
    if isinstance(methods, str) or not methods:
        raise ValueError(f"methods must be a list of names of lrptrain.methods(), not {methods!r}")
    if not budget > 0:
        raise ValueError(f"budget must be a positive number of seconds, not {budget}")
    select_tests(settings.tests)
    return tuple(dict.fromkeys(get_method(name, {}).name for name in methods))


def _conclude(result: AuditResult, output: Path | str | None, verbose: bool) -> None:
    """Write an audit and show it."""
    if output is not None:
        write_audit_report(result, Path(output))
    if verbose:
        files = "" if output is None else f"\n{Path(output) / 'audit.html'}\n{Path(output) / 'results.json'}"
        print(f"\n{result}{files}", flush=True)


def _print_unit(unit: UnitResult) -> None:
    print(f"{unit.title:44} {unit.problem or f'{unit.seconds:.1f} s'}", flush=True)


TRIAL_SAMPLES = 2
"""Samples of the trial that tells what a unit costs."""
UNITS_FILE = "units.jsonl"
"""The file of an audit's folder that keeps what was measured."""


def run_audit(
    model: nn.Module,
    batches: Iterable[Batch],
    methods: Sequence[str],
    *,
    budget: float,
    settings: AuditSettings,
    folder: Path | str | None = None,
    task: Task = CLASSES,
    progress: Callable[[UnitResult], None] | None = None,
    started: float | None = None,
) -> AuditResult:
    """Run `lrptrain.audit` on samples that are drawn, for methods that `check_arguments` returned.

    The tests that decide verdicts run first, method by method: a small budget judges some methods, and not a part of
    each. The others run in the order of `lrptrain.auditing.registered_tests()`. A unit (a test of a method) is tried on
    two samples first; if it would not fit into what is left of the budget, it is left out, and the result says so.
    Units that fail say why.
    """
    selected = select_tests(settings.tests)
    started = time.monotonic() if started is None else started
    batches = list(batches)
    with task.reading(), evaluation_with_gradients(unwrap(model)) as model:
        context = AuditContext(model, predict_batches(model, batches), tuple(methods), settings)
        store = Store(None if folder is None else Path(folder) / UNITS_FILE)
        runner = _Runner(context, store, fingerprint(model, batches), budget, started)
        results = []
        for result in runner.run_all(selected):
            results.append(result)
            if progress is not None:
                progress(result)
        advice = runner.advice(selected)
    return AuditResult.from_units(context, results, budget, time.monotonic() - started, advice)


class OutOfTimeError(BaseException):
    """The time of a unit is over. No test must take it for a failure of its own: it is no `Exception`."""


@contextmanager
def _ending(model: nn.Module, deadline: float) -> Iterator[None]:
    """Raise `OutOfTimeError` at the first pass of a model that begins after a deadline, by `time.monotonic()`."""

    def check(module: nn.Module, arguments: object) -> None:
        if time.monotonic() > deadline:
            raise OutOfTimeError

    with model.register_forward_pre_hook(check):
        yield


@dataclass(frozen=True)
class _Cost:
    """How long a unit of a test takes on all samples: about so long, or at least, where no trial came to its end."""

    seconds: float
    is_known: bool


@dataclass
class _Runner:
    """Runs tests unit by unit, as long as there is time: `budget` seconds from `started` on."""

    context: AuditContext
    store: Store
    fingerprint: str
    budget: float
    started: float
    _paces: dict[str, float] = field(default_factory=dict)  # seconds of the last unit by those that were expected
    _costs: dict[str, "_Cost"] = field(default_factory=dict)  # of the last unit of each test
    _too_long: set[tuple[str, str]] = field(default_factory=set)  # test and unit

    def _left(self) -> float:
        return self.budget - (time.monotonic() - self.started)

    def run_all(self, tests: Sequence[AuditTest]) -> Iterator[UnitResult]:
        """Yield the results of all units: from the store, measured, or with the reason why there is none.

        The tests that decide verdicts come first, method by method.
        """
        deciding = [test for test in tests if test.decides_verdict and not test.obstacle(self.context)]
        units = {test.name: tuple(test.units(self.context)) for test in deciding}
        for unit in dict.fromkeys(unit for of_test in units.values() for unit in of_test):
            yield from (self._result(test, unit) for test in deciding if unit in units[test.name])
        for test in tests:
            if test not in deciding:
                yield from self._run(test)

    def advice(self, tests: Sequence[AuditTest]) -> str:
        """Return how many methods could be judged in the time, and what one more takes; "" where time was enough."""
        deciding = {test.name for test in tests if test.decides_verdict}
        missing = {unit for test, unit in self._too_long if test in deciding}
        if not missing or not self.budget:
            return ""
        methods = self.context.methods
        judged = f"{len(methods) - len(missing)} of {len(methods)} methods were judged in {self.budget:g} s"
        costs = [self._costs[name] for name in deciding if name in self._costs]
        if not costs:
            return f"{judged}: raise budget."
        or_more = "" if len(costs) == len(deciding) and all(each.is_known for each in costs) else " or more"
        seconds = sum(each.seconds for each in costs)
        samples = len(self.context)
        fewer = f", and {seconds * FEWEST_SAMPLES / samples:.0f} s{or_more} with max_samples={FEWEST_SAMPLES}"
        return (
            f"{judged}: a verdict on one takes about {seconds:.0f} s{or_more} on {samples} samples"
            f"{fewer if samples > FEWEST_SAMPLES else ''}; raise budget."
        )

    def _run(self, test: AuditTest) -> Iterator[UnitResult]:
        obstacle = test.obstacle(self.context)
        if obstacle:
            yield UnitResult(test.name, "", problem=f"not run: {obstacle}")
            return
        for unit in test.units(self.context):
            yield self._result(test, unit)

    def _result(self, test: AuditTest, unit: str) -> UnitResult:
        key = f"{self.fingerprint} {test.name} {unit} {test.value_settings(self.context)}"
        saved = self.store.get(key)
        if saved is not None:
            return UnitResult(test.name, unit, saved["values"], saved["seconds"])
        # A failure costs its unit, not the audit.
        try:
            result = self._measure(test, unit)
        except UNSUPPORTED as error:
            result = UnitResult(test.name, unit, problem=f"not possible here: {error}")
        except Exception as error:
            result = UnitResult(test.name, unit, problem=f"failed: {type(error).__name__}: {error}")
        if not result.problem:
            self.store.add(key, {"values": result.values, "seconds": result.seconds})
        return result

    def _measure(self, test: AuditTest, unit: str) -> UnitResult:
        """Return the result of a unit, if it fits into the time that is left."""
        if self._left() <= 0:
            return self._without(test, unit, f"not run: the budget of {self.budget:g} s is used up")
        cost = self._expected(test, unit)
        # Estimates from a few samples are too high (a batch costs less than its samples one by one), so the pace of the
        # last unit corrects them; it never makes them larger.
        seconds = cost.seconds * self._paces.get(test.name, 1.0)
        left = max(self._left(), 0.0)
        if not cost.is_known or seconds > left:
            about = f"about {seconds:.0f} s" if cost.is_known else "more"
            reason = f"it takes {about}, and {left:.0f} s of {self.budget:g} s are left"
            return self._without(test, unit, f"not run: {reason}: raise the budget")
        try:
            with _ending(self.context.model, self.started + self.budget):
                values, seconds = self._timed(lambda: test.run(self.context, unit))
        except OutOfTimeError:
            return self._without(test, unit, f"not finished: the budget of {self.budget:g} s is used up")
        self._paces[test.name] = min(seconds / max(cost.seconds, 1e-9), 1.0)
        self._costs[test.name] = _Cost(seconds, True)
        return UnitResult(test.name, unit, values, seconds)

    def _without(self, test: AuditTest, unit: str, problem: str) -> UnitResult:
        """Return the result of a unit for which there was no time."""
        self._too_long.add((test.name, unit))
        return UnitResult(test.name, unit, problem=problem)

    def _expected(self, test: AuditTest, unit: str) -> "_Cost":
        """Return about how long a unit takes on all samples, by a trial on a few."""
        before = self._costs.get(test.name)
        if before is not None and not before.is_known:
            return before  # the trial of another unit was too long: this one's would be, too
        # The same few samples for all tests: their maps are made once.
        few = self.context.cached("first samples", lambda: self.context.first_samples(TRIAL_SAMPLES))
        # No batch takes less than a few of its samples: a trial that takes longer says that the whole does not fit.
        longest = self._left() / (len(self.context.batches) if len(few) < len(self.context) else 1)
        ratio = len(self.context) / len(few)
        try:
            with _ending(self.context.model, time.monotonic() + longest):
                seconds = self._timed(lambda: test.run(few, unit))[1]
        except OutOfTimeError:
            cost = _Cost(longest * ratio, False)
        else:
            cost = _Cost(seconds * ratio, True)
            # What units share is made in the trial of the first one, and once more where one is run on all samples.
            if before is not None and test.name not in self._paces:
                cost = max(cost, before, key=lambda each: each.seconds)
        if test.name not in self._paces:
            self._costs[test.name] = cost
        return cost

    def _timed(self, run: Callable[[], Values]) -> tuple[Values, float]:
        started = time.monotonic()
        values = run()
        synchronize(self.context.logits.device)
        return values, time.monotonic() - started
