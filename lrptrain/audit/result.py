"""What an audit found: units, notes on the data, and a verdict per method."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lrptrain.audit.store import Values
from lrptrain.audit.subject import Subject
from lrptrain.audit.verdict import ENOUGH, LEVELS, Verdict, judge

MEASURED = {"perturbation": "gain", "leave_one_out": "tau", "randomisation": "left"}
"""Which values of the tests of a verdict it rests on."""


@dataclass(frozen=True)
class Unit:
    """A test of one method, of one seed, or of the model alone.

    Attributes:
        test: Name of the test; see `lrptrain.audit.battery.TESTS`.
        of: What it was run on; "" for the model alone.
        values: What was measured; empty if nothing was.
        seconds: How long it took.
        problem: Why there are no values.
    """

    test: str
    of: str
    values: Values = field(default_factory=dict)
    seconds: float = float("nan")
    problem: str = ""

    @property
    def title(self) -> str:
        """The test, and what it was run on."""
        return f"{self.test} of {self.of}" if self.of else self.test


@dataclass(frozen=True)
class AuditResult:
    """What an audit found.

    Attributes:
        methods: That were audited.
        units: In the order in which they ran.
        verdicts: One per method.
        notes: What of the data or the model limits the audit, in words.
        about: Number of samples, classes, and share of right predictions (nan without labels).
        budget: Seconds that it was given.
        seconds: That it took, without what was done before.
    """

    methods: tuple[str, ...]
    units: tuple[Unit, ...]
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...]
    about: dict[str, Any]
    budget: float
    seconds: float

    @classmethod
    def of(cls, subject: Subject, units: Sequence[Unit], budget: float, seconds: float) -> "AuditResult":
        """Judge the methods by what was measured."""
        label, predicted = subject.label, subject.logits.argmax(1)
        known = label >= 0
        right = (predicted == label)[known].double()
        about = {
            "samples": len(subject),
            "classes": subject.logits.shape[1],
            "accuracy": float(right.mean()),
            "predicted": sorted(set(predicted.tolist())),
            "labels": sorted(set(label[known].tolist())),
        }
        obstacle = _constant(about)
        verdicts = tuple(_verdict(method, units, obstacle) for method in subject.methods)
        return cls(subject.methods, tuple(units), verdicts, tuple(_notes(about)), about, budget, seconds)

    def values(self, test: str, of: str = "") -> Values:
        """What a unit measured; empty if it did not."""
        return next((unit.values for unit in self.units if (unit.test, unit.of) == (test, of)), {})


def scalars(result: AuditResult) -> dict[str, float]:
    """For loggers, per method: its gain over random orders, and the verdict as a number where there is one."""
    found = {}
    for verdict in result.verdicts:
        level, gain = LEVELS[verdict.faithful], verdict.numbers.get("perturbation")
        if gain is not None and not math.isnan(gain.value):
            found[f"audit/{verdict.method}/perturbation_gain"] = gain.value
        if not math.isnan(level):
            found[f"audit/{verdict.method}/verdict"] = level
    return found


def _verdict(method: str, units: Sequence[Unit], obstacle: str) -> Verdict:
    own = {unit.test: unit for unit in units if unit.of == method and unit.test in MEASURED}
    measured = {test: unit.values[MEASURED[test]] for test, unit in own.items() if not unit.problem}
    return judge(method, measured, {test: unit.problem for test, unit in own.items() if unit.problem}, obstacle)


def _constant(about: dict[str, Any]) -> str:
    """Why no verdict is possible on constant predictions; empty if they are not."""
    if about["samples"] < 2 or len(about["predicted"]) > 1:
        return ""
    only = about["predicted"][0]
    return f"the model predicts class {only} for all samples: nothing in them is seen to move its prediction"


def _notes(about: dict[str, Any]) -> list[str]:
    notes = []
    samples, classes, labels = about["samples"], about["classes"], about["labels"]
    if samples < ENOUGH:
        plural = "samples are" if samples > 1 else "sample is"
        notes.append(f"{samples} {plural} too few for a verdict: give at least {ENOUGH}.")
    if _constant(about):
        notes.append(f"No verdict: {_constant(about)}.")
    if not labels:
        notes.append("No sample has a label: accuracies are not known.")
    elif len(labels) < max(classes, 2):
        missing = [number for number in range(max(classes, 2)) if number not in labels]
        shown = ", ".join(map(str, missing[:10])) + (" ..." if len(missing) > 10 else "")
        notes.append(f"No sample of class {shown}: what is said here does not hold for it.")
    return notes
