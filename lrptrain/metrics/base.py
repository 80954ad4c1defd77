"""What the metrics share: input checks, the chance level, means overall and per class.

A metric says all that is needed to log and plot it, so that no list elsewhere has to be kept up: `key` (its name in
logged keys), `title` (its name in plots), `explanation`, `higher_is_better`, and `function` (the plain function behind
it).
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torchmetrics import Metric

from lrptrain.batch.annotations import TokenAnnotation
from lrptrain.metrics.interval import empty_moments, mean_with_interval, merge_moments, moments_by_row
from lrptrain.relevance.propagation.propagator import at_least_float32


def usable_scores(
    scores: Float[Tensor, "batch tokens"], annotation: TokenAnnotation
) -> tuple[Float[Tensor, "batch tokens"], Bool[Tensor, " batch"]]:
    """Set the scores of tokens that are not usable to 0, and tell for which samples a metric is defined.

    A metric is defined for a sample that is annotated and has finite scores on its usable tokens.
    """
    if scores.shape != annotation.valid.shape:
        raise ValueError(
            f"scores {tuple(scores.shape)} and annotation {tuple(annotation.valid.shape)} must have one shape: "
            "leave out special tokens in both, or mark them 255 in the annotation"
        )
    usable = annotation.usable
    # Scores of special tokens and padding may be anything.
    finite = scores.isfinite()
    defined = annotation.present & (finite | ~usable).all(-1)
    return torch.where(usable & finite, at_least_float32(scores), 0), defined


def nan_where_undefined(values: Float[Tensor, " batch"], defined: Bool[Tensor, " batch"]) -> Float[Tensor, " batch"]:
    """Replace the values of samples for which the metric is not defined by nan."""
    return torch.where(defined, values, torch.nan)


def uniform_chance(
    function: Callable[..., Float[Tensor, " batch"]], annotation: TokenAnnotation, **options: object
) -> Float[Tensor, " batch"]:
    """Return the chance level per sample of any metric of this package: what a map of equal scores gets.

    Ties are counted by expectation, so it is also what a random order gets on average (average precision a little
    more). `iou_f1` breaks ties by position and has no such level.

    Args:
        function: Takes `(scores, annotation, **options)`.
        annotation: The annotation that the uniform map is scored against.
        **options: Passed on.
    """
    return function(torch.ones_like(annotation.valid), annotation, **options)


def class_index(
    label: Shaped[Tensor, " batch"] | None, num_classes: int | None, like: Shaped[Tensor, "batch ..."]
) -> Int[Tensor, " batch"]:
    """Return the row of each sample in a per-class state: its label, or 0 if there is one row for all classes."""
    if num_classes is None:
        return torch.zeros(like.shape[0], dtype=torch.long, device=like.device)
    if label is None or label.shape != like.shape[:1]:
        received = "none" if label is None else f"shape {tuple(label.shape)}"
        raise ValueError(f"num_classes={num_classes} needs one label per sample [{like.shape[0]}], got {received}")
    if ((label < 0) | (label >= num_classes)).any():
        raise ValueError(f"labels must lie in 0..{num_classes - 1}, got {label.unique().tolist()}: raise num_classes?")
    return label.long()


def state_rows(num_classes: int | None) -> int:
    """Return how many rows a per-class state has."""
    if num_classes is not None and num_classes < 1:
        raise ValueError(f"num_classes must be positive or None, got {num_classes}")
    return num_classes or 1


def leave_compute_groups(metric: Metric) -> None:
    """Forbid a `MetricCollection` to put the metric into a compute group with another.

    A collection takes two metrics for one if their states agree after the first batch, and then updates only one of
    them. NaN equals nothing, so a state that is NaN makes any two metrics differ.
    """
    metric.add_state("never_equal", torch.tensor(torch.nan), dist_reduce_fx="sum")


class SampleMean(Metric):
    """Mean over samples of a value that is nan where undefined; a subclass fills in `score`.

    `compute()` returns a dict:

    - `value`: mean over all samples with a value; nan if there is none,
    - `low`, `high`: its 95 % t interval over samples; nan below two,
    - `samples`: how many samples had a value,
    - `undefined`: how many samples had none.

    Args:
        num_classes: How many classes get a mean of their own, in a subclass that knows the labels.
        **kwargs: Passed to `torchmetrics.Metric`.

    Attributes:
        key: Name of the metric in logged keys.
        title: Name of the metric in plots.
        function: The plain function that the values come from.
    """

    key: ClassVar[str]
    title: ClassVar[str]
    function: ClassVar[Callable[..., Tensor]]
    is_differentiable = False
    full_state_update = False
    moments: Tensor
    undefined: Tensor

    def __init__(self, num_classes: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.add_state("moments", empty_moments(state_rows(num_classes)), dist_reduce_fx=merge_moments)
        self.add_state("undefined", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")
        leave_compute_groups(self)

    def score(self, *args: Any, **kwargs: Any) -> Float[Tensor, " batch"]:
        """Return the value per sample, nan where it is undefined."""
        raise NotImplementedError

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Add a batch; the arguments are those of `score`."""
        values = self.score(*args, **kwargs)
        self._add(values, class_index(None, None, values), values.isnan())

    def _add(self, values: Float[Tensor, " batch"], row: Int[Tensor, " batch"], lost: Bool[Tensor, " batch"]) -> None:
        """Add values to their rows, and samples that should have had one."""
        self.moments = merge_moments(torch.stack([self.moments, moments_by_row(values, row, len(self.moments))]))
        self.undefined = self.undefined + lost.sum()

    def compute(self) -> dict[str, Tensor]:
        """Return the dict described above."""
        overall = merge_moments(self.moments)
        return {**mean_with_interval(overall), "samples": overall[0].long(), "undefined": self.undefined}


