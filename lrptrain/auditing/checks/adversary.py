"""A second model with the same predictions and other explanations (Wiegreffe & Pinter 2019, section 4)."""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lrptrain.auditing.attention import ATTENTION_METHOD, content_of_map, evaluating
from lrptrain.auditing.base import AuditTest, register, setting
from lrptrain.auditing.context import AuditContext, explain_batch
from lrptrain.auditing.distances import (
    as_distribution,
    jensen_shannon,
    kullback_leibler,
    total_variation,
)
from lrptrain.auditing.result import AuditResult
from lrptrain.auditing.store import Values, to_list
from lrptrain.auditing.token_model import token_model_accuracy
from lrptrain.batch import model_inputs
from lrptrain.batch.logits import class_probabilities
from lrptrain.batch.matters import LEAST_EFFECT
from lrptrain.relevance import record
from lrptrain.relevance.model.preserve import unwrap
from lrptrain.relevance.passes.recording import Inputs, Target
from lrptrain.relevance.registry import get_method
from lrptrain.render.audit import BLUE, GREEN, GREY, RED, saved_plot

Batches = Sequence[Mapping[str, Tensor]]
UNIFORM_SHARE = 1e-3
"""Share of a uniform distribution that is mixed into maps: their divergence is infinite where one of them is 0."""
START_NOISE = 0.02
"""Noise on the weights at the start, in units of their standard deviation: two equal models have equal maps, and there
the divergence has no gradient."""


@register
@dataclass(frozen=True)
class AdversaryTest(AuditTest):
    """Train a model for the same predictions and other maps. A unit is a method and a strength, "rollout @ 0.1"."""

    name = "adversary"
    title = "trained adversary"
    order = 110
    needs_training_samples = True
    cost_setting = "adversary_steps"
    cost_grows_with_samples = False
    trial_settings = {"adversary_steps": 2, "frozen_steps": 4}
    unit_settings = ("strengths",)

    adversary_steps: int = setting(100, "Batches that an adversary is trained on.")
    frozen_steps: int = setting(300, "Batches that the token-wise model is trained on.")
    strengths: tuple[float, ...] = setting(
        (0.1, 1.0), "How much an adversary's maps are to differ, beside the same predictions: a weight of the loss."
    )

    def units(self, context: AuditContext) -> list[str]:
        """Return every differentiable method with every strength, attention first."""
        # A stable sort: only attention moves to the front, so that a small budget reaches it.
        methods = sorted(context.methods, key=lambda method: method != ATTENTION_METHOD)
        differentiable = [method for method in methods if get_method(method, {}).differentiable]
        return [f"{method} @ {strength:g}" for method in differentiable for strength in self.strengths]

    def run(self, context: AuditContext, unit: str) -> Values:
        """Return how far the adversary is from the model.

        `tvd`: total variation distance of the outputs, per sample. `jsd`: divergence of the maps, per sample. `right`:
        1 or 0 per labelled sample, whether a token-wise model is right that the adversary's maps weigh.
        """
        method, strength = parse_adversary(unit)
        adversary = train_adversary(
            context.model,
            [batch.batch for batch in context.train_batches],
            method,
            strength,
            steps=self.adversary_steps,
            seed=context.seed,
        )
        difference = compare_models(context.model, adversary, [batch.batch for batch in context.batches], method)
        maps = [explain_batch(adversary, batch, method) for batch in context.batches]
        train_maps = [explain_batch(adversary, batch, method) for batch in context.train_batches]
        return {
            "tvd": to_list(difference.tvd),
            "jsd": to_list(difference.jsd),
            "right": token_model_accuracy(context, self.frozen_steps, train_maps, maps),
        }

    def sentences(self, result: AuditResult) -> Iterator[str]:
        """Say for every method whether an adversary with the same predictions was found, and how its maps differ."""
        largest: dict[str, float | None] = {}
        for unit in result.measured_units(self.name):
            method, _ = parse_adversary(unit.unit)
            largest.setdefault(method, None)
            if np.mean(unit.values["tvd"]) <= LEAST_EFFECT:
                largest[method] = max(largest[method] or 0.0, float(np.nanmean(unit.values["jsd"])))
        for method, jsd in largest.items():
            if jsd is None:
                yield f"{method}: no adversary was found with the same output (mean TVD up to {LEAST_EFFECT})."
            else:
                yield (
                    f"{method}: an adversary with the same output (mean TVD up to {LEAST_EFFECT}) has maps that "
                    f"differ by a mean JSD of {jsd:.2f} (at most 0.69)."
                )

    def plot(self, result: AuditResult, folder: Path) -> None:
        """Save `adversary_<method>.png` per method: outputs against maps of adversaries and of other models."""
        uniform = result.values("uniform")
        for method, adversaries in adversary_differences(result).items():
            models = [each.values for each in result.measured_units("seeds")]
            plot_differences(
                folder / f"adversary_{method}.png",
                method,
                adversaries,
                seeds=[
                    _mean_point(values["tvd"], values["jsd"][method]) for values in models if method in values["jsd"]
                ],
                uniform=_mean_point(uniform["tvd"], uniform["jsd"]) if uniform and method == ATTENTION_METHOD else None,
            )


