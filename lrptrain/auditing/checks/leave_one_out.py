"""Whether a method ranks the tokens as leaving them out does (Jain & Wallace 2019, section 4.1)."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lrptrain.auditing.base import AuditTest, Check, Column, register
from lrptrain.auditing.brought import evaluation_with_gradients
from lrptrain.auditing.context import AuditContext, content_of_map
from lrptrain.auditing.score import Score
from lrptrain.auditing.store import Values, to_list
from lrptrain.batch.logits import class_probabilities
from lrptrain.extras import require
from lrptrain.relevance import record
from lrptrain.relevance.model.preserve import unwrap
from lrptrain.relevance.model.process_wide import eager
from lrptrain.relevance.output.outputs import read_logits
from lrptrain.relevance.passes.recording import Inputs, Recording
from lrptrain.relevance.passes.rerun import rerun, without
from lrptrain.relevance.propagation.propagator import at_least_float32


@register
class LeaveOneOutTest(AuditTest):
    """Correlate a method's map with the change of the output when a token is left out.

    That change says how much a token matters, not for which class: of signed maps the absolute value is compared.
    (For the method `leave_one_out` itself, the reference is the method.)
    """

    name = "leave_one_out"
    order = 30
    decides_verdict = True
    columns = (Column("tau, leave-one-out", values="tau", higher_is_better=True),)

    def run(self, context: AuditContext, unit: str) -> Values:
        """Return `tau`: Kendall's rank correlation (tau-b) over the content tokens of every sample."""
        changes = context.cached(  # which the methods share
            self.name, lambda: [changes_without(context.model, each.inputs) for each in context.batches]
        )
        correlations = [
            rank_association(relevance.scores.abs(), scores, content_of_map(batch.inputs, scores.shape[1]))
            for batch, relevance, scores in zip(context.batches, context.maps(unit), changes, strict=True)
        ]
        return {"tau": to_list(torch.cat(correlations))}

    def check(self, score: Score) -> Check:
        """Pass where the interval of tau lies above 0."""
        passed = score.low > 0
        verb = "agrees" if passed else "does not agree"
        return Check(passed, f"it {verb} with leave-one-out: tau {score}")


def changes_without(model: nn.Module, inputs: Inputs) -> Float[Tensor, "batch tokens"]:
    """Return by how much the answer changes without a token: the total variation distance of the class probabilities.

    Returns:
        Distances, where the token is taken away as the method `leave_one_out` does it; 0 at tokens that are no content.
    """
    model = unwrap(model)
    with evaluation_with_gradients(model), eager():
        return _changes(record(model, inputs), inputs)


@torch.no_grad()
def _changes(recording: Recording, inputs: Inputs) -> Float[Tensor, "batch tokens"]:
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
) -> Float[Tensor, " batch"]:
    """Return Kendall's tau-b of two maps over the usable tokens per sample.

    It is nan where either is constant or there are fewer than two usable tokens.
    """
    kendall = require("scipy.stats", "monitor").kendalltau
    maps = (scores.detach().cpu().double().numpy() for scores in (first, second))
    rows = zip(*maps, usable.cpu().numpy(), strict=True)
    # scipy's function takes two vectors, so this goes sample by sample.
    found = [kendall(a[mask], b[mask]).statistic if mask.sum() > 1 else torch.nan for a, b, mask in rows]
    return torch.tensor(found, dtype=torch.float64)
