"""What a map costs beside training on the same batch."""

import time
from statistics import median

import torch

from lrptrain.auditing.base import AuditTest, Column, register
from lrptrain.auditing.brought import predict_logits, synchronize, trainable
from lrptrain.auditing.context import AuditBatch, AuditContext
from lrptrain.auditing.store import Values


@register
class CostTest(AuditTest):
    """Take the time of the maps; no verdict rests on it."""

    name = "cost"
    order = 55
    columns = (Column("cost", values="cost", higher_is_better=False),)

    def run(self, context: AuditContext, unit: str) -> Values:
        """Return the time of a map.

        `cost`: in units of one forward and backward pass of the same batch, the median over batches. `seconds`: per
        sample.
        """
        # Relative to training on the same batch, a number that says more than seconds on one machine.
        passes = context.cached("training passes", lambda: _training_passes(context))
        seconds = context.seconds(unit)
        costs = [map_seconds / pass_seconds for map_seconds, pass_seconds in zip(seconds, passes, strict=True)]
        return {"cost": [median(costs)], "seconds": sum(seconds) / len(context)}


def _training_passes(context: AuditContext) -> list[float]:
    """Return the seconds of a forward and backward pass of every batch, of which the gradients are thrown away."""
    with trainable(context.model):
        # The faster of two runs: the first one may include what is done only once.
        return [min(_training_pass(context, batch) for _ in range(2)) for batch in context.batches]


def _training_pass(context: AuditContext, batch: AuditBatch) -> float:
    synchronize(batch.target.device)
    started = time.perf_counter()
    explained = predict_logits(context.model, batch.inputs).gather(1, batch.target[:, None]).sum()
    parameters = [parameter for parameter in context.model.parameters() if parameter.requires_grad]
    torch.autograd.grad(explained, parameters, allow_unused=True)
    synchronize(batch.target.device)
    return time.perf_counter() - started