def parse_adversary(unit: str) -> tuple[str, float]:
    """Return the method and the strength of a unit of `AdversaryTest`."""
    method, _, strength = unit.partition(" @ ")
    return method, float(strength)


Point = tuple[float, float]
"""Mean TVD of the outputs, and mean JSD of the maps."""


def adversary_differences(result: AuditResult) -> dict[str, dict[float, Point]]:
    """Return by method and strength the mean TVD of the outputs and the mean JSD of the maps."""
    differences: dict[str, dict[float, Point]] = {}
    for unit in result.measured_units(AdversaryTest.name):
        method, strength = parse_adversary(unit.unit)
        differences.setdefault(method, {})[strength] = _mean_point(unit.values["tvd"], unit.values["jsd"])
    return differences


def _mean_point(tvd: Sequence[float], jsd: Sequence[float]) -> Point:
    return float(np.nanmean(tvd)), float(np.nanmean(jsd))


@dataclass(frozen=True)
class ModelDifference:
    """How far apart two models are, in their outputs and in how a method explains them.

    Attributes:
        tvd: Total variation distance of the class probabilities, per sample, in [0, 1].
        jsd: Jensen-Shannon divergence of the maps over the content tokens, per sample, in nats, in [0, ln 2].
        agreement: Share of samples with the same predicted class.
    """

    tvd: Float[Tensor, " samples"]
    jsd: Float[Tensor, " samples"]
    agreement: float


@dataclass(frozen=True)
class _Explained:
    """A model's output and map of a batch.

    Attributes:
        probabilities: Class probabilities.
        map: The map as a distribution over the content tokens.
        usable: The content tokens.
        target: The explained class.
    """

    probabilities: Float[Tensor, "batch classes"]
    map: Float[Tensor, "batch tokens"]
    usable: Bool[Tensor, "batch tokens"]
    target: Int[Tensor, " batch"]


def train_adversary(
    model: nn.Module,
    batches: Batches,
    method: str = "raw_attention",
    strength: float = 0.1,
    steps: int = 200,
    lr: float = 1e-4,
    seed: int = 0,
    start: nn.Module | None = None,
) -> nn.Module:
    """Train a model that predicts as another one does, with different maps.

    The loss is the mean over samples of TVD(y_a, y_b) - strength * KL(a || b): y are the class probabilities and a, b
    the maps, as distributions over the content tokens, of the class that the original model predicts (a small share of
    a uniform one keeps the divergence finite). Both models run in evaluation mode.

    Args:
        model: The original model; run in evaluation mode and left as it was.
        batches: Batches in the contract of `lrptrain.batch`, on the model's device; used again and again.
        method: The method of which the maps are to differ: any that can be differentiated.
        strength: Weight of the difference of the maps; 0 trains for the same predictions alone.
        steps: Number of batches to train on.
        lr: Learning rate of Adam (AMSGrad).
        seed: Seed of the noise that is added to the weights at the start.
        start: The model to start from, such as a newly initialised one; None for the original model. A copy is trained,
            all of its parameters.

    Returns:
        The trained copy, in evaluation mode.

    Raises:
        ValueError: If there are no batches.
        UnsupportedMethodError: If the method cannot be differentiated.
    """
    if not batches:
        raise ValueError("an adversary needs at least one batch to train on")
    adversary = _noisy_copy(model if start is None else start, seed)
    optimizer = torch.optim.Adam(adversary.parameters(), lr, amsgrad=True)
    originals: dict[int, _Explained] = {}  # by the index of the batch
    for step in range(steps):
        index = step % len(batches)
        # The original stays the same, so it is run once per batch.
        if index not in originals:
            originals[index] = _explain(model, model_inputs(model, batches[index]), method)
        with evaluating(adversary), torch.enable_grad():
            # A gradient through the map is a second-order one, of all weights.
            inputs = model_inputs(adversary, batches[index])
            loss = adversary_loss(adversary, inputs, method, originals[index], strength)
            parameters = [parameter for parameter in adversary.parameters() if parameter.requires_grad]
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        # A parameter that the map and the output do not depend on has no gradient, and Adam leaves it as it is.
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        # A single batch must not throw the weights far away.
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
    adversary.zero_grad(set_to_none=True)
    return adversary.eval()


