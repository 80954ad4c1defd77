"""What an audit test is, and the registry of all tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from lrptrain.auditing.context import AuditContext
from lrptrain.auditing.score import Score
from lrptrain.auditing.store import Values

if TYPE_CHECKING:
    from lrptrain.auditing.result import AuditResult


@dataclass(frozen=True)
class Column:
    """A number per method: the mean over samples of one of a test's values.

    Attributes:
        title: What it is, in a few words: the head of the table's column.
        values: Name of the test's values, one number per sample, of which the mean is taken.
        higher_is_better: Whether more is better; None if neither is.
        sorts: Whether the table sorts methods of the same verdict by it, the highest first.
        logged_as: What loggers call it: `audit/<method>/<logged_as>`. Empty: it is not logged.
        chance: Name of the test's values that are its level by chance; empty if it has none.
    """

    title: str
    values: str
    higher_is_better: bool | None = None
    sorts: bool = False
    logged_as: str = ""
    chance: str = ""

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


class AuditTest(ABC):
    """A measurement of explanations on a model, whether or not a verdict rests on it.

    A test is one object in one file of `lrptrain/auditing/checks/`, with all that the table and the plots need. It is
    run once for the model, or once per method; each result is saved when it is done.

    Examples:
        >>> from lrptrain.auditing import AuditTest, Column, register, unregister
        >>> @register
        ... class PositiveShare(AuditTest):
        ...     name, order = "positive_share", 35
        ...     columns = (Column("positive", values="positive", higher_is_better=True),)
        ...     def run(self, context, unit):  # one number per sample
        ...         return {"positive": [float((maps.scores > 0).float().mean()) for maps in context.maps(unit)]}
        >>> unregister("positive_share")

    Attributes:
        name: Names the test in results, files and `AuditSettings.tests`.
        order: The audit runs the tests by this number, those that decide verdicts first.
        columns: The numbers that the table shows for every method; none where units are not methods.
        decides_verdict: Whether the verdict on a method rests on this test, by `check` of the first column's mean.
        settings: What its values depend on beside model, samples and seed: names of `AuditSettings`, or "methods".
    """

    name: ClassVar[str]
    order: ClassVar[int]
    columns: ClassVar[tuple[Column, ...]] = ()
    decides_verdict: ClassVar[bool] = False
    settings: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def run(self, context: AuditContext, unit: str) -> Values:
        """Measure one unit on all samples; the values must be numbers, lists or dicts that JSON can hold."""

    def units(self, context: AuditContext) -> Sequence[str]:
        """Return what the test is run on, one after the other; without columns the model alone, which has no name."""
        return context.methods if self.columns else ("",)

    def obstacle(self, context: AuditContext) -> str:
        """Return why the test cannot be run here; empty if it can."""
        return ""

    def check(self, score: Score) -> Check:
        """Return what the first column's mean says of a method, where `decides_verdict`."""
        raise NotImplementedError(f"the audit test {self.name!r} decides verdicts, so it must define `check`")

    def plot(self, result: AuditResult, folder: Path) -> None:
        """Save plots of the test's values to the folder as PNG files, by matplotlib; nothing where it was not run."""
        return

    def value_settings(self, context: AuditContext) -> dict[str, Any]:
        """Return what a unit's values depend on beside model and samples; values of other settings are not reused."""
        values = {"methods": context.methods, **vars(context.settings)}
        # The order is part of the key in the file, so it should not change.
        return {name: values[name] for name in ("seed", *self.settings)}


TestClass = TypeVar("TestClass", bound=type[AuditTest])
_REGISTERED: dict[str, AuditTest] = {}


def register(test_class: TestClass) -> TestClass:
    """Add a test to every audit; used as a decorator of its class."""
    test = test_class()
    if test.name in _REGISTERED:
        raise ValueError(f"there is already an audit test called {test.name!r}")
    _REGISTERED[test.name] = test
    return test_class


def unregister(name: str) -> None:
    """Remove a test from all later audits."""
    del _REGISTERED[name]


def registered_tests() -> list[AuditTest]:
    """Return all tests, in the order in which an audit runs them."""
    return sorted(_REGISTERED.values(), key=lambda test: (test.order, test.name))


def select_tests(names: Sequence[str] | None = None) -> list[AuditTest]:
    """Return the tests of these names, in the order in which an audit runs them; all without names."""
    tests = registered_tests()
    unknown = [name for name in names or () if name not in _REGISTERED]
    if unknown:
        raise ValueError(f"unknown tests {unknown}; choose from {', '.join(test.name for test in tests)}")
    return [test for test in tests if names is None or test.name in names]
