"""What a model's output and its labels mean: classes, one logit of two classes, or a number.

A task reads the labels of a batch, and says how one number per sample is read as the logits of two classes. All else
(the predicted class, its map, changes of its probability, accuracies) works on classes.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Int, Shaped
from torch import Tensor, nn

from lrptrain.relevance.logit_view import LogitView, one_logit_as
from lrptrain.relevance.types import unknown_name

NO_LABEL = -1


@dataclass(frozen=True)
class Task:
    """Classes: one logit for each, or one logit for two (binary cross-entropy), whichever the model has.

    Of one logit z class 1 has the probability sigmoid(z), and is predicted where z > 0. The maps of both classes are
    those of a model with the logits -z / 2 and z / 2.

    Attributes:
        name: What users call the task.
    """

    name: ClassVar[str] = "classes"

    @property
    def view(self) -> LogitView:
        """How one number per sample is read."""
        return LogitView()

    @property
    def class_names(self) -> list[str] | None:
        """The names of the classes, where the task itself says what they are."""
        return None

    def reading(self) -> AbstractContextManager[None]:
        """Return what the model's output is read in, as the logits of classes."""
        return one_logit_as(self.view)

    def classes(self, label: Shaped[Tensor, " batch"]) -> Int[Tensor, " batch"]:
        """Return the class of each label, negative where there is none.

        Args:
            label: Integers, booleans, or the floats 0 and 1; negative numbers and NaN mean none.

        Raises:
            ValueError: If there are other floats, with the way out.
        """
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


CLASSES = Task()
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
        """Return 1 for labels above the threshold, 0 for others, negative where there is none.

        Args:
            label: Numbers in 0..1; negative numbers and NaN mean none.

        Raises:
            ValueError: If a label is larger than 1.
        """
        values = label.double()
        if bool((values > 1).any()):
            raise ValueError(
                f"'label' holds {float(values.nan_to_num(0.0).max()):.4g}: those of task='binary' lie in 0..1"
            )
        absent = values.isnan() | (values < 0)
        return torch.where(absent, NO_LABEL, (values > self.threshold).long())


@dataclass(frozen=True)
class Regression(Task):
    """One number per sample, which is told from the mean of the labels: class 1 lies above it, class 0 below.

    Maps explain in which direction the prediction departs from the mean; the probability of class 1 is the sigmoid of
    the prediction in standard deviations from the mean, so that a change by a tenth of a deviation near the mean
    changes it by 0.025.

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
TaskName = Literal["classes", "binary"]
TASKS: dict[str, type[Task]] = {task.name: task for task in (Task, Binary)}
"""The tasks that a name is enough for."""


def find_task(task: "TaskName | Task | None", model: nn.Module | None = None) -> Task:
    """Return the task that a user names; without a name, classes.

    Args:
        task: A task, its name, or None.
        model: A model, whose `config.problem_type` (Hugging Face) may say that it is a regression.

    Raises:
        ValueError: If the name is unknown, or the model says what needs more than a name.
    """
    if isinstance(task, Task):
        return task
    if task is not None:
        if task not in TASKS:
            raise ValueError(f"{unknown_name('task', task, list(TASKS))}, and lrptrain.Regression(mean, std)")
        return TASKS[task]()
    problem: Any = getattr(getattr(model, "config", None), "problem_type", None)
    if problem == "regression":
        raise ValueError(
            "the model's config.problem_type is 'regression': pass task=lrptrain.Regression(mean, std) of its labels, "
            "or task='binary' where its one output is a logit"
        )
    return CLASSES
