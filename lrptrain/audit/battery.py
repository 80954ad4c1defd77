"""The tests of an audit in their order: cheap and telling ones first, those that train models last."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from lrptrain.audit import attention_tests, map_tests, training_tests
from lrptrain.audit.effort import Effort
from lrptrain.audit.store import Values
from lrptrain.audit.subject import Subject

Run = Callable[[Subject, str, Effort], Values]
Units = Callable[[Subject, Effort], Sequence[str]]
Growing = Literal["shuffles", "search_steps", "frozen_steps", "adversary_steps"]


@dataclass(frozen=True)
class AuditTest:
    """A test of an audit.

    Attributes:
        name: Its name.
        title: What it measures, for people.
        run: Measures one unit.
        units: What it is run on, one by one: methods, seeds, or "" for the model alone.
        obstacle: Why it cannot be run on a subject; empty if it can.
        settings: What its values depend on beside the model, the samples and the seed: of `Effort` or `Subject`.
        grows: The setting of `Effort` that its cost grows with, beside the samples.
        by_batch: Whether its cost grows with the size of a training batch and not with the samples.
        tried: Whether a trial on a few samples tells its cost.
    """

    name: str
    title: str
    run: Run
    units: Units
    obstacle: Callable[[Subject], str] = lambda subject: ""
    settings: tuple[str, ...] = ()
    grows: Growing | None = None
    by_batch: bool = False
    tried: bool = True

    def growth(self, subject: Subject, few: Subject, effort: Effort) -> float:
        """How many times as much a unit costs on all samples as on a few with small effort."""
        parts = (subject.train, few.train) if self.by_batch else (subject.parts, few.parts)
        count = max if self.by_batch else sum
        samples, tried = (count(len(part.label) for part in own) for own in parts)
        steps = getattr(effort, self.grows) / getattr(effort.small(), self.grows) if self.grows else 1.0
        return samples / tried * steps


def _model(subject: Subject, effort: Effort) -> Sequence[str]:
    return ("",)


def _methods(subject: Subject, effort: Effort) -> Sequence[str]:
    return subject.methods


def _weights(subject: Subject, effort: Effort) -> Sequence[str]:
    return (attention_tests.UNIFORM, attention_tests.LEARNED, *subject.methods)


def _numbers(subject: Subject, effort: Effort) -> Sequence[str]:
    return [str(number) for number in range(1, effort.seeds + 1)]


def _no_train(subject: Subject) -> str:
    labelled = any(bool((part.label >= 0).any()) for part in subject.train)
    return "" if labelled else "it trains a model: give training samples with labels"


def _no_retrain(subject: Subject) -> str:
    return "" if subject.retrain is not None else "it needs the model trained anew: give a way to (retrain)"


def _alone(subject: Subject) -> str:
    return "" if len(subject.methods) > 1 else "one method has nothing to agree with"


TESTS = (
    AuditTest("uniform", "uniform attention", attention_tests.uniform, _model),
    AuditTest(
        "perturbation",
        "perturbation against random orders",
        map_tests.perturbation,
        _methods,
        settings=("random_maps", "fill"),
    ),
    AuditTest("leave_one_out", "correlation with leave-one-out", map_tests.leave_one_out, _methods),
    AuditTest("randomisation", "randomised weights", map_tests.randomisation, _methods, settings=("stages",)),
    AuditTest("gradient", "correlation with gradient * input", map_tests.gradient, _methods),
    AuditTest("agreement", "agreement between methods", map_tests.agree, _model, _alone, ("methods",)),
    AuditTest(
        "permutation",
        "permuted attention",
        attention_tests.permutation,
        _model,
        settings=("shuffles",),
        grows="shuffles",
    ),
    AuditTest(
        "adversarial",
        "adversarial attention",
        attention_tests.adversarial,
        _model,
        settings=("search_copies", "search_steps"),
        grows="search_steps",
    ),
    AuditTest(
        "frozen",
        "maps as weights of a token-wise model",
        attention_tests.frozen,
        _weights,
        _no_train,
        settings=("frozen_steps",),
        grows="frozen_steps",
        by_batch=True,
    ),
    AuditTest("seeds", "other seeds", training_tests.seeds, _numbers, _no_retrain, ("methods",), tried=False),
    AuditTest(
        "adversary",
        "trained adversary",
        training_tests.adversary,
        training_tests.wishes,
        _no_train,
        settings=("adversary_steps", "frozen_steps"),
        grows="adversary_steps",
        by_batch=True,
    ),
)
"""All tests."""
