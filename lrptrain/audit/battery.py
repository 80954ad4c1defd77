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
        by_batch: Whether its steps are over training batches, and cost the same however many samples there are.
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

    def expected(self, first: float, again: float, subject: Subject, few: Subject, effort: Effort) -> float:
        """Seconds that a unit takes on all samples, by those of two trials on a few with small effort.

        What the second spared was made once (maps, say) and grows with the samples alone.
        """
        samples = len(subject) / len(few)
        if self.grows is None:
            return first * samples
        steps = getattr(effort, self.grows) / getattr(effort.small(), self.grows)
        return again * steps * (1.0 if self.by_batch else samples) + max(first - again, 0.0) * samples


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
