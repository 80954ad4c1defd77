"""What the trained model predicts when its attention says nothing (Wiegreffe & Pinter 2019, section 3.1)."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from lrptrain.auditing.attention import ATTENTION_METHOD, content_of_map, evaluating, record_replaced, uniform_rows
from lrptrain.auditing.base import AuditTest, register
from lrptrain.auditing.context import AuditContext, correct_predictions
from lrptrain.auditing.distances import as_distribution, jensen_shannon, total_variation
from lrptrain.auditing.result import AuditResult
from lrptrain.auditing.score import summarize
from lrptrain.auditing.store import Values, to_list
from lrptrain.batch.logits import class_probabilities
from lrptrain.batch.matters import LEAST_EFFECT
from lrptrain.relevance.passes.recording import Inputs


@register
class UniformAttentionTest(AuditTest):
    """Run the trained model with uniform attention everywhere: does it need its attention at all?"""

    name = "uniform"
    title = "uniform attention"
    order = 10

    def run(self, context: AuditContext, unit: str) -> Values:
        """Return what uniform attention changes.

        `right`, `right_uniform`, `same`: 1 or 0 per sample, whether the model is right, whether it is so with uniform
        attention (both of samples with a label only), and whether the prediction stays. `tvd`: total variation distance
        of the outputs. `jsd`: divergence of the attention map from the uniform one.
        """
        logits = torch.cat([uniform_attention_logits(context.model, batch.inputs) for batch in context.batches])
        tvd = total_variation(class_probabilities(context.logits, dtype=None), class_probabilities(logits, dtype=None))
        jsd = []
        # How far the attention was from uniform: where it was so anyway, nothing is lost.
        for batch, relevance in zip(context.batches, context.maps(ATTENTION_METHOD), strict=True):
            usable = content_of_map(batch.inputs, relevance.scores.shape[1])
            uniform = as_distribution(torch.zeros_like(relevance.scores), usable)
            jsd.append(jensen_shannon(as_distribution(relevance.scores, usable), uniform))
        return {
            "right": correct_predictions(context.logits, context.label),
            "right_uniform": correct_predictions(logits, context.label),
            "same": to_list((context.logits.argmax(1) == logits.argmax(1)).float()),
            "tvd": to_list(tvd),
            "jsd": to_list(torch.cat(jsd)),
        }

    def sentences(self, result: AuditResult) -> Iterator[str]:
        """Say what the model loses without attention, and what that means."""
        values = result.values(self.name)
        if not values:
            return
        start = "With uniform attention in every block the model"
        if not values["right"]:
            yield f"{start} keeps {np.mean(values['same']):.0%} of its predictions."
            return
        # Per sample -1, 0 or 1, so that the interval is that of paired answers.
        differences = [before - after for before, after in zip(values["right"], values["right_uniform"], strict=True)]
        loss = summarize(differences)
        if loss.high < LEAST_EFFECT:
            meaning = "it does not need its attention weights here, so whether they explain its predictions is moot"
        elif loss.low > 0:
            meaning = "it needs its attention"
        else:
            meaning = "there are too few samples to tell whether it needs its attention"
        yield (
            f"{start} classifies {np.mean(values['right_uniform']):.0%} of the samples correctly instead of "
            f"{np.mean(values['right']):.0%} (loss {loss}): {meaning}."
        )


def uniform_attention_logits(model: nn.Module, inputs: Inputs) -> Float[Tensor, "batch classes"]:
    """Return the logits with every attention row of every block and head uniform over the keys that it may attend to.

    Wiegreffe & Pinter 2019, section 3.1: where the accuracy does not fall, attention does not matter for the task, and
    whether it explains the model is moot. (They train a model that way; here the trained model is run that way.)

    Args:
        model: As for `lrptrain.attribute`; run in evaluation mode and left as it was.
        inputs: As for `lrptrain.attribute`.

    Raises:
        UnsupportedModelError: If the model's attention cannot be found.
    """
    with evaluating(model) as model:
        return record_replaced(model, inputs, uniform_rows).logits.detach()
