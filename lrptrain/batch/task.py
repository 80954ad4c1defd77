"""What a model's output and its labels mean: classes, one logit of two classes, one of several labels, or a number.

A task reads the labels of a batch, and says how one number per sample is read as the logits of two classes. All else
(the predicted class, its map, changes of its probability, accuracies) works on classes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields
from types import FunctionType
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from lrptrain.batch.annotations import IGNORED, split_values
from lrptrain.batch.logits import class_probabilities, two_class_logits
from lrptrain.relevance.model.classes import problem_type
from lrptrain.relevance.output.logit_view import CumulativeView, LogitView, one_logit_as
from lrptrain.relevance.output.outputs import HeadName, head_of_output, read_logits
from lrptrain.relevance.types import unknown_name

NO_LABEL = -1


@dataclass(frozen=True)
class Task(ABC):
    """What a model's output and its labels mean."""

    name: ClassVar[str]

    @property
    def entry(self) -> str:
        """The entry of a batch that holds the labels; "" for `label` or `labels`."""
        return ""

    @property
    def view(self) -> LogitView:
        """How one number per sample is read: as the logit of class 1, whose negative is that of class 0."""
        return LogitView()

    @property
    def class_names(self) -> list[str] | None:
        """The names of the classes, where the task itself says what they are."""
        return None

    @property
    def description(self) -> str:
        """How a user writes the task, without defaults: "classes", "binary", "lrptrain.OneLabel(column=2)"."""
        return self.name if self in (CLASSES, *TASKS.values()) else self._written()

    def in_guidance(self, call: str) -> str:
        """Return a call of guidance, as people write it, with the task where that has to be said."""
        if self == CLASSES:
            return call
        # A swap by one label moves the evidence of the others; titles say nothing to guidance.
        task = EachLabel() if isinstance(self, (EachLabel, OneLabel)) else self
        written = repr(task.name) if task in TASKS.values() else task.description
        return f"{call[:-1]}, task={'task' if '<' in written else written})"

    def _written(self) -> str:
        is_own = isinstance(self, (EachLabel, Head, OneLabel, Ordinal, Regression))
        values = [(each.name, getattr(self, each.name)) for each in fields(self)]
        given = [f"{name}={_written(x)}" for name, x in values if x != type(self).__dataclass_fields__[name].default]
        return f"{'lrptrain' if is_own else type(self).__module__}.{type(self).__name__}({', '.join(given)})"

    def reading(self) -> AbstractContextManager[None]:
        """Return what the model's output is read in, as the logits of classes."""
        return one_logit_as(self.view)

    @property
    def has_labels(self) -> bool:
        """Whether a sample has several labels, of which each is told."""
        return False

    def every(self, label: Shaped[Tensor, " batch *columns"]) -> Int[Tensor, "batch labels"]:
        """Return 1 for labels that a sample has, 0 for others, negative where it is not known; see `has_labels`."""
        raise NotImplementedError

    def probabilities(self, logits: Float[Tensor, "batch classes"]) -> Float[Tensor, "batch _classes"]:
        """Return the probability of each class, of one logit those of two; of several labels that of each."""
        return class_probabilities(logits)

    def by_answer(self, logits: Float[Tensor, "batch classes"]) -> Float[Tensor, "answers _classes"]:
        """Return logits of classes, a row for each answer: of several labels, one for each."""
        return two_class_logits(logits)

    def annotation(
        self, masks: Shaped[Tensor, "batch labels *places"], label: Shaped[Tensor, "batch labels"]
    ) -> dict[str, Tensor]:
        """Return the entries of a batch that has a mask for each of several labels."""
        return {"mask": masks}

    @abstractmethod
    def classes(self, label: Shaped[Tensor, " batch *columns"]) -> Int[Tensor, " batch"]:
        """Return the class of each label, negative where there is none.

        Raises:
            ValueError: If a label has no meaning for the task.
        """


