"""What an audit measured: a result per unit, notes on the data, and a verdict per method."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from lrptrain.auditing.base import AuditTest, Check, Column, select_tests
from lrptrain.auditing.context import AuditContext
from lrptrain.auditing.score import Score, markdown_html, summarize
from lrptrain.auditing.store import Values
from lrptrain.batch.matters import FEWEST_SAMPLES

Faithful = Literal["yes", "weakly", "no", "not judged"]
LEVELS: dict[Faithful, float] = {"yes": 1.0, "weakly": 0.5, "no": 0.0, "not judged": float("nan")}
"""The verdicts as numbers, for loggers."""


@dataclass(frozen=True)
class Verdict:
    """Whether a method is faithful on a model.

    Attributes:
        method: Name of the method.
        faithful: "yes": it passes every test that decides a verdict. "weakly": it fails one that is not decisive.
            "no": it fails a decisive one. "not judged": something was not measured.
        reasons: Why, a clause per test.
        numbers: Mean and 95 % t interval over samples, by the name of the test.
    """

    method: str
    faithful: Faithful
    reasons: tuple[str, ...]
    numbers: Mapping[str, Score] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.method}: faithful on this model: {self.faithful} ({'; '.join(self.reasons)})"


def reach_verdict(
    method: str,
    tests: Sequence[AuditTest],
    measured: Mapping[str, Sequence[float]],
    missing: Mapping[str, str] | None = None,
    obstacle: str = "",
) -> Verdict:
    """Return the verdict on a method, by the tests that decide verdicts.

    A decisive failure makes a "no", whatever was not measured. Else everything must have been measured: one failure
    or more makes "weakly", none makes "yes".
    """
    deciding = [test for test in tests if test.decides_verdict]
    numbers = {test.name: summarize(measured[test.name]) for test in deciding if test.name in measured}
    if obstacle:
        return Verdict(method, "not judged", (obstacle,), numbers)
    gaps: list[str] = []
    checks: list[Check] = []
    for test in deciding:
        score = numbers.get(test.name)
        if score is None:
            gaps.append(f"{test.name} was not measured: {(missing or {}).get(test.name, 'it was not chosen')}")
        elif score.samples < FEWEST_SAMPLES:
            gaps.append(f"{test.name} has {score.samples} samples, but at least {FEWEST_SAMPLES} are needed")
        else:
            checks.append(test.check(score))
    reasons = tuple(check.reason for check in checks)
    failures = [check for check in checks if not check.passed]
    # Before the gaps: a decisive failure stands, whatever else would have been measured.
    if any(check.decisive for check in failures):
        return Verdict(method, "no", reasons, numbers)
    if gaps:
        return Verdict(method, "not judged", (*gaps, *reasons), numbers)
    return Verdict(method, "weakly" if failures else "yes", reasons, numbers)


@dataclass(frozen=True)
class UnitResult:
    """A test of one method, or of the model alone.

    Attributes:
        test: Name of the test; see `lrptrain.auditing.base.registered_tests`.
        unit: What the test was run on; "" for the model alone.
        values: What was measured; empty if nothing was.
        seconds: How long it took; nan if it was not run.
        problem: Why there are no values; empty if there are.
    """

    test: str
    unit: str
    values: Values = field(default_factory=dict)
    seconds: float = float("nan")
    problem: str = ""

    @property
    def title(self) -> str:
        """The test, and what it was run on."""
        return f"{self.test} of {self.unit}" if self.unit else self.test


@dataclass(frozen=True, repr=False)
class AuditResult:
    """What an audit measured.

    Attributes:
        methods: Names of the methods that were audited.
        units: Results in the order in which the tests ran.
        verdicts: One per method.
        notes: Properties of the data or the model that limit the audit, in words.
        about: Number of samples and classes, share of correct predictions (nan without labels), and which classes are
            predicted and labelled.
        budget: Seconds that the audit was allowed.
        seconds: Seconds that it took, without what was measured before.
    """

    methods: tuple[str, ...]
    units: tuple[UnitResult, ...]
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...]
    about: dict[str, Any]
    budget: float
    seconds: float

    @classmethod
    def from_units(
        cls, context: AuditContext, units: Sequence[UnitResult], budget: float, seconds: float, advice: str = ""
    ) -> "AuditResult":
        """Summarise the data and reach a verdict on every method; `advice` is one more note, if it is not ""."""
        predicted = context.logits.argmax(1)
        has_label = context.label >= 0
        is_correct = (predicted == context.label)[has_label].double()
        about = {
            "samples": len(context),
            "classes": context.logits.shape[1],
            "accuracy": float(is_correct.mean()),
            "predicted": sorted(set(predicted.tolist())),
            "labels": sorted(set(context.label[has_label].tolist())),
        }
        obstacle = _constant_prediction(about)
        return cls(
            methods=context.methods,
            units=tuple(units),
            verdicts=tuple(_verdict_on(method, units, obstacle) for method in context.methods),
            notes=(*_notes(about), *([advice] if advice else [])),
            about=about,
            budget=budget,
            seconds=seconds,
        )

    def values(self, test: str, unit: str = "") -> Values:
        """Return what a unit measured; empty if it did not."""
        return next((each.values for each in self.units if (each.test, each.unit) == (test, unit)), {})

    def column_score(self, test: AuditTest, method: str, column: Column | None = None) -> Score | None:
        """Return the mean of a test's column for a method, by default of the first; None if it was not measured."""
        values = self.values(test.name, method)
        name = (column or test.columns[0]).values
        return summarize(values[name]) if name in values else None

    def __str__(self) -> str:
        """Return everything in words, as in the report."""
        from lrptrain.auditing.report import markdown  # which reads results, so it imports this module

        return markdown(self)

    def __repr__(self) -> str:
        verdicts = ", ".join(f"{verdict.method}: {verdict.faithful}" for verdict in self.verdicts)
        return f"AuditResult({self.about['samples']} samples, faithful: {verdicts})"

    def _repr_html_(self) -> str:
        return markdown_html(str(self))

    def to_dict(self) -> dict[str, Any]:
        """Return everything with the names that the files of an audit use."""
        # The files call the unit "of", as in "perturbation of rollout".
        units = [{"of" if name == "unit" else name: x for name, x in vars(each).items()} for each in self.units]
        return {**asdict(self), "units": units}


