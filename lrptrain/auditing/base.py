"""What an audit test is, and the registry of all tests.

A test is one object in one file of `lrptrain/auditing/checks/`: everything that the audit, its report, its plots, the
page and the command line need to know of it stands there. A new test is a new file in that folder:

    @register
    @dataclass(frozen=True)
    class RepeatabilityTest(AuditTest):
        \"\"\"Whether a method gives the same map twice.\"\"\"

        name = "repeatability"
        title = "the same map twice"
        order = 65
        column = Column("repeatability", values="correlation", higher_is_better=True)

        repetitions: int = setting(2, "How often the map is made.")

        def units(self, context):
            return context.methods

        def run(self, context, unit):
            return {"correlation": ...}  # one number per sample
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from lrptrain.auditing.store import Values

if TYPE_CHECKING:
    from lrptrain.auditing.context import AuditContext
    from lrptrain.auditing.result import AuditResult
    from lrptrain.auditing.score import Score


@dataclass(frozen=True)
class Column:
    """A number per method: the mean over samples of one of a test's values.

    Attributes:
        title: What it is, in a few words: the head of the table's column.
        values: Name of the test's values, one number per sample, of which the mean is taken.
        higher_is_better: Whether more is better; None if neither is.
        sorts: Whether the table sorts methods of the same verdict by it, the highest first.
        logged_as: What loggers call it: `audit/<method>/<logged_as>`. Empty: it is not logged.
        description: What it is, in the words of the page.
        range: Lowest and highest number that the page shows.
    """

    title: str
    values: str
    higher_is_better: bool | None = None
    sorts: bool = False
    logged_as: str = ""
    description: str = ""
    range: tuple[float, float] = (-1.0, 1.0)

    @property
    def head(self) -> str:
        """The title with an arrow: ↑ more is better, ↓ less is."""
        if self.higher_is_better is None:
            return self.title
        return f"{self.title} {'↑' if self.higher_is_better else '↓'}"


@dataclass(frozen=True)
class Check:
    """What a test contributes to the verdict on a method.

    Attributes:
        passed: Whether the test speaks for the method.
        reason: Why, as a clause of the verdict.
        decisive: Whether failing this test alone makes the verdict "no"; else it makes it "weakly".
    """

    passed: bool
    reason: str
    decisive: bool = False


def setting(default: Any, text: str) -> Any:
    """Declare a setting of a test: a dataclass field with a default, and a sentence for `--help`."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class AuditTest(ABC):
    """A test of explanations on a model. Its dataclass fields are its settings; see the module for an example.

    It is run unit by unit: once for the model, or once per method, per seed ... Every unit is saved when it is done.

    Attributes:
        name: Names the test in results, files and `tests=`.
        title: What it measures, for people.
        order: The audit runs the tests by this number: cheap and telling ones first, those that train models last.
            Before all of them come those that decide verdicts, in this order for each method.
        column: The number that the table shows for every method; None where units are not methods, or have no number.
        decides_verdict: Whether the verdict on a method rests on this test, by `check` of the column's mean.
        needs_training_samples: Whether it trains a model on labelled samples.
        needs_retraining: Whether each unit trains the model anew. The time of the last unit then tells the next one's.
        context_settings: Attributes of `AuditContext` that its values depend on, beside model, samples and seed.
        unit_settings: Settings that choose the units and leave the values of each as they are.
        cost_setting: The setting that its time grows with, beside the number of samples; empty if there is none.
        cost_grows_with_samples: Whether its time grows with the samples, too. Not so where it trains for a number of
            steps.
        trial_settings: Settings of the short runs on a few samples that tell what a unit costs.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    order: ClassVar[int]
    column: ClassVar[Column | None] = None
    decides_verdict: ClassVar[bool] = False
    needs_training_samples: ClassVar[bool] = False
    needs_retraining: ClassVar[bool] = False
    context_settings: ClassVar[tuple[str, ...]] = ()
    unit_settings: ClassVar[tuple[str, ...]] = ()
    cost_setting: ClassVar[str] = ""
    cost_grows_with_samples: ClassVar[bool] = True
    trial_settings: ClassVar[Mapping[str, Any]] = {}

    @abstractmethod
    def run(self, context: AuditContext, unit: str) -> Values:
        """Measure one unit on all samples; the values must be numbers, lists or dicts that JSON can hold."""

    def units(self, context: AuditContext) -> Sequence[str]:
        """Return what the test is run on, one after the other; by default the model alone, which has no name."""
        return ("",)

    def obstacle(self, context: AuditContext) -> str:
        """Return why the test cannot be run here; empty if it can."""
        if self.needs_training_samples and not context.has_training_labels:
            return "it trains a model and needs labelled training samples (train_batches)"
        if self.needs_retraining and context.retrain is None:
            return "it needs a function that trains the model anew (retrain)"
        return ""

    def check(self, score: Score) -> Check:
        """Return what the column's mean says of a method, where `decides_verdict`."""
        raise NotImplementedError(f"the audit test {self.name!r} decides verdicts, so it must define `check`")

    def sentences(self, result: AuditResult) -> Iterable[str]:
        """Return what the test found, as plain sentences with the numbers in them."""
        return ()

    def plot(self, result: AuditResult, folder: Path) -> None:
        """Save plots of the test's values to the folder as PNG files; nothing where it was not run.

        Raises:
            ImportError: Without matplotlib.
        """
        return

    def configured(self, settings: object) -> Self:
        """Return the test with those of the settings that it has."""
        changes = {each.name: getattr(settings, each.name) for each in fields(self) if hasattr(settings, each.name)}
        return replace(self, **changes)

    def for_trial(self) -> Self:
        """Return the test with the least that still tells what it costs."""
        return replace(self, **self.trial_settings)

    def expected_seconds(self, first: float, second: float, sample_ratio: float) -> float:
        """Return about how long a unit takes on all samples.

        Args:
            first: Seconds of a trial on a few samples, `for_trial`.
            second: Seconds of the same trial again. What it spared (maps that are kept, say) is made once and grows
                with the samples alone.
            sample_ratio: The number of samples by that of the trial.
        """
        if not self.cost_setting:
            return first * sample_ratio
        # What comes back faster the second time was kept from the first: only the rest grows with the steps.
        steps = getattr(self, self.cost_setting) / getattr(self.for_trial(), self.cost_setting)
        growth = sample_ratio if self.cost_grows_with_samples else 1.0
        return second * steps * growth + max(first - second, 0.0) * sample_ratio

    def value_settings(self, context: AuditContext) -> dict[str, Any]:
        """Return what a unit's values depend on beside model and samples; values of other settings are not reused."""
        # The order of the fields is part of the key in the file, so it should not change.
        settings = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in self.unit_settings}
        shared = {name: getattr(context, name) for name in self.context_settings}
        return {"seed": context.seed, **settings, **shared}