@dataclass(frozen=True)
class Classes(Task):
    """One logit for each class, or one for two classes (binary cross-entropy), whichever the model has.

    Of one logit z class 1 has the probability sigmoid(z), and is predicted where z > 0. The maps of both classes are
    those of a model with the logits -z / 2 and z / 2.

    Attributes:
        one_hot: Whether labels `[batch, classes]` are one-hot.
    """

    name: ClassVar[str] = "classes"
    one_hot: bool = False

    def classes(self, label: Shaped[Tensor, " batch *columns"]) -> Int[Tensor, " batch"]:
        """Return the class of each label, negative where there is none.

        Args:
            label: Integers, booleans, or the floats 0 and 1; negative numbers and NaN mean none. Where they are
                one-hot, a row of zeros means none.
        """
        if label.ndim > 1:
            return self._of_columns(label)
        if not label.is_floating_point():
            return label.long() if label.dtype == torch.bool else label
        absent = label.isnan() | (label < 0)
        other = label[~absent & (label != 0) & (label != 1)]
        if len(other):
            raise ValueError(
                f"'label' holds the float {float(other[0]):.4g}, which is no class: integers are, and the floats 0 and "
                "1. task='binary' takes what is above 0.5 for class 1; lrptrain.Regression(mean, std) as the task "
                "tells what lies above the mean from what lies below it"
            )
        return torch.where(absent, NO_LABEL, label.nan_to_num(0.0)).long()

    def _of_columns(self, label: Shaped[Tensor, " batch *columns"]) -> Int[Tensor, " batch"]:
        shape = list(label.shape)
        if label.ndim > 2:
            middle = ", ".join(str(size // 2) for size in shape[1:])
            raise ValueError(
                f"'label' {shape} is one of pixels, and maps explain one class per sample. Of a region, such as the "
                f"middle pixel: task=lrptrain.Head(lambda output: output.logits[:, :, {middle}], label=lambda labels: "
                f"labels[:, {middle}]), without .logits where the model returns a tensor"
            )
        if _are_shares(label):
            raise ValueError(
                f"'label' {shape} holds shares of classes that add up to 1 (MixUp, CutMix, smoothing or distillation), "
                "and maps explain one class: batch_adapter=lambda batch: {**batch, 'label': batch['label'].argmax(1)}"
            )
        if not self.one_hot:
            grades = "of grades, 1 up to a step, task=lrptrain.Ordinal(); " if _are_levels(label) else ""
            raise ValueError(
                f"'label' {shape} has several columns: of one-hot labels say task='classes'; {grades}of several labels "
                "per sample task=lrptrain.EachLabel() tells all, and task=lrptrain.OneLabel(column) takes one "
                "of them; of a token's class task=lrptrain.Head(lambda output: output.logits[:, 3], label=lambda "
                "labels: labels[:, 3])"
            )
        values = label.double()
        if not bool((((values == 0) | (values == 1)).all(1) & (values.sum(1) <= 1)).all()):
            raise ValueError(
                f"'label' {shape} is not one-hot: of several labels per sample task=lrptrain.EachLabel() tells all to "
                "a monitor, and task=lrptrain.OneLabel(column) takes one of them; of soft labels a batch_adapter may "
                "give the most probable class, label.argmax(1)"
            )
        return torch.where(values.any(1), values.argmax(1), NO_LABEL)


def _are_shares(label: Shaped[Tensor, "batch columns"]) -> bool:
    """Return whether labels are no numbers of 0 and 1, and add up to 1 in every sample, as far as halves tell."""
    values = label.double()
    sums = (values.sum(1) - 1).abs().max() if len(values) else 1.0
    return label.is_floating_point() and bool(sums < 0.01) and bool(((values > 0) & (values < 1)).any())


def _are_levels(label: Shaped[Tensor, "batch columns"]) -> bool:
    """Return whether labels are 1 up to a column and 0 behind it, and not all of one column."""
    values = label.double()
    falls = ((values == 0) | (values == 1)).all(1) & (values.diff(dim=1) <= 0).all(1)
    return bool(falls.all()) and int(values.sum(1).max()) > 1


CLASSES = Classes()
"""The task where none is named."""


@dataclass(frozen=True)
class Binary(Task):
    """One logit per sample, trained with the binary cross-entropy; labels may be soft, and count by what they exceed.

    Attributes:
        threshold: Labels above it are class 1.
    """

    name: ClassVar[str] = "binary"
    threshold: float = 0.5

    @property
    def view(self) -> LogitView:
        """How one number per sample is read; several are refused."""
        return LogitView(required=True)

    def classes(self, label: Shaped[Tensor, " batch"]) -> Int[Tensor, " batch"]:
        """Return 1 for labels above the threshold, 0 for others, negative where there is none."""
        values = label.double()
        if bool((values > 1).any()):
            raise ValueError(
                f"'label' holds {float(values.nan_to_num(0.0).max()):.4g}: those of task='binary' lie in 0..1"
            )
        absent = values.isnan() | (values < 0)
        return torch.where(absent, NO_LABEL, (values > self.threshold).long())


@dataclass(frozen=True)
class Regression(Task):
    """One number per sample: class 1 lies above the mean of the labels, class 0 below.

    The probability of class 1 is the sigmoid of the prediction in standard deviations from the mean.

    Examples:
        >>> import torch, lrptrain
        >>> images = torch.rand(32, 1, 8, 8)
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 1))
        >>> lrptrain.inspect(model, [(images, images.mean((1, 2, 3)))], task=lrptrain.Regression(0.5, 0.04)).samples
        32

    Attributes:
        mean: The mean of the labels, in the units of the model's output.
        std: Their standard deviation.

    Raises:
        ValueError: If the standard deviation is not positive.
    """

    name: ClassVar[str] = "regression"
    mean: float
    std: float

    def __post_init__(self) -> None:
        """Check the standard deviation."""
        if not 0 < self.std < float("inf"):
            raise ValueError(f"std must be a positive number, not {self.std}")

    @property
    def view(self) -> LogitView:
        """The distance from the mean in standard deviations, as a logit."""
        slope = 0.5 / self.std
        return LogitView((-slope, slope), (slope * self.mean, -slope * self.mean), required=True)

    @property
    def class_names(self) -> list[str]:
        """Which side of the mean a class is."""
        return [f"below {self.mean:g}", f"above {self.mean:g}"]

    def classes(self, label: Shaped[Tensor, " batch"]) -> Int[Tensor, " batch"]:
        """Return 1 for labels above the mean, 0 for others, negative for NaN, which means none."""
        values = label.double()
        return torch.where(values.isnan(), NO_LABEL, (values > self.mean).long())


ONE_LOGIT = (
    "the model has one output z per sample, which is read as a logit: class 1 where z > 0, class 0 elsewhere; "
    "task=lrptrain.Regression(mean, std) if it is a value, task='binary' to leave out this line"
)
"""What is said where nobody has named the task."""

STEPS = (
    "the model's logits differ by the same numbers in all samples: they are steps between grades, as of CORAL, and no "
    "classes. Pass task=lrptrain.Ordinal(); task='classes' reads them as classes nevertheless"
)
"""What such a model is refused with, where nobody has named the task."""

SIGNS = (
    "the labels are 1 or negative, and a negative label means none: if -1 is a class, as in a hinge loss, give "
    "(label + 1) // 2"
)
"""What is said of such labels, where the model has one logit."""


@dataclass(frozen=True)
class OneLabel(Task):
    """One of several labels per sample, each with a logit of its own (binary cross-entropy): class 1 is to have it.

    Attributes:
        column: The number of the label, of logits and labels `[batch, labels]`.
        title: What the label is called; "" for its number.

    Raises:
        ValueError: If the number is negative.
    """

    name: ClassVar[str] = "one label"
    column: int = 0
    title: str = ""

    def __post_init__(self) -> None:
        """Check the number: from the end, it would be another label of a model with other labels."""
        if self.column < 0:
            raise ValueError(f"column must be 0 or more, not {self.column}")

    @property
    def view(self) -> LogitView:
        """The label's own logit as those of two classes."""
        return LogitView(column=self.column)

    @property
    def class_names(self) -> list[str]:
        """Whether a sample has the label."""
        title = self.title or f"label {self.column}"
        return [f"no {title}", title]

    def classes(self, label: Shaped[Tensor, " batch *columns"]) -> Int[Tensor, " batch"]:
        """Return 1 for samples that have the label, 0 for others, negative where it is not known.

        Args:
            label: 0 or 1 of every label, `[batch, labels]`; negative numbers and NaN mean that it is not known.

        Raises:
            ValueError: If the label has no column, or other values.
        """
        if label.ndim != 2 or label.shape[1] <= self.column:
            raise ValueError(f"'label' {list(label.shape)} has no column {self.column}: it must be [batch, labels]")
        return Binary().classes(label[:, self.column])

    def annotation(
        self, masks: Shaped[Tensor, "batch labels *places"], label: Shaped[Tensor, "batch labels"]
    ) -> dict[str, Tensor]:
        """Return the mask of this label."""
        return {"mask": masks[:, self.column]}


def of_all_labels(signs: Float[Tensor, "batch labels"]) -> Callable[[object], Float[Tensor, " batch"]]:
    """Return the target of one map of several labels: the sum of their logits, each with a sign, or 0."""

    def all_labels(output: object) -> Float[Tensor, " batch"]:
        logits = read_logits(output, len(signs))
        return (logits * signs.to(logits)).sum(1)

    return all_labels


LABELS = "labels:"
"""The entry of a batch that holds all labels of `EachLabel`, `[batch, labels]`, -1 where one is not known."""
MASKS = "masks:"
"""The entry that holds a mask for each of them."""


@dataclass(frozen=True)
class EachLabel(Task):
    """All of several labels per sample, each with a logit of its own: what each relies on is tested.

    Audits and repairs take `OneLabel`.

    Examples:
        >>> import torch, lrptrain
        >>> data = [(torch.rand(32, 1, 8, 8), torch.randint(2, (32, 2)))]
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
        >>> tasks = lrptrain.EachLabel(("cat", "dog")), lrptrain.OneLabel(1, "dog")
        >>> [lrptrain.inspect(model, data, task=task).samples for task in tasks]
        [32, 32]

    Attributes:
        titles: What the labels are called, in the order of the logits; empty for the names of the classes, or numbers.
    """

    name: ClassVar[str] = "each label"
    titles: tuple[str, ...] = ()

    @property
    def class_names(self) -> list[str] | None:
        """What the labels are called."""
        return [*self.titles] or None

    def probabilities(self, logits: Float[Tensor, "batch labels"]) -> Float[Tensor, "batch labels"]:
        """Return the probability of each label.

        Raises:
            ValueError: If there is one label alone, or another number than of titles.
        """
        count = logits.shape[1]
        if count < 2:
            raise ValueError(
                "task=lrptrain.EachLabel() is of several labels, and the model has one logit: leave it out"
            )
        if self.titles and len(self.titles) != count:
            raise ValueError(f"lrptrain.EachLabel names {len(self.titles)} labels, and the model has {count} logits")
        return logits.double().sigmoid()

    def by_answer(self, logits: Float[Tensor, "batch labels"]) -> Float[Tensor, "answers 2"]:
        """Return the logits of no and yes, a row for each label of each sample."""
        return LogitView()(logits.reshape(-1, 1))

    def classes(self, label: Shaped[Tensor, " batch *columns"]) -> Int[Tensor, " batch"]:
        """Return no class for any sample: it has several labels."""
        return torch.full((len(label),), NO_LABEL, device=label.device)

    @property
    def has_labels(self) -> bool:
        """Yes."""
        return True

    def every(self, label: Shaped[Tensor, " batch *columns"]) -> Int[Tensor, "batch labels"]:
        """Return 1 for labels above 0.5, 0 for others, negative where it is not known.

        Raises:
            ValueError: If labels have no columns, or other values.
        """
        if label.ndim != 2:
            raise ValueError(f"'label' {list(label.shape)} must be [batch, labels] of 0 and 1")
        return torch.stack([Binary().classes(column) for column in label.unbind(1)], 1)

    def annotation(
        self, masks: Shaped[Tensor, "batch labels *places"], label: Shaped[Tensor, "batch labels"]
    ) -> dict[str, Tensor]:
        """Return the mask of each label, and as one what marks any label that a sample has.

        Raises:
            ValueError: If masks hold other values than 0, 1 and 255.
        """
        split_values(masks, "mask")
        masks = masks.to(torch.uint8)
        has = (self.every(label) > 0).view(*label.shape, *[1] * (masks.ndim - 2)).to(masks.device)
        unknown = (masks == IGNORED).all(1) | ((masks == IGNORED) & has).any(1)
        mask = ((masks == 1) & has).any(1).to(torch.uint8)
        return {"mask": torch.where(unknown & (mask == 0), IGNORED, mask), MASKS: masks}


@dataclass(frozen=True)
class Ordinal(Task):
    """Grades 0 to K, with one logit for each step between two of them: is it more than this (CORAL, Cao et al. 2020)?

    Examples:
        >>> import torch, lrptrain
        >>> data = [(torch.rand(32, 1, 8, 8), torch.arange(32) % 3)]
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))  # three grades, two steps
        >>> lrptrain.inspect(model, data, task=lrptrain.Ordinal()).samples
        32
    """

    name: ClassVar[str] = "ordinal"

    @property
    def view(self) -> LogitView:
        """The logits of the steps as those of the grades."""
        return CumulativeView()

    def classes(self, label: Shaped[Tensor, " batch *columns"]) -> Int[Tensor, " batch"]:
        """Return the grade of each label, negative where there is none.

        Args:
            label: Whole numbers, or `[batch, steps]` of 1 at each step that the grade is above, else 0.

        Raises:
            ValueError: If there are other numbers.
        """
        if label.ndim == 2:
            values = label.double()
            if not bool((((values == 0) | (values == 1)).all(1) & (values.diff(dim=1) <= 0).all(1)).all()):
                raise ValueError(f"'label' {list(label.shape)} of grades must be 1 up to a step, and 0 above it")
            return values.sum(1).long()
        absent = label.isnan() if label.is_floating_point() else torch.zeros_like(label, dtype=torch.bool)
        grades = torch.where(absent, NO_LABEL, label)
        if bool((grades != grades.round()).any()):
            raise ValueError("'label' holds parts of grades: task=lrptrain.Regression(mean, std) takes any number")
        return grades.long()


@dataclass(frozen=True)
class Head(Task):
    """One head of a model that returns several: its logits are a part of the output.

    Examples:
        >>> import torch, lrptrain
        >>> class TwoHeads(torch.nn.Linear):
        ...     def forward(self, image):
        ...         return super().forward(image.flatten(1)).split(2, 1)
        >>> data = [(torch.rand(32, 1, 8, 8), torch.arange(32) % 2)]
        >>> lrptrain.inspect(TwoHeads(64, 4), data, task=lrptrain.Head(1)).samples
        32

    Attributes:
        output: The name of the output's field, its number in a tuple, as 0 of `(logits, states)`, or a function of the
            output that returns logits `[batch, classes]`: `lambda output: output.logits[:, 3]` of the third token.
        task: What this head's logits and labels mean.
        label: The entry of a batch that holds the labels of this head; "" for `label` or `labels`. Or a function of
            these: `lambda labels: labels[:, 3]`.
    """

    name: ClassVar[str] = "head"
    output: HeadName = 0
    task: Task = CLASSES
    label: str | Callable[[Tensor], Tensor] = ""

    @property
    def entry(self) -> str:
        """The entry of a batch that holds the labels."""
        return self.label if isinstance(self.label, str) else ""

    @property
    def view(self) -> LogitView:
        """That of the head's own task."""
        return self.task.view

    @property
    def class_names(self) -> list[str] | None:
        """Those of the head's own task."""
        return self.task.class_names

    @property
    def has_labels(self) -> bool:
        """As the head's own task."""
        return self.task.has_labels

    def every(self, label: Shaped[Tensor, " batch *columns"]) -> Int[Tensor, "batch labels"]:
        """As the head's own task."""
        return self.task.every(self._own(label))

    def annotation(
        self, masks: Shaped[Tensor, "batch labels *places"], label: Shaped[Tensor, "batch labels"]
    ) -> dict[str, Tensor]:
        """As the head's own task."""
        return self.task.annotation(masks, self._own(label))

    def probabilities(self, logits: Float[Tensor, "batch classes"]) -> Float[Tensor, "batch _classes"]:
        """As the head's own task."""
        return self.task.probabilities(logits)

    def by_answer(self, logits: Float[Tensor, "batch classes"]) -> Float[Tensor, "answers _classes"]:
        """As the head's own task."""
        return self.task.by_answer(logits)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read the head's logits as its own task does."""
        with head_of_output(self.output), self.task.reading():
            yield

    def classes(self, label: Shaped[Tensor, " batch *columns"]) -> Int[Tensor, " batch"]:
        """Return the class of each label, as the head's own task has it."""
        return self.task.classes(self._own(label))

    def _own(self, label: Shaped[Tensor, " batch *columns"]) -> Shaped[Tensor, " batch *columns"]:
        if not callable(self.label):
            return label
        shape = list(label.shape)
        try:
            own = self.label(label)
        except Exception as error:
            raise ValueError(
                f"the label= function of task=lrptrain.Head fails on labels {shape}: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(own, Tensor) or own.shape[:1] != label.shape[:1]:
            found = list(own.shape) if isinstance(own, Tensor) else type(own).__name__
            raise ValueError(
                f"the label= function of task=lrptrain.Head makes {found} of labels {shape}: it must return a tensor "
                f"with a class for each sample, [{shape[0]}]"
            )
        return own


def _written(value: object) -> str:
    if isinstance(value, Task):
        return value._written()
    return f"<function {value.__qualname__}>" if isinstance(value, FunctionType) else repr(value)


TaskName = Literal["classes", "binary"]
TASKS: dict[str, Task] = {task.name: task for task in (Classes(one_hot=True), Binary())}
"""The tasks for which a name is enough."""


def find_task(task: "TaskName | Task | None", model: nn.Module | None = None, several: bool = False) -> Task:
    """Return the task that a user names; without a name, classes."""
    if isinstance(task, Task) and task.has_labels and not several:
        raise ValueError("task=lrptrain.EachLabel() is for monitors and guidance: here say lrptrain.OneLabel(column)")
    if isinstance(task, Task):
        return task
    if isinstance(task, type):
        raise ValueError(f"task=lrptrain.{task.__name__} is a class: call it, lrptrain.{task.__name__}(...)")
    if task is not None:
        if task not in TASKS:
            raise ValueError(
                f"{unknown_name('task', task, list(TASKS))}, lrptrain.Regression(mean, std), "
                "lrptrain.OneLabel(column), lrptrain.EachLabel(), lrptrain.Ordinal(), lrptrain.Head(output)"
            )
        return TASKS[task]
    problem = None if model is None else problem_type(model)
    if problem == "regression":
        raise ValueError(
            "the model's config.problem_type is 'regression': pass task=lrptrain.Regression(mean, std) of its labels, "
            "or task='binary' where its one output is a logit"
        )
    if problem == "multi_label_classification":
        raise ValueError(
            "the model's config.problem_type is 'multi_label_classification': pass "
            + ("task=lrptrain.EachLabel() for all labels, or " if several else "")
            + "task=lrptrain.OneLabel(column) for one of them"
        )
    return CLASSES
