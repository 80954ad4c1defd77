"""Does the model follow the order that a map gives its tokens, and better than random orders?"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lrptrain.auditing.base import AuditTest, Check, Column, register
from lrptrain.auditing.brought import Fill, image_prediction, predict_logits
from lrptrain.auditing.context import AuditContext, content_of_map
from lrptrain.auditing.plots import BLUE, GREY, saved_plot
from lrptrain.auditing.result import AuditResult
from lrptrain.auditing.score import Score
from lrptrain.auditing.store import Values, to_list
from lrptrain.metrics import area_under_curve, comprehensiveness, perturbation_curve, sufficiency, text_probability
from lrptrain.relevance import attribute
from lrptrain.relevance.passes.recording import Inputs


@register
class PerturbationTest(AuditTest):
    """Remove tokens in the order of a method's map, and in random orders."""

    name = "perturbation"
    order = 20
    decides_verdict = True
    columns = (
        Column("gain over random", values="gain", higher_is_better=True, sorts=True, logged_as="perturbation_gain"),
        Column("positive AUC", values="positive", higher_is_better=False),
        Column("negative AUC", values="negative", higher_is_better=True),
        Column("comprehensiveness", values="comprehensiveness", higher_is_better=True),
        Column("sufficiency", values="sufficiency", higher_is_better=False),
    )
    settings = ("random_maps", "fill")

    def run(self, context: AuditContext, unit: str) -> Values:
        """Return per sample `gain`, how much better than random orders the method's order is, and the `order_parts`."""
        # The random orders are the same for all methods.
        random_scores = context.cached("random orders", lambda: self._random_scores(context))
        columns: dict[str, list[Tensor]] = {}
        for batch, relevance, random_score in zip(context.batches, context.maps(unit), random_scores, strict=True):
            map_and_grid = relevance.scores, relevance.image_grid
            parts = order_parts(context.model, batch.inputs, batch.target, *map_and_grid, context.settings.fill)
            for name, values in {"gain": _difference(parts) - random_score, **parts}.items():
                columns.setdefault(name, []).append(values)
        return {name: to_list(torch.cat(values)) for name, values in columns.items()}

    def _random_scores(self, context: AuditContext) -> list[Tensor]:
        return [
            random_order_score(
                context.model,
                batch.inputs,
                batch.target,
                fill=context.settings.fill,
                random_maps=context.settings.random_maps,
                seed=context.settings.seed,
            )
            for batch in context.batches
        ]

    def check(self, score: Score) -> Check:
        """Decide: a method of which the interval of the gain does not lie above 0 is not faithful."""
        passed = score.low > 0
        verb = "beats" if passed else "does not beat"
        return Check(passed, f"its order {verb} random orders: gain {score}", decisive=True)

    def plot(self, result: AuditResult, folder: Path) -> None:
        """Save `gains.png`, a bar per method."""
        scores = {method: score for method in result.methods if (score := result.column_score(self, method))}
        if scores:
            plot_gains(folder / "gains.png", scores)


def random_order_score(
    model: nn.Module,
    inputs: Inputs,
    target: Int[Tensor, " batch"],
    *,
    fill: Fill = 0.0,
    random_maps: int = 3,
    seed: int = 0,
) -> Float[Tensor, " batch"]:
    """Return the mean `order_score` of random maps, which differ from those of the method `random` by default.

    A sample's own content seeds them, so that a batch of N equals N batches of one.
    """
    if random_maps < 1:
        raise ValueError(f"random_maps must be positive, got {random_maps}")
    scores = []
    for number in range(random_maps):
        # From 1 on: seed 0 is that of the method `random`, which would be compared with itself.
        relevance = attribute(model, inputs, target, "random", seed=1 + seed * random_maps + number)
        scores.append(order_score(model, inputs, target, relevance.scores, relevance.image_grid, fill))
    return torch.stack(scores).mean(0)


def order_score(
    model: nn.Module,
    inputs: Inputs,
    target: Int[Tensor, " batch"],
    scores: Float[Tensor, "batch tokens"],
    grid: tuple[int, int] | None,
    fill: Fill = 0.0,
) -> Float[Tensor, " batch"]:
    """Return what the model loses without the relevant tokens, less what it loses without the irrelevant ones.

    It is the difference of the `order_parts`.

    Returns:
        In [-1, 1] for images and [-2, 2] for texts, higher is better; nan where scores are not finite.
    """
    return _difference(order_parts(model, inputs, target, scores, grid, fill))


def order_parts(
    model: nn.Module,
    inputs: Inputs,
    target: Int[Tensor, " batch"],
    scores: Float[Tensor, "batch tokens"],
    grid: tuple[int, int] | None,
    fill: Fill = 0.0,
) -> dict[str, Float[Tensor, " batch"]]:
    """Return two numbers per sample by name, of which the first less the second says how good the order is.

    Images: `negative` and `positive`, the areas under the perturbation curve with the least and the most relevant first
    (Chefer, Gur, Wolf, CVPR 2021, section 4). Texts: `comprehensiveness` and `sufficiency` (DeYoung et al. 2020,
    section 5.2).
    """
    scores = scores.detach()
    if grid is None:
        text_inputs = inputs if isinstance(inputs, Mapping) else {}
        probability = text_probability(lambda **shorter: predict_logits(model, shorter), text_inputs, target)
        usable = content_of_map(text_inputs, scores.shape[1])
        full = probability(text_inputs["attention_mask"] != 0)  # of the complete text, for both
        return {
            "comprehensiveness": comprehensiveness(probability, scores, usable, full=full),
            "sufficiency": sufficiency(probability, scores, usable, full=full),
        }
    predict, images = image_prediction(model, inputs)
    # The sooner the probability falls, the smaller the area: small with the relevant patches first is good.
    return {
        name: area_under_curve(
            perturbation_curve(predict, images, scores, grid, target, most_relevant_first=first, fill=fill)
        )
        for name, first in (("negative", False), ("positive", True))
    }


def _difference(parts: Mapping[str, Tensor]) -> Tensor:
    good, bad = parts.values()
    return good - bad


def plot_gains(path: Path, scores: Mapping[str, Score]) -> None:
    """Save bars of the gain over random orders with their 95 % intervals, the best on top."""
    names = sorted(scores, key=lambda name: scores[name].value)
    values = np.array([scores[name].value for name in names], float)
    low = np.array([scores[name].low for name in names], float)
    high = np.array([scores[name].high for name in names], float)
    with saved_plot(path, "Does the model follow the map?", 6.4, 1.1 + 0.3 * len(names)) as (_, axes):
        axes.barh(names, values, color=[BLUE if end > 0 else GREY for end in low], height=0.6)
        errors = [values - low, high - values]
        axes.errorbar(values, range(len(names)), xerr=errors, fmt="none", ecolor="black", capsize=3)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_xlabel("gain over random orders (95 % interval); blue: the interval lies above 0")
