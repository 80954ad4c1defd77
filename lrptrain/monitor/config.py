"""What a monitor looks at, and how: the options that it has under every trainer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lrptrain.batch import BatchAdapter
from lrptrain.batch.task import Task, TaskName, find_task
from lrptrain.cues.annotator import Annotate, Annotator
from lrptrain.cues.cue import Cue
from lrptrain.monitor.arguments import check_choices, check_verdicts
from lrptrain.monitor.budget import Budget, Extent
from lrptrain.monitor.evaluator import TARGETS, ExplanationConfig
from lrptrain.monitor.gate import FAIL_AFTER
from lrptrain.relevance.default import check_method
from lrptrain.trainers.checks import check_counts, check_normalisation, check_run_name

INSPECTS = "inspect"
"""The kind of what looks at a trained model once."""


@dataclass(frozen=True, kw_only=True)
class MonitorConfig:
    """The options of a monitor.

    Attributes:
        max_samples: The size of the sample, in all processes together. A verdict on a
            single class needs 8 of it.
        every_n_epochs: Evaluate in the first validation, then when this many epochs have passed.
        budget: The share of the time of training, in (0, 1), that the monitor takes at most: evaluations become rarer
            and smaller. The weights that are kept are always evaluated with all samples, and under a trainer every
            validation where something decides by the values. So is the first one, unless the trainer knows that the
            run is too short to pay for two. None for an evaluation in full in each.
        method: One of `lrptrain.methods()`; None for the first of the default ones that serves the model.
        method_options: The options of the method.
        batch_adapter: Brings a batch of another form to the contract's names.
        annotate: Makes the annotations, where batches hold none: of images `function(image, label)`, which returns a
            mask or boxes, of texts `function(text)`, which returns words or spans; or words, or `re.compile(...)`. See
            `lrptrain.cues.annotator`.
        explain: The parameter of the model's forward that is explained, where it takes several images or texts; None
            for the one that the batch calls its input.
        task: What output and labels mean, where they do not say so: a task or its name; None for classes.
        class_names: The name of each class, in the order of the logits; None for those that the name sources have.
        region_names: The names of the regions of a `mask` `[B, K, H, W]`; the first is the evidence.
        cues: Cues to be tested beside those that the samples propose, or of which people say what they are; None tests
            none.
        min_effect: The least effect that matters, in (0, 1).
        confidence: `1 - confidence` is the level of all tests of an evaluation together, in (0, 1).
        fail_on: The verdict on a fault that ends training: "relies", or "not sure" for doubts, too; None for none.
        fail_after: The evaluations in a row in which a fault has to have that verdict; a run that ends with fewer is
            judged by those that it has.
        targets: The classes to explain: some of "label" and "predicted".
        batch_size: The number of samples per forward pass of the monitor.
        max_pictures: The number of pictures or texts drawn per epoch; with 0, no inputs are kept, either.
        class_maps: The number of classes for which the drawn samples have maps on the dashboard.
        max_record_mb: The size of the run's folder, in megabytes, beyond which no pictures are added.
        mean: The mean of each channel, to undo the normalisation of images in pictures.
        std: The standard deviation of each channel, to undo the normalisation of images in pictures.
        tokenizer: The tokenizer that names tokens, its name or its folder; None for that of a name source.
        on_error: "warn": a failure after the start is reported once, counted, and training goes on, and the other
            tests go on without a cue that failed; "raise": it ends training.
        run_name: The folder under `relevance/`, numbered if it exists; None for the time.
        seed: The seed of the sample and of the donors.
        mixing_ratios: Whether to log per block what share of a token's state comes from other tokens.
        progress_bar: Whether to show a progress bar while the monitor works.
        name: A name that tells several monitors apart: their keys are `relevance/<name>/...`.
        kind: What lines for the user call the monitor.

    Raises:
        ValueError: With the option, and what it may be.
    """

    max_samples: int = 128
    every_n_epochs: int = 1
    budget: float | None = None
    method: str | None = None
    method_options: Mapping[str, Any] | None = None
    batch_adapter: BatchAdapter | None = None
    annotate: Annotate | None = field(default=None, repr=False)
    explain: str | None = None
    task: TaskName | Task | None = None
    class_names: Sequence[str] | None = None
    region_names: Sequence[str] = ()
    cues: Sequence[Cue] | None = ()
    min_effect: float = 0.05
    confidence: float = 0.95
    fail_on: Literal["relies", "not sure"] | None = None
    fail_after: int = FAIL_AFTER
    targets: Sequence[str] = TARGETS
    batch_size: int = 16
    max_pictures: int = 16
    class_maps: int = 5
    max_record_mb: float = 200.0
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    tokenizer: Any = field(default=None, repr=False)
    on_error: Literal["warn", "raise"] = "warn"
    run_name: str | None = None
    seed: int = 0
    mixing_ratios: bool = False
    progress_bar: bool = True
    name: str | None = None
    kind: str = "RelevanceMonitor"

    def __post_init__(self) -> None:
        check_method(self.method, dict(self.method_options or {}))
        check_counts(max_samples=self.max_samples, every_n_epochs=self.every_n_epochs, batch_size=self.batch_size)
        check_counts(fail_after=self.fail_after)
        check_counts(0, max_pictures=self.max_pictures, class_maps=self.class_maps)
        check_choices(self.confidence, self.targets, self.on_error)
        check_verdicts(self.cues, self.min_effect, self.fail_on)
        check_run_name(self.run_name)
        check_normalisation(self.mean, self.std)
        self.meaning  # noqa: B018  refuses what is no task
        if self.annotate is not None:
            Annotator(self.annotate)
        self.new_budget()

    @property
    def title(self) -> str:
        """What lines for the user begin with."""
        return f"{self.kind} {self.name!r}" if self.name else self.kind

    @property
    def meaning(self) -> Task:
        """The task: what output and labels mean."""
        return find_task(self.task, several=self.kind == INSPECTS)

    @property
    def prefix(self) -> str:
        """The prefix of every logged key."""
        return f"relevance/{self.name}" if self.name else "relevance"

    @property
    def extent(self) -> Extent:
        """An evaluation in full."""
        return Extent(self.max_samples, self.max_pictures, self.class_maps if self.max_pictures else 0)

    def new_budget(self) -> Budget | None:
        """Return a planner for a run; None without a budget.

        Raises:
            ValueError: If the budget is no share.
        """
        if self.budget is None:
            return None
        return Budget(self.budget, self.extent, in_every_validation=self.fail_on is not None)

    @property
    def explanation(self) -> ExplanationConfig:
        """How samples are explained."""
        return ExplanationConfig(
            method=self.method,
            options=dict(self.method_options or {}),
            targets=tuple(self.targets),
            batch_size=self.batch_size,
            region_names=tuple(self.region_names),
            mixing_ratios=self.mixing_ratios,
            class_maps=self.class_maps,
            task=self.meaning,
        )