def _verdict_on(method: str, units: Sequence[UnitResult], obstacle: str) -> Verdict:
    tests = select_tests()
    columns = {test.name: test.columns[0] for test in tests if test.decides_verdict}
    own_units = {each.test: each for each in units if each.unit == method and each.test in columns}
    # Of units that ran without a problem, the values per sample that the column averages.
    measured = {name: unit.values[columns[name].values] for name, unit in own_units.items() if not unit.problem}
    missing = {name: unit.problem for name, unit in own_units.items() if unit.problem}
    return reach_verdict(method, tests, measured, missing, obstacle)


def _constant_prediction(about: dict[str, Any]) -> str:
    """Return why no verdict is possible where all predictions are the same; empty if they are not."""
    if about["samples"] < 2 or len(about["predicted"]) > 1:
        return ""
    return f"the model predicts class {about['predicted'][0]} for all samples: nothing in them changes its prediction"


def _notes(about: dict[str, Any]) -> list[str]:
    notes = []
    samples = about["samples"]
    labels = about["labels"]
    if samples < FEWEST_SAMPLES:
        plural = "samples are" if samples > 1 else "sample is"
        notes.append(f"{samples} {plural} too few for a verdict: pass at least {FEWEST_SAMPLES}.")
    if obstacle := _constant_prediction(about):
        notes.append(f"No verdict: {obstacle}.")
    classes = max(about["classes"], 2)  # a single logit stands for two classes
    if not labels:
        notes.append("No sample has a label, so accuracies are unknown.")
    elif len(labels) < classes:
        missing = [number for number in range(classes) if number not in labels]
        listed = ", ".join(map(str, missing[:10])) + (" ..." if len(missing) > 10 else "")
        notes.append(f"There is no sample of class {listed}: the results say nothing about it.")
    return notes
