"""Does a map rank the tokens as other evidence does? (Jain & Wallace 2019, section 4.1)."""

from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lrptrain.auditing.attention import content_of_map, evaluating, record_replaced
from lrptrain.auditing.base import AuditTest
from lrptrain.auditing.context import AuditContext
from lrptrain.auditing.store import Values, to_list
from lrptrain.batch.logits import class_probabilities
from lrptrain.extras import require
from lrptrain.relevance import record
from lrptrain.relevance.output.outputs import read_logits
from lrptrain.relevance.passes.recording import Inputs, Recording, Target
from lrptrain.relevance.passes.rerun import rerun, without
from lrptrain.relevance.propagation.propagator import at_least_float32

Reference = Literal["gradient", "leave_one_out"]


class CorrelationTest(AuditTest):
    """Correlate a method's map with a reference, over the content tokens of every sample.

    A reference says how much a token matters, not for which class: of signed maps the absolute value is compared.
    """

    name: ClassVar[Reference]

    def run(self, context: AuditContext, unit: str) -> Values:
        """Return `tau` and `p_value`: Kendall's rank correlation (tau-b) per sample, and that there is none."""
        references = context.cached(  # which the methods share
            self.name,
            lambda: [reference_scores(context.model, each.inputs, each.target, self.name) for each in context.batches],
        )
        correlations = [
            rank_association(relevance.scores.abs(), scores, content_of_map(batch.inputs, scores.shape[1]))
            for batch, relevance, scores in zip(context.batches, context.maps(unit), references, strict=True)
        ]
        tau, p_value = (to_list(torch.cat(column)) for column in zip(*correlations, strict=True))
        return {"tau": tau, "p_value": p_value}


def reference_scores(
    model: nn.Module, inputs: Inputs, target: Target, reference: Reference
) -> Float[Tensor, "batch tokens"]:
    """Return how much every token matters, by other evidence than a map.

    Args:
        model: As for `lrptrain.attribute`; run in evaluation mode and left as it was.
        inputs: As for `lrptrain.attribute`.
        target: The class of which the logit is differentiated; None for the predicted one.
        reference: "gradient": |sum of gradient * input over the token's features|, with attention held fixed in the
            backward pass. "leave_one_out": total variation distance of the class probabilities when the token is taken
            away as the method `leave_one_out` does it; 0 at tokens that are not content.
    """
    with evaluating(model) as model:
        if reference == "leave_one_out":
            return _leave_one_out(record(model, inputs), inputs)
        fixed_attention = record_replaced(model, inputs, lambda _, attention: _without_gradient(attention))
        return fixed_attention.attribute(target, "input_x_gradient").scores.detach().abs()


def _without_gradient(x: Tensor) -> Tensor:
    """The same numbers, through which no gradient passes; `detach` alone would leave a gap in a recording."""
    return x - (x - x.detach())


@torch.no_grad()
def _leave_one_out(recording: Recording, inputs: Inputs) -> Float[Tensor, "batch tokens"]:
    tokens = recording.explained.tokens
    usable = content_of_map(inputs, tokens)
    index = torch.arange(tokens, device=usable.device)
    sample = torch.arange(len(usable), device=usable.device)
    # A run is a pair (sample, token that is left out). The first runs, with token -1, leave nothing out:
    # [[0, -1], [1, -1], [0, 1], [0, 2], [1, 1], ...]
    complete = torch.stack([sample, torch.full_like(sample, -1)], 1)
    runs = torch.cat([complete, usable.nonzero()])
    probabilities = torch.cat([_probabilities(recording, index != part[:, 1:], part[:, 0]) for part in runs.split(64)])
    # The first rows are the complete inputs, one per sample: [batch, classes], and the rest [runs, classes].
    before, after = probabilities.tensor_split([len(usable)])
    # Their total variation.
    distance = (at_least_float32(before[runs[len(usable) :, 0]]) - at_least_float32(after)).abs().sum(1) / 2
    return distance.new_zeros(usable.shape).masked_scatter(usable, distance)


def _probabilities(
    recording: Recording, keep: Bool[Tensor, "runs tokens"], rows: Int[Tensor, " runs"]
) -> Float[Tensor, "runs classes"]:
    assert recording.tape.leaf is not None
    values, mask = without(recording, recording.tape.leaf.detach(), keep, rows)
    return class_probabilities(read_logits(rerun(recording, values, rows, mask), len(rows)), dtype=None)


def rank_association(
    first: Float[Tensor, "batch tokens"], second: Float[Tensor, "batch tokens"], usable: Bool[Tensor, "batch tokens"]
) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
    """Return Kendall's tau-b of two maps over the usable tokens per sample, and the p-value of no association.

    They are nan where either is constant or there are fewer than two usable tokens.
    """
    kendall = require("scipy.stats", "monitor").kendalltau
    maps = (scores.detach().cpu().double().numpy() for scores in (first, second))
    rows = zip(*maps, usable.cpu().numpy(), strict=True)
    # scipy's function takes two vectors, so this goes sample by sample.
    results = [kendall(a[mask], b[mask]) if mask.sum() > 1 else (torch.nan, torch.nan) for a, b, mask in rows]
    tau, p_value = torch.tensor([tuple(result) for result in results], dtype=torch.float64).reshape(-1, 2).T
    return tau, p_value
