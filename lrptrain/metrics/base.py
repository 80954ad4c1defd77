"""What every metric against an annotation shares: input checks, the chance level, means overall and per class."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torchmetrics import Metric

from lrptrain.batch.annotations import TokenAnnotation
from lrptrain.metrics.interval import mean_with_interval, merge_moments, moments_by_row, no_moments


def promote(scores: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """In float32 at least, so that half precision scores are summed without loss."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def prepare(
    scores: Float[Tensor, "batch tokens"], annotation: TokenAnnotation
) -> tuple[Float[Tensor, "batch tokens"], Bool[Tensor, " batch"]]:
    """Scores in float32 at least, 0 where not usable, and which samples can be judged.

    A sample can be judged if it is annotated and its usable scores are finite.

    Raises:
        ValueError: If the scores and the annotation differ in shape.
    """
    if scores.shape != annotation.valid.shape:
        raise ValueError(
            f"scores {tuple(scores.shape)} and annotation {tuple(annotation.valid.shape)} must have one shape: "
            "leave out special tokens in both, or mark them 255 in the annotation"
        )
    usable, finite = annotation.usable, scores.isfinite()
    judged = annotation.present & (finite | ~usable).all(-1)
    return torch.where(usable & finite, promote(scores), 0), judged


def or_nan(values: Float[Tensor, " batch"], judged: Bool[Tensor, " batch"]) -> Float[Tensor, " batch"]:
    """The values, nan for samples that cannot be judged."""
    return torch.where(judged, values, torch.nan)


def uniform_chance(
    function: Callable[..., Float[Tensor, " batch"]], annotation: TokenAnnotation, **options: object
) -> Float[Tensor, " batch"]:
    """Chance level per sample of any metric of this package: what a map of equal scores gets.

    For `energy_pointing_game` it is `annotation.chance`, for the ranking metrics the share of tokens that count
    (their ties are counted by expectation, so it is also what a random order gets on average; average precision alone
    is a little higher under a random order). `iou_f1` breaks ties by position and has no such level.

    Args:
        function: Takes `(scores, annotation, **options)`.
        annotation: The annotation to chance upon.
        **options: Passed on.
    """
    return function(torch.ones_like(annotation.valid), annotation, **options)


def class_index(
    label: Shaped[Tensor, " batch"] | None, num_classes: int | None, like: Shaped[Tensor, "batch ..."]
) -> Int[Tensor, " batch"]:
    """Row of each sample in a per-class state: its label, or 0 if classes are not told apart.

    Raises:
        ValueError: If classes are told apart and a label is missing or out of range.
    """
    if num_classes is None:
        return torch.zeros(like.shape[0], dtype=torch.long, device=like.device)
    if label is None or label.shape != like.shape[:1]:
        found = "none" if label is None else f"shape {tuple(label.shape)}"
        raise ValueError(f"num_classes={num_classes} needs one label per sample [{like.shape[0]}], got {found}")
    if ((label < 0) | (label >= num_classes)).any():
        raise ValueError(f"labels must lie in 0..{num_classes - 1}, got {label.unique().tolist()}: raise num_classes?")
    return label.long()


def class_rows(num_classes: int | None) -> int:
    """Rows of a per-class state.

    Raises:
        ValueError: If `num_classes` is not positive.
    """
    if num_classes is not None and num_classes < 1:
        raise ValueError(f"num_classes must be positive or None, got {num_classes}")
    return num_classes or 1


def keep_apart(metric: Metric) -> None:
    """Forbid a `MetricCollection` to take two metrics for one because their states agree after the first batch.

    It would then update only one of them. NaN equals nothing, so a state that is NaN tells any two metrics apart.
    """
    metric.add_state("apart", torch.tensor(torch.nan), dist_reduce_fx="sum")


class AnnotationMetric(Metric):
    """Mean of per-sample values against an annotation; a concept fills in `score`.

    `compute()` returns a dict:
    - `value`: mean over all samples with a value; nan if there is none,
    - `low`, `high`: its 95 % t interval over samples; nan below two,
    - `chance`: mean chance level over the same samples; absent where the metric has none,
    - `samples`: how many samples had a value,
    - `undefined`: how many annotated samples had none (left out of the mean: look when it is not 0),
    - `per_class`: `[num_classes]` means by label, nan for classes without samples; only with `num_classes`.

    Args:
        num_classes: Tell classes apart; `update` then needs the labels.
        **kwargs: Of `torchmetrics.Metric`.
    """

    higher_is_better = True
    is_differentiable = False
    full_state_update = False
    has_chance = True
    moments: Tensor
    chance_sum: Tensor
    undefined: Tensor

    def __init__(self, num_classes: int | None = None, **kwargs: object):
        super().__init__(**kwargs)
        self.num_classes = num_classes
        rows = class_rows(num_classes)
        self.add_state("moments", no_moments(rows), dist_reduce_fx=merge_moments)
        self.add_state("chance_sum", torch.zeros(rows), dist_reduce_fx="sum")
        self.add_state("undefined", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")
        keep_apart(self)

    def score(self, scores: Float[Tensor, "batch tokens"], annotation: TokenAnnotation) -> Float[Tensor, " batch"]:
        """The metric per sample, nan where undefined."""
        raise NotImplementedError

    def update(
        self,
        scores: Float[Tensor, "batch tokens"],
        annotation: TokenAnnotation,
        label: Shaped[Tensor, " batch"] | None = None,
    ) -> None:
        """Add a batch."""
        values = self.score(scores, annotation)
        row, known = class_index(label, self.num_classes, values), ~values.isnan()
        new = moments_by_row(values, row, len(self.moments))
        self.moments = merge_moments(torch.stack([self.moments, new]))
        self.undefined = self.undefined + (annotation.present & ~known).sum()
        if self.has_chance:
            self.chance_sum = add_by_row(self.chance_sum, row, uniform_chance(self.score, annotation), known)

    def compute(self) -> dict[str, Tensor]:
        """The dict described above."""
        overall = merge_moments(self.moments)
        samples = overall[0].long()
        result = {**mean_with_interval(overall), "samples": samples, "undefined": self.undefined}
        if self.has_chance:
            result["chance"] = self.chance_sum.sum() / samples
        if self.num_classes is not None:
            result["per_class"] = mean_with_interval(self.moments)["value"]
        return result


def add_by_row(
    state: Shaped[Tensor, "rows ..."],
    row: Int[Tensor, " batch"],
    values: Shaped[Tensor, "batch ..."],
    known: Bool[Tensor, " batch"],
) -> Shaped[Tensor, "rows ..."]:
    """A new state with the known samples added to their rows."""
    return state.index_add(0, row[known], values[known].to(state.dtype))