class AnnotationMetric(SampleMean):
    """Mean of per-sample values against an annotation; a subclass names its `function` and sets its `options`.

    `compute()` returns the dict of `SampleMean`, and:

    - `undefined`: of the annotated samples alone (left out of the mean: look when it is not 0),
    - `chance`: mean chance level over the samples with a value; absent where the metric has none,
    - `per_class`: `[num_classes]` means by label, nan for classes without samples; only with `num_classes`.

    Args:
        num_classes: How many classes get a mean of their own; `update` then needs the labels.
        **kwargs: Passed to `torchmetrics.Metric`.

    Attributes:
        explanation: What a value means, in one sentence for someone who sees it for the first time; "" for none.
        function: The metric per sample, of `(scores, annotation, **options)`.
        has_chance: Whether a map of equal scores has a meaningful value.
        options: Keyword arguments of `function`.
    """

    explanation: ClassVar[str] = ""
    higher_is_better = True
    has_chance = True
    options: dict[str, Any]
    chance_sum: Tensor

    def __init__(self, num_classes: int | None = None, **kwargs: Any):
        super().__init__(num_classes, **kwargs)
        self.num_classes = num_classes
        self.options = {}
        self.add_state("chance_sum", torch.zeros(len(self.moments)), dist_reduce_fx="sum")

    def score(self, scores: Float[Tensor, "batch tokens"], annotation: TokenAnnotation) -> Float[Tensor, " batch"]:
        """Return the metric per sample, nan where it is undefined."""
        return self.function(scores, annotation, **self.options)

    def update(
        self,
        scores: Float[Tensor, "batch tokens"],
        annotation: TokenAnnotation,
        label: Shaped[Tensor, " batch"] | None = None,
    ) -> None:
        """Add a batch."""
        values = self.score(scores, annotation)
        row = class_index(label, self.num_classes, values)
        defined = ~values.isnan()
        self._add(values, row, annotation.present & ~defined)
        if self.has_chance:
            self.chance_sum = add_by_row(self.chance_sum, row, uniform_chance(self.score, annotation), defined)

    def compute(self) -> dict[str, Tensor]:
        """Return the dict described above."""
        result = super().compute()
        if self.has_chance:
            result["chance"] = self.chance_sum.sum() / result["samples"]
        if self.num_classes is not None:
            result["per_class"] = mean_with_interval(self.moments)["value"]
        return result


def add_by_row(
    state: Shaped[Tensor, "rows ..."],
    row: Int[Tensor, " batch"],
    values: Shaped[Tensor, "batch ..."],
    defined: Bool[Tensor, " batch"],
) -> Shaped[Tensor, "rows ..."]:
    """Return a new state with the values of the defined samples added to their rows."""
    return state.index_add(0, row[defined], values[defined].to(state.dtype))