def compare_models(model: nn.Module, other: nn.Module, batches: Batches, method: str) -> ModelDifference:
    """Return how far another model's outputs and maps are from a model's: an adversary's, or those of another seed.

    Args:
        model: The model that predicts the explained class, of both; left as it was.
        other: A model of the same tokens; left as it was.
        batches: Batches in the contract of `lrptrain.batch`, on the models' device.
        method: One of `lrptrain.methods()`; its maps are compared as distributions over the content tokens, by their
            positive part.

    Raises:
        ValueError: If there are no batches.
    """
    if not batches:
        raise ValueError("two models need at least one batch to be compared on")
    tvd = []
    jsd = []
    same_class = []
    for batch in batches:
        first = _explain(model, model_inputs(model, batch), method)
        # Both maps are of the class that the first model predicts: else they would differ with the prediction.
        second = _explain(other, model_inputs(other, batch), method, first.target)
        tvd.append(total_variation(first.probabilities, second.probabilities))
        jsd.append(jensen_shannon(first.map, second.map))
        same_class.append(first.probabilities.argmax(1) == second.probabilities.argmax(1))
    agreement = torch.cat(same_class).double().mean().item()
    return ModelDifference(torch.cat(tvd), torch.cat(jsd), agreement)


def adversary_loss(
    adversary: nn.Module, inputs: Inputs, method: str, original: _Explained, strength: float
) -> Float[Tensor, ""]:
    """Return what an adversary minimises; see `train_adversary`."""
    recording = record(adversary, inputs)
    scores = recording.attribute(original.target, method, create_graph=True).scores
    tvd = total_variation(class_probabilities(recording.output.tensor, dtype=None), original.probabilities)
    map_ = _mix_uniform(as_distribution(scores, original.usable), original.usable)
    divergence = kullback_leibler(map_, _mix_uniform(original.map, original.usable))
    return (tvd - strength * divergence).mean()


def _explain(model: nn.Module, inputs: Inputs, method: str, target: Target = None) -> _Explained:
    with evaluating(model) as model:
        recording = record(model, inputs)
        relevance = recording.attribute(target, method)
    usable = content_of_map(inputs, relevance.scores.shape[1])
    return _Explained(
        probabilities=class_probabilities(recording.logits, dtype=None),
        map=as_distribution(relevance.scores.detach(), usable),
        usable=usable,
        target=relevance.target,
    )


def _mix_uniform(p: Float[Tensor, "batch tokens"], usable: Bool[Tensor, "batch tokens"]) -> Tensor:
    return (1 - UNIFORM_SHARE) * p + UNIFORM_SHARE * as_distribution(torch.ones_like(p), usable)


@torch.no_grad()
def _noisy_copy(model: nn.Module, seed: int) -> nn.Module:
    """Return a trainable copy of the model with a little noise on its weights."""
    adversary = copy.deepcopy(unwrap(model)).eval()
    generator = torch.Generator().manual_seed(seed)
    for parameter in adversary.parameters():
        parameter.grad = None
        if parameter.is_floating_point():
            parameter.requires_grad_()
            # Drawn on the CPU, so that the noise does not depend on the device.
            noise = torch.randn(parameter.shape, generator=generator).to(parameter)
            parameter.add_(START_NOISE * parameter.std(correction=0) * noise)
    return adversary


def plot_differences(
    path: Path,
    method: str,
    adversaries: Mapping[float, Point],
    seeds: Sequence[Point] = (),
    uniform: Point | None = None,
) -> None:
    """Plot how far outputs and maps of other models are from the model's (Wiegreffe & Pinter 2019, figure 5).

    Args:
        path: The PNG file.
        method: The method that made the maps.
        adversaries: Mean TVD and mean JSD of adversaries, by strength.
        seeds: Mean TVD and mean JSD of models of other seeds.
        uniform: Mean TVD and mean JSD of the model with uniform attention.

    Raises:
        ImportError: Without matplotlib.
    """
    strengths = sorted(adversaries)
    tvd = [adversaries[strength][0] for strength in strengths]
    jsd = [adversaries[strength][1] for strength in strengths]
    with saved_plot(path, f"{method}: other maps with the same output?") as (_, axes):
        axes.plot(jsd, tvd, "-o", color=BLUE, linewidth=1, markersize=5, label="adversaries, by strength")
        for strength, x, y in zip(strengths, jsd, tvd, strict=True):
            axes.annotate(f"{strength:g}", (x, y), xytext=(5, 5), textcoords="offset points", fontsize=8, color=BLUE)
        if seeds:
            seed_tvd, seed_jsd = zip(*seeds, strict=True)
            axes.scatter(seed_jsd, seed_tvd, marker="^", s=30, color=GREEN, label="other seeds")
        if uniform is not None:
            axes.scatter(uniform[1], uniform[0], marker="s", s=34, color=RED, label="uniform attention")
        axes.axvline(math.log(2), color=GREY, linewidth=0.8, linestyle="--")  # the largest possible JSD
        axes.set(xlabel="mean JSD of the maps (dashed: the most there is)", ylabel="mean TVD of the outputs")
        points = [*adversaries.values(), *seeds, *([uniform] if uniform is not None else [])]
        top = max(0.1, *(point[0] for point in points))
        axes.set(xlim=(-0.02, 0.74), ylim=(-0.04 * top, 1.15 * top))
        axes.legend(frameon=False, fontsize="small", loc="best")
