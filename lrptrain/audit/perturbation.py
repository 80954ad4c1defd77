"""Does the model follow the order that a map gives its tokens, and better than random orders?"""

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lrptrain.audit.comparison import Fill, image_of, predict_logits
from lrptrain.metrics import (
    area_under_curve,
    comprehensiveness,
    perturbation_curve,
    sufficiency,
    text_probability,
)
from lrptrain.metrics.deletion import ends
from lrptrain.relevance import attribute
from lrptrain.relevance.explanation import explained_class
from lrptrain.relevance.recording import Target

Inputs = Tensor | Mapping[str, Tensor]


def perturbation_gain(
    model: nn.Module,
    inputs: Inputs,
    target: Target = None,
    method: str = "transformer_attribution",
    *,
    fill: Fill = 0.0,
    random_maps: int = 3,
    seed: int = 0,
) -> Float[Tensor, " batch"]:
    """How much better than random orders a method's order is, on the same samples.

    Args:
        model: As for `lrptrain.attribute`, in evaluation mode.
        inputs: As for `lrptrain.attribute`; texts need an `attention_mask`.
        target: The class to explain; None for the predicted one.
        method: One of `lrptrain.methods()`.
        fill: What removed pixels become; see `perturbation_curve`.
        random_maps: How many random maps the mean is taken of.
        seed: Of these.

    Returns:
        `order_worth` of the method's map less that of `random_worth`, in [-2, 2]; 0 is no better than chance.
    """
    with torch.no_grad():
        target = explained_class(target, predict_logits(model, inputs))
    found = attribute(model, inputs, target, method)
    worth = order_worth(model, inputs, target, found.scores, found.grid, fill)
    return worth - random_worth(model, inputs, target, fill=fill, random_maps=random_maps, seed=seed)


def random_worth(
    model: nn.Module,
    inputs: Inputs,
    target: Int[Tensor, " batch"],
    *,
    fill: Fill = 0.0,
    random_maps: int = 3,
    seed: int = 0,
) -> Float[Tensor, " batch"]:
    """Mean `order_worth` of random maps, which differ from those of the method `random` by default.

    A sample's own content seeds them, so that a batch of N equals N batches of one.

    Raises:
        ValueError: If `random_maps` is not positive.
    """
    if random_maps < 1:
        raise ValueError(f"random_maps must be positive, got {random_maps}")
    worths = []
    for number in range(random_maps):
        found = attribute(model, inputs, target, "random", seed=1 + seed * random_maps + number)
        worths.append(order_worth(model, inputs, target, found.scores, found.grid, fill))
    return torch.stack(worths).mean(0)


def order_worth(
    model: nn.Module,
    inputs: Inputs,
    target: Int[Tensor, " batch"],
    scores: Float[Tensor, "batch tokens"],
    grid: tuple[int, int] | None,
    fill: Fill = 0.0,
) -> Float[Tensor, " batch"]:
    """What the model loses without the relevant, less what it loses without the irrelevant.

    Images: area under the perturbation curve, least relevant first, less that of the most relevant first (Chefer, Gur,
    Wolf, CVPR 2021, section 4). Texts: comprehensiveness less sufficiency (DeYoung et al. 2020, section 5.2).

    Args:
        model: In evaluation mode.
        inputs: Of its forward; texts with an `attention_mask`.
        target: The explained class.
        scores: Signed relevance.
        grid: Rows and columns of patches, None for texts.
        fill: What removed pixels become.

    Returns:
        In [-1, 1] for images and [-2, 2] for texts, higher is better; nan where scores are not finite.

    Raises:
        ValueError: If a text comes without `attention_mask`.
    """
    scores = scores.detach()
    if grid is None:
        named = inputs if isinstance(inputs, Mapping) else {}
        probability = text_probability(lambda **shorter: predict_logits(model, shorter), named, target)
        attended = named["attention_mask"] != 0
        usable = attended & ~ends(attended)
        full = probability(attended)
        return comprehensiveness(probability, scores, usable, full=full) - sufficiency(
            probability, scores, usable, full=full
        )
    key, images = image_of(inputs)

    def predict(changed: Tensor) -> Tensor:
        return predict_logits(model, {**inputs, key: changed} if isinstance(inputs, Mapping) else changed)

    areas = []
    for first in (True, False):
        curve = perturbation_curve(predict, images, scores, grid, target, most_relevant_first=first, fill=fill)
        areas.append(area_under_curve(curve))
    most, least = areas
    return least - most
