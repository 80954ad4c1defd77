"""Does the model follow what a map calls relevant? Remove it, or keep nothing else, and look at the prediction."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lrptrain.metrics.base import SampleMean, nan_where_undefined
from lrptrain.metrics.ranking import select_top
from lrptrain.relevance.propagation.propagator import at_least_float32

STEPS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
Fractions = Sequence[int | float]
Predict = Callable[[Tensor], Tensor]
Probability = Callable[[Tensor], Tensor]
Mean = Literal["eraser", "er_test", "ferret"]


def perturbation_curve(
    predict: Predict,
    images: Float[Tensor, "batch channels height width"],
    scores: Float[Tensor, "batch tokens"],
    grid: tuple[int, int],
    target: Int[Tensor, " batch"],
    fractions: Fractions = STEPS,
    most_relevant_first: bool = True,
    fill: int | float | Fractions | Float[Tensor, " channels"] = 0.0,
) -> Float[Tensor, "batch fractions"]:
    """Return whether the target is still the top class after shares of the pixels are removed by relevance.

    The perturbation test of Chefer, Gur, Wolf (CVPR 2021, section 4): the map is up-sampled bilinearly to the image and
    its pixels ranked. Of pixels with equal relevance the earlier (row by row) is removed first, in both directions.

    Args:
        predict: Takes images, returns logits `[batch, classes]`; run once per fraction, without gradients.
        images: As the model gets them (normalised).
        scores: Signed relevance of the patches.
        grid: Rows and columns of patches.
        target: The explained class: the predicted one, or the label.
        fractions: Shares of the pixels to remove, rising, each in [0, 1].
        most_relevant_first: True is the positive test (a good map lets the curve fall early), False the negative one.
        fill: What removed pixels become, per channel or for all: black, in normalised units -mean / std.

    Returns:
        1 where the target is on top, else 0; nan rows where scores are not finite.

    Raises:
        ValueError: If the grid does not hold the tokens, or fractions do not rise within [0, 1].
    """
    _check_fractions(fractions)
    if grid[0] * grid[1] != scores.shape[-1]:
        raise ValueError(f"a grid of {grid} holds {grid[0] * grid[1]} tokens, got {scores.shape[-1]}: patches only")
    size = (images.shape[-2], images.shape[-1])
    heat = F.interpolate(at_least_float32(scores).unflatten(-1, (1, *grid)), size, mode="bilinear", align_corners=False)
    order = heat.flatten(1).sort(dim=-1, descending=most_relevant_first, stable=True).indices
    # order[r] is the pixel at rank r; its inverse gives every pixel its rank, 0 for the first to go.
    rank = torch.empty_like(order).scatter(1, order, torch.arange(order.shape[1], device=order.device).expand_as(order))
    # [channels or 1, 1, 1]
    black = torch.as_tensor(fill, dtype=images.dtype, device=images.device).reshape(-1, 1, 1)
    on_top = []
    for fraction in fractions:
        removed = (rank < round(fraction * order.shape[1])).view(-1, 1, *size)
        with torch.no_grad():
            logits = predict(torch.where(removed, black, images))
        on_top.append(logits.argmax(1) == target)
    curve = torch.stack(on_top, 1).to(heat.dtype)
    return torch.where(scores.isfinite().all(-1, keepdim=True), curve, torch.nan)


def area_under_curve(curve: Float[Tensor, "*batch fractions"], fractions: Fractions = STEPS) -> Float[Tensor, "*batch"]:
    """Return the area under a curve over the removed share, by trapezoids, divided by the range of the fractions.

    So it is the curve's mean height between the first and the last fraction, in [0, 1] for a curve in [0, 1], whatever
    the range; undivided, nine steps from 10 to 90 % would give 0.8 at most.

    Raises:
        ValueError: If there are fewer than two fractions, or they do not rise within [0, 1] or do not fit.
    """
    _check_fractions(fractions)
    if len(fractions) < 2 or len(fractions) != curve.shape[-1]:
        raise ValueError(f"an area needs two fractions at least, one per point; got {len(fractions)}, {curve.shape}")
    at = torch.tensor(fractions, dtype=curve.dtype, device=curve.device)
    return torch.trapezoid(curve, at, dim=-1) / (fractions[-1] - fractions[0])


def comprehensiveness(
    probability: Probability,
    scores: Float[Tensor, "batch tokens"],
    usable: Bool[Tensor, "batch tokens"],
    fractions: Fractions = SHARES,
    mean: Mean = "eraser",
    full: Float[Tensor, " batch"] | None = None,
) -> Float[Tensor, " batch"]:
    """Return the fall of the explained class without the most relevant tokens: mean of p(x) - p(x without r).

    DeYoung et al. 2020 (ERASER), section 5.2. For a fraction f of n usable tokens, r are the ceil(f * n) of highest
    (signed) relevance, one at least; of tied tokens the earlier. (ERASER leaves the rounding open.)

    Args:
        probability: `probability(keep)` is the explained class's probability per sample when only the tokens that
            `keep` marks (bool, the shape of `scores`) stay; see `text_probability`.
        scores: Signed relevance.
        usable: Tokens that take part. All others (special tokens, a question) are kept throughout.
        fractions: Shares of the usable tokens, rising, each in (0, 1].
        mean: "eraser": plain mean, as its code does. "er_test": the sum over one more than there are fractions, as in
            ERASER's paper. "ferret": the mean over those fractions that take more tokens than the one before.
        full: p(x), if it has been computed before; saves a forward pass.

    Returns:
        In [-1, 1], higher is better; nan where scores are not finite or no token is usable.

    Raises:
        ValueError: If shapes or fractions do not fit, or `mean` is unknown.
    """
    return _mean_drop(probability, scores, usable, fractions, mean, full, lambda top: ~top)


def sufficiency(
    probability: Probability,
    scores: Float[Tensor, "batch tokens"],
    usable: Bool[Tensor, "batch tokens"],
    fractions: Fractions = SHARES,
    mean: Mean = "eraser",
    full: Float[Tensor, " batch"] | None = None,
) -> Float[Tensor, " batch"]:
    """Return the fall of the explained class with the most relevant tokens alone: mean over fractions of p(x) - p(r).

    DeYoung et al. 2020 (ERASER), section 5.2; arguments as for `comprehensiveness`.

    Returns:
        In [-1, 1], lower is better; nan where scores are not finite or no token is usable.

    Raises:
        ValueError: If shapes or fractions do not fit, or `mean` is unknown.
    """
    return _mean_drop(probability, scores, usable, fractions, mean, full, lambda top: top | ~usable)


class PerturbationArea(SampleMean):
    """Mean `area_under_curve` of `perturbation_curve`; see `SampleMean` for what `compute()` returns.

    Args:
        most_relevant_first: True: positive test, lower is better. False: negative test, higher is better.
        fractions: See `perturbation_curve`.
        fill: See `perturbation_curve`.
        **kwargs: Passed to `torchmetrics.Metric`.
    """

    key = "perturbation_area"
    title = "Area under the perturbation curve"
    function = staticmethod(perturbation_curve)
    higher_is_better = None

    def __init__(
        self,
        most_relevant_first: bool = True,
        fractions: Fractions = STEPS,
        fill: int | float | Fractions = 0.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        _check_fractions(fractions)
        self.options: dict[str, Any] = {
            "most_relevant_first": most_relevant_first, "fractions": tuple(fractions), "fill": fill
        }  # fmt: skip
        # The class cannot know which test it is, and torchmetrics forbids to assign the attribute.
        self.__dict__["higher_is_better"] = not most_relevant_first

    def score(
        self,
        predict: Predict,
        images: Float[Tensor, "batch channels height width"],
        scores: Float[Tensor, "batch tokens"],
        grid: tuple[int, int],
        target: Int[Tensor, " batch"],
    ) -> Float[Tensor, " batch"]:
        """Return the area per image."""
        curve = perturbation_curve(predict, images, scores, grid, target, **self.options)
        return area_under_curve(curve, self.options["fractions"])


class Comprehensiveness(SampleMean):
    """Mean of `comprehensiveness`; see `SampleMean` for what `compute()` returns.

    Args:
        fractions: See `comprehensiveness`.
        mean: See `comprehensiveness`.
        **kwargs: Passed to `torchmetrics.Metric`.
    """

    key = "comprehensiveness"
    title = "Comprehensiveness"
    function = staticmethod(comprehensiveness)
    higher_is_better = True

    def __init__(self, fractions: Fractions = SHARES, mean: Mean = "eraser", **kwargs: Any):
        super().__init__(**kwargs)
        _check_fractions(fractions)
        self.fractions = tuple(fractions)
        self.mean = mean

    def score(
        self, probability: Probability, scores: Float[Tensor, "batch tokens"], usable: Bool[Tensor, "batch tokens"]
    ) -> Float[Tensor, " batch"]:
        """Return the metric per sample."""
        return self.function(probability, scores, usable, self.fractions, self.mean)


class Sufficiency(Comprehensiveness):
    """Mean of `sufficiency`, of which less is better; arguments as for `Comprehensiveness`."""

    key = "sufficiency"
    title = "Sufficiency"
    function = staticmethod(sufficiency)
    higher_is_better = False


def _mean_drop(
    probability: Probability,
    scores: Float[Tensor, "batch tokens"],
    usable: Bool[Tensor, "batch tokens"],
    fractions: Fractions,
    mean: Mean,
    full: Float[Tensor, " batch"] | None,
    tokens_to_keep: Callable[[Tensor], Tensor],
) -> Float[Tensor, " batch"]:
    """Return the mean over fractions of p(x) - p(the tokens that stay), which follow from the most relevant ones."""
    _check_fractions(fractions)
    if scores.shape != usable.shape:
        raise ValueError(f"scores {tuple(scores.shape)} and usable {tuple(usable.shape)} must have one shape")
    if mean not in ("eraser", "er_test", "ferret"):
        raise ValueError(f"mean must be 'eraser', 'er_test' or 'ferret', got {mean!r}")
    defined = usable.any(-1) & (scores.isfinite() | ~usable).all(-1)
    clean = torch.where(usable & scores.isfinite(), at_least_float32(scores), 0)
    length = usable.sum(-1, keepdim=True)
    # A hair below the product: 0.07 * 100 is 7.000000000000001, of which the ceiling would be 8.
    counts = [(fraction * length.double() - 1e-9).ceil().long().clamp(min=1) for fraction in fractions]
    full_probability = probability(torch.ones_like(usable)) if full is None else full
    # [batch, fractions], one forward pass each
    drops = torch.stack(
        [full_probability - probability(tokens_to_keep(select_top(clean, usable, count))) for count in counts], -1
    )
    if mean == "ferret":
        # Of 3 tokens the shares .1 and .2 both take 1: only the first of them counts.
        sizes = torch.cat(counts, -1)
        new = F.pad(sizes[:, 1:] != sizes[:, :-1], (1, 0), value=True)
        return nan_where_undefined(torch.where(new, drops, 0).sum(-1) / new.sum(-1), defined)
    # `er_test` counts the empty set as one more fraction, with a drop of 0.
    return nan_where_undefined(drops.sum(-1) / (len(fractions) + (mean == "er_test")), defined)


def _check_fractions(fractions: Fractions) -> None:
    rising = all(low < high for low, high in pairwise(fractions))
    if not fractions or not rising or fractions[0] < 0 or fractions[-1] > 1:
        raise ValueError(f"fractions must rise within [0, 1], got {list(fractions)}")
