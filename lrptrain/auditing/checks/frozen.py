"""Whether a method's maps are of use to another model, which they weigh single tokens for.

Wiegreffe & Pinter 2019, section 3.4, "diagnosing attention distributions by guiding simpler models".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lrptrain.auditing.base import AuditTest, Column, register, setting
from lrptrain.auditing.context import AuditContext
from lrptrain.auditing.result import AuditResult
from lrptrain.auditing.score import summarize
from lrptrain.auditing.store import Values
from lrptrain.auditing.token_model import token_model_accuracy

UNIFORM = "uniform"
LEARNED = "learned"
"""Weights of the token-wise model that come from no map."""


@register
@dataclass(frozen=True)
class FrozenWeightsTest(AuditTest):
    """Train a model of single tokens whose weights are a method's maps: weights that hold information help it."""

    name = "frozen"
    title = "maps as weights of a token-wise model"
    order = 90
    column = Column(
        "in a token-wise model",
        values="right",
        higher_is_better=True,
        description="accuracy of a token-wise model that its maps weigh",
        range=(0.0, 1.0),
    )
    needs_training_samples = True
    cost_setting = "frozen_steps"
    cost_grows_with_samples = False
    trial_settings = {"frozen_steps": 4}

    frozen_steps: int = setting(300, "Batches that the token-wise model is trained on.")

    def units(self, context: AuditContext) -> Sequence[str]:
        """Return the weights: uniform ones, ones that the model learns itself, and the methods' maps."""
        return (UNIFORM, LEARNED, *context.methods)

    def run(self, context: AuditContext, unit: str) -> Values:
        """Return `right`: 1 or 0 per labelled sample, whether the token-wise model with these weights is right."""
        steps = self.frozen_steps
        if unit in (UNIFORM, LEARNED):
            return {"right": token_model_accuracy(context, steps, learned=unit == LEARNED)}
        return {"right": token_model_accuracy(context, steps, context.train_maps(unit), context.maps(unit))}

    def sentences(self, result: AuditResult) -> Iterator[str]:
        """Say how the weights do beside uniform ones."""
        scores = {each.unit: summarize(each.values["right"]) for each in result.measured_units(self.name)}
        # Uniform weights are what the others are compared with.
        uniform = scores.pop(UNIFORM, None)
        if uniform is not None and scores:
            others = ", ".join(f"{name} {score.value:.0%}" for name, score in scores.items())
            yield (
                f"A model of single tokens classifies {uniform.value:.0%} of the samples correctly with uniform "
                f"weights; with the weights of: {others}. (Maps of the predicted class can reveal that class.)"
            )
