"""What a monitor looks at, and how: the options that it has under every trainer."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self

from lrptrain.batch import BatchAdapter
from lrptrain.batch.matters import LEAST_EFFECT
from lrptrain.batch.task import Task, TaskName, find_task
from lrptrain.cues.annotator import Annotate, Annotator
from lrptrain.cues.cue import Cue, check_role
from lrptrain.findings.sentences import listed
from lrptrain.monitor.budget import Budget, EvaluationSize
from lrptrain.relevance.default import check_method
from lrptrain.trainers.checks import (
    check_counts,
    check_normalisation,
    check_on_error,
    check_run_name,
    check_shares,
    check_texts,
)

TARGETS = ("label", "predicted")
FORBIDDEN: dict[str | None, tuple[str, ...]] = {
    None: (),
    "inconclusive": ("inconclusive", "relies"),
    "relies": ("relies",),
}
"""What `fail_on` forbids: verdicts on faults."""
INSPECTS = "inspect"
"""The kind of what looks at a trained model once."""


@dataclass(frozen=True, kw_only=True)
class Show:
    """What a monitor's maps are of, and how pictures and reports name and draw things.

    Attributes:
        targets: The classes to explain: some of "label" and "predicted".
        method_options: The options of the monitor's method.
        class_maps: For how many of the most probable classes drawn samples have maps on the dashboard, a backward pass
            each; 0 for those of `targets` alone.
        max_pictures: The number of pictures or texts drawn per epoch; with 0, no inputs are kept, either.
        mixing_ratios: Whether to log per block what share of a token's state comes from other tokens.
        class_names: The name of each class, in the order of the logits; None for those of the datamodule or module.
        region_names: The names of the regions of a `mask` `[B, K, H, W]`; the first is the evidence.
        channels: Which three channels of images are drawn as red, green and blue, from 0 on; or one, in grey.
        mean: The mean of each drawn channel, to undo the normalisation of images in pictures.
        std: Their standard deviation.

    Raises:
        ValueError: With the option, and what it may be.
    """

    targets: Sequence[str] = TARGETS
    method_options: Mapping[str, Any] | None = None
    class_maps: int = 5
    max_pictures: int = 16
    mixing_ratios: bool = False
    class_names: Sequence[str] | None = None
    region_names: Sequence[str] = ()
    channels: Sequence[int] | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None

    def __post_init__(self) -> None:
        targets = self.targets
        if not isinstance(targets, Sequence) or isinstance(targets, str) or not targets or {*targets} - {*TARGETS}:
            raise ValueError(f"targets must be a list of some of {TARGETS}, not {targets!r}")
        check_counts(0, max_pictures=self.max_pictures, class_maps=self.class_maps)
        check_normalisation(self.mean, self.std)
        if self.channels is not None and (len(self.channels) not in (1, 3) or min(self.channels) < 0):
            raise ValueError(f"channels must be one or three numbers from 0 on, not {self.channels!r}")
        if self.class_names is not None and (isinstance(self.class_names, str | Mapping)):
            raise ValueError(f"class_names must be a list in the order of the logits, not {self.class_names!r}")


@dataclass(frozen=True, kw_only=True)
class Judge:
    """How strictly a monitor judges, and what ends training.

    Attributes:
        min_effect: The least effect that matters, in (0, 1).
        confidence: `1 - confidence` is the level of all tests of an evaluation together, in (0, 1).
        fail_on: "relies": end training, with an error, after an epoch in which the model relies on a shortcut;
            "inconclusive": also where it may; None for none. At the end it is an error, too, if the last evaluation
            was not of the kept checkpoint, failed or was inconclusive.
        fail_after: The evaluations in a row in which that has to be so; all of them in a run that has fewer.
        seed: The seed of the sample and of the sources.

    Raises:
        ValueError: With the option, and what it may be.
    """

    min_effect: float = LEAST_EFFECT
    confidence: float = 0.95
    fail_on: Literal["relies", "inconclusive"] | None = None
    fail_after: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        check_shares(min_effect=self.min_effect, confidence=self.confidence)
        if self.fail_on not in FORBIDDEN:
            raise ValueError(f"fail_on must be 'relies', 'inconclusive' or None, not {self.fail_on!r}")
        check_counts(fail_after=self.fail_after)
        check_counts(0, seed=self.seed)


@dataclass(frozen=True, kw_only=True)
class Run:
    """When a monitor evaluates, under which names it writes, and what happens if it fails.

    Attributes:
        every_n_epochs: Evaluate in the first validation, then when this many epochs have passed.
        batch_size: The number of samples per forward pass of the monitor, which needs the memory of training.
        name: A name that tells several monitors apart: their keys are `relevance/<name>/...`.
        run_name: The folder under `relevance/`, numbered if it exists; None for the time. A resumed run continues in
            its own folder.
        max_record_mb: The size of the run's folder, in megabytes, beyond which no pictures are added.
        all_scalars: Whether TensorBoard gets all scalars, and not the ten main ones alone; other loggers get all.
        progress_bar: Whether to show a progress bar while the monitor works.
        on_error: "warn": a failure after the start is reported once and counted; "raise": it ends training.
        dataloader_idx: The index of the validation dataloader, of a Lightning Trainer that has several.

    Raises:
        ValueError: With the option, and what it may be.
    """

    every_n_epochs: int = 1
    batch_size: int = 16
    name: str | None = None
    run_name: str | None = None
    max_record_mb: float = 200.0
    all_scalars: bool = False
    progress_bar: bool = True
    on_error: Literal["warn", "raise"] = "warn"
    dataloader_idx: int = 0

    def __post_init__(self) -> None:
        check_counts(every_n_epochs=self.every_n_epochs, batch_size=self.batch_size)
        check_run_name(self.run_name)
        check_texts(name=self.name)
        check_on_error(self.on_error)


GROUPS: dict[str, type] = {"show": Show, "judge": Judge, "run": Run}
"""The options that most users leave as they are, by the argument that takes them."""


@dataclass(frozen=True, kw_only=True)
class MonitorConfig:
    """The options of a monitor under every trainer; see `lrptrain.callbacks.RelevanceMonitor`."""

    max_samples: int = 128
    budget: float | None = None
    method: str | None = None
    explain: str | None = None
    task: TaskName | Task | None = None
    batch_adapter: BatchAdapter | None = None
    annotate: Annotate | None = field(default=None, repr=False)
    tokenizer: Any = field(default=None, repr=False)
    cues: Sequence[Cue] | None = ()
    show: Show = Show()
    judge: Judge = Judge()
    run: Run = Run()
    kind: str = "RelevanceMonitor"

    def __post_init__(self) -> None:
        for name, group in GROUPS.items():
            if not isinstance(getattr(self, name), group):
                raise TypeError(f"{name} must be lrptrain.{group.__name__}(...), not {getattr(self, name)!r}")
        check_method(self.method, self.method_options)
        check_counts(max_samples=self.max_samples)
        if self.kind == INSPECTS and (self.judge.fail_on is not None or self.budget is not None):
            raise ValueError("inspect looks once, with no run to end or to save time in: leave out fail_on and budget")
        if self.kind != "RelevanceMonitor" and self.run.dataloader_idx:
            raise ValueError("dataloader_idx is of a Lightning Trainer: elsewhere, give the data that are to be read")
        if self.cues is not None and not all(
            isinstance(each, Cue) and isinstance(each, Hashable) for each in self.cues
        ):
            raise ValueError(
                "cues must be frozen dataclasses, as finding.cue.declared('annotation') is, or None for none"
            )
        for cue in self.cues or ():
            check_role(cue.role)
        if self.judge.fail_on is not None and self.cues is None:
            raise ValueError(f"fail_on={self.judge.fail_on!r} needs tests, and cues=None makes none")
        self.meaning  # noqa: B018  refuses what is no task
        if self.annotate is not None:
            Annotator(self.annotate)

    @classmethod
    def of(cls, kind: str, options: Mapping[str, Any]) -> Self:
        """Return the options that a user gives; None stands for a group as it is by default."""
        known = _names(cls)
        unknown = [name for name in options if name not in known]
        if unknown:
            raise TypeError(f"{kind} has no argument {listed(unknown)}: {_way(unknown, sorted(known - {'kind'}))}")
        given = {name: value for name, value in options.items() if value is not None or name not in GROUPS}
        return cls(**{"kind": kind, **given})

    @property
    def title(self) -> str:
        """What lines for the user begin with."""
        return f"{self.kind} {self.run.name!r}" if self.run.name else self.kind

    @property
    def meaning(self) -> Task:
        """The task: what output and labels mean."""
        return find_task(self.task, several=True)

    @property
    def prefix(self) -> str:
        """The prefix of every logged key."""
        return f"relevance/{self.run.name}" if self.run.name else "relevance"

    @property
    def full_size(self) -> EvaluationSize:
        """An evaluation in full."""
        return EvaluationSize(
            self.max_samples, self.show.max_pictures, self.show.class_maps if self.show.max_pictures else 0
        )

    def new_budget(self) -> Budget | None:
        """Return a planner for a run; None without a budget."""
        if self.budget is None:
            return None
        return Budget(self.budget, self.full_size, in_every_validation=self.judge.fail_on is not None)

    @property
    def method_options(self) -> dict[str, Any]:
        """The options of the method."""
        return dict(self.show.method_options or {})

    @property
    def targets(self) -> Sequence[str]:
        """The classes to explain; samples without a label are always explained for the predicted one."""
        return ("predicted",) if self.kind == INSPECTS else self.show.targets


def _names(group: Any) -> set[str]:
    return {each.name for each in fields(group)}


def _way(unknown: Sequence[str], known: Sequence[str]) -> str:
    """Return what to write for arguments that lie in a group, or else which arguments there are."""
    ways = []
    for name, group in GROUPS.items():
        inside = [f"{each}=..." for each in unknown if each in _names(group)]
        if inside:
            ways.append(f"{name}=lrptrain.{group.__name__}({', '.join(inside)})")
    return f"write {', '.join(ways)}" if ways else f"it has {', '.join(known)}"
