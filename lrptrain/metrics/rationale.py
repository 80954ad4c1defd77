"""Do the most relevant tokens form the rationale? Scores of ERASER (DeYoung et al. 2020, ACL)."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Num, Shaped
from torch import Tensor

from lrptrain.batch.annotations import TokenAnnotation
from lrptrain.metrics.base import AnnotationMetric, nan_where_undefined, usable_scores
from lrptrain.metrics.interval import pooled_interval, products_of_counts
from lrptrain.metrics.localization import localization_auprc
from lrptrain.metrics.ranking import expected_hits, select_top

# The same number under the name that papers on text use: average precision per document.
rationale_auprc = localization_auprc
"""The area under the precision-recall curve of the words of a rationale, as ERASER names it."""


def token_f1_at_k(
    scores: Float[Tensor, "batch tokens"], annotation: TokenAnnotation, k: int
) -> Float[Tensor, " batch"]:
    """Return the F1 per document of the k most relevant tokens: 2 * hits / (k + length of the rationale).

    DeYoung et al. 2020; Chefer, Gur, Wolf (CVPR 2021), table 4, take k = 10, 20 ... 80. Ties count by expectation.

    Args:
        scores: Signed relevance.
        annotation: The rationale.
        k: Tokens to take; all usable ones if there are fewer.

    Returns:
        In [0, 1], higher is better. nan without annotation, with scores that are not finite, or with nothing marked.

    Raises:
        ValueError: If `k` is not positive.
    """
    scores, defined = usable_scores(scores, annotation)
    usable = annotation.usable
    marked = annotation.marked
    selected = usable.sum(-1).clamp(max=_check_k(k))
    wanted = marked.sum(-1)
    f1 = 2 * expected_hits(scores, marked, usable, selected) / (selected + wanted)
    return nan_where_undefined(f1, defined & (wanted > 0))


def span_counts(
    selected: Bool[Tensor, "batch tokens"], annotation: TokenAnnotation, overlap: int | float = 0.5
) -> Int[Tensor, "batch 3"]:
    """Count the spans per document: (matched, predicted, in the rationale).

    A span is a longest run of neighbouring selected (or marked) usable tokens. A predicted span is matched if its
    intersection over union with any span of the rationale is at least `overlap`.

    Args:
        selected: The predicted rationale, by any rule: `select_top(...)`, or `scores > threshold`.
        annotation: The rationale.
        overlap: The least intersection over union of a match, in [0.5, 1]; below a half a span could match twice.

    Raises:
        ValueError: If `overlap` is out of range or shapes differ.
    """
    if selected.shape != annotation.valid.shape:
        raise ValueError(f"selected {tuple(selected.shape)} and annotation {tuple(annotation.valid.shape)} must fit")
    predicted = selected & annotation.usable
    gold = annotation.marked
    # Where both hold, the overlap of the two spans is a run itself: |A and B|, and |A| + |B| less that.
    shared = _run_length(predicted & gold)
    union = _run_length(predicted) + _run_length(gold) - shared
    matches = predicted & gold & (shared / union >= _check_overlap(overlap))
    # A predicted span is matched if one of its tokens is: entry i counts those of span i.
    ids = _run_ids(predicted)
    matched = torch.zeros_like(ids).scatter_add(-1, ids, matches.long()) > 0
    return torch.stack([matched.sum(-1), _starts(predicted).sum(-1), _starts(gold).sum(-1)], -1)


def span_f1(counts: Num[Tensor, "*sets 3"]) -> Float[Tensor, "*sets"]:
    """Return the F1 of `span_counts`: 2 * matched / (predicted + gold), in [0, 1]; nan without a span of the rationale.

    Per document, or for counts summed over documents (ERASER's micro average).
    """
    matched, predicted, gold = counts.unbind(-1)
    return torch.where(gold > 0, 2 * matched / (predicted + gold), torch.nan)


def iou_f1(
    scores: Float[Tensor, "batch tokens"], annotation: TokenAnnotation, k: int, overlap: int | float = 0.5
) -> Float[Tensor, " batch"]:
    """Return the F1 per document of the spans that the k most relevant tokens form, matched at IoU >= `overlap`.

    DeYoung et al. 2020, section 5.1. Of tied tokens the earlier are taken. Their micro average is
    `span_f1(span_counts(...).sum(0))`; the mean of this function is another number.

    Args:
        scores: Signed relevance.
        annotation: The rationale.
        k: Tokens to take; all usable ones if there are fewer.
        overlap: Least intersection over union, in [0.5, 1].

    Returns:
        In [0, 1], higher is better. nan without annotation, with scores that are not finite, or with nothing marked.

    Raises:
        ValueError: If `k` is not positive or `overlap` out of range.
    """
    scores, defined = usable_scores(scores, annotation)
    selected = select_top(scores, annotation.usable, _check_k(k))
    return nan_where_undefined(span_f1(span_counts(selected, annotation, overlap)), defined)


class TokenF1(AnnotationMetric):
    """Mean over documents of `token_f1_at_k`; see `AnnotationMetric` for what `compute()` returns.

    Args:
        k: Tokens to take.
        num_classes: How many classes get a mean of their own.
        **kwargs: Passed to `torchmetrics.Metric`.
    """

    key = "token_f1"
    title = "Token F1"
    function = staticmethod(token_f1_at_k)

    def __init__(self, k: int, num_classes: int | None = None, **kwargs: object):
        super().__init__(num_classes, **kwargs)
        self.k = _check_k(k)
        self.options = {"k": k}


class IouF1(AnnotationMetric):
    """Mean over documents of `iou_f1` (no chance level), and ERASER's average over spans as `micro`.

    `compute()` gives `micro_low` and `micro_high` too: the 95 % interval over documents, by `pooled_interval`.

    Args:
        k: Tokens to take.
        overlap: Least intersection over union of a match.
        num_classes: How many classes get a mean of their own.
        **kwargs: Passed to `torchmetrics.Metric`.
    """

    key = "iou_f1"
    title = "Span F1"
    function = staticmethod(iou_f1)
    has_chance = False
    spans: Tensor
    span_products: Tensor

    def __init__(self, k: int, overlap: int | float = 0.5, num_classes: int | None = None, **kwargs: object):
        super().__init__(num_classes, **kwargs)
        self.k = _check_k(k)
        self.overlap = _check_overlap(overlap)
        self.options = {"k": k, "overlap": overlap}
        # Matched, predicted and gold spans, and the products of all pairs of them, summed over documents.
        self.add_state("spans", torch.zeros(3, dtype=torch.long), dist_reduce_fx="sum")
        self.add_state("span_products", torch.zeros(3, 3, dtype=torch.long), dist_reduce_fx="sum")

    def update(
        self,
        scores: Float[Tensor, "batch tokens"],
        annotation: TokenAnnotation,
        label: Shaped[Tensor, " batch"] | None = None,
    ) -> None:
        """Add a batch."""
        super().update(scores, annotation, label)
        clean, defined = usable_scores(scores, annotation)
        counts = span_counts(select_top(clean, annotation.usable, self.k), annotation, self.overlap)
        counts = counts[defined & (counts[:, 2] > 0)]
        self.spans = self.spans + counts.sum(0)
        self.span_products = self.span_products + products_of_counts(counts)

    def compute(self) -> dict[str, Tensor]:
        """Return the dict of `AnnotationMetric`, and `micro` with its interval."""
        mean = super().compute()
        low, high = pooled_interval(span_f1, self.spans, self.span_products, mean["samples"])
        return {**mean, "micro": span_f1(self.spans), "micro_low": low, "micro_high": high}


def _check_k(k: int) -> int:
    if k < 1:
        raise ValueError(f"k must be a positive number of tokens, got {k}")
    return k


def _check_overlap(overlap: int | float) -> float:
    if not 0.5 <= overlap <= 1:
        raise ValueError(f"overlap must lie in [0.5, 1], got {overlap}")
    return overlap


def _starts(inside: Bool[Tensor, "batch tokens"]) -> Bool[Tensor, "batch tokens"]:
    """Return whether each token is the first one of a run."""
    # Inside, and the token before is not: [0, 1, 1, 0, 1] starts at [0, 1, 0, 0, 1].
    return inside & ~F.pad(inside, (1, 0))[:, :-1]


def _run_ids(inside: Bool[Tensor, "batch tokens"]) -> Int[Tensor, "batch tokens"]:
    """Return the number of the run a token is in, from 0; tokens outside share the number of the run before them."""
    return (_starts(inside).cumsum(-1) - 1).clamp(min=0)


def _run_length(inside: Bool[Tensor, "batch tokens"]) -> Int[Tensor, "batch tokens"]:
    """Return the length of the run a token is in (of the run before it for tokens outside)."""
    ids = _run_ids(inside)
    return torch.zeros_like(ids).scatter_add(-1, ids, inside.long()).gather(-1, ids)