TestClass = TypeVar("TestClass", bound=type[AuditTest])
_REGISTERED: dict[str, AuditTest] = {}


def register(test_class: TestClass) -> TestClass:
    """Add a test to every audit; used as a decorator of its class.

    Raises:
        ValueError: If another test has this name, or one of its settings with another default.
    """
    test = test_class()
    if test.name in _REGISTERED:
        raise ValueError(f"there is already an audit test called {test.name!r}")
    # A setting that several tests share is one setting of the audit, so it can have only one default.
    for other in registered_tests():
        defaults = {each.name: each.default for each in fields(other)}
        for each in fields(test):
            if defaults.get(each.name, each.default) != each.default:
                raise ValueError(f"the setting {each.name!r} has another default in the audit test {other.name!r}")
    _REGISTERED[test.name] = test
    return test_class


def unregister(name: str) -> None:
    """Remove a test from all later audits.

    Raises:
        KeyError: If there is none of this name.
    """
    del _REGISTERED[name]


def registered_tests() -> list[AuditTest]:
    """Return all tests with their default settings, in the order in which an audit runs them."""
    return sorted(_REGISTERED.values(), key=lambda test: (test.order, test.name))


def select_tests(names: Sequence[str] | None = None, settings: object = None) -> list[AuditTest]:
    """Return the tests of these names with these settings, in the order in which an audit runs them; all without names.

    Raises:
        ValueError: If a name is unknown.
    """
    tests = registered_tests()
    unknown = [name for name in names or () if name not in _REGISTERED]
    if unknown:
        raise ValueError(f"unknown tests {unknown}; choose from {', '.join(test.name for test in tests)}")
    return [test.configured(settings) for test in tests if names is None or test.name in names]
