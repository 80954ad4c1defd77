"""Is there other attention with the same prediction? It is searched for (Jain & Wallace 2019, section 4.2.2)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lrptrain.auditing.attention import evaluating
from lrptrain.auditing.base import AuditTest, register, setting
from lrptrain.auditing.context import AuditContext
from lrptrain.auditing.distances import DIFFERENT_MAP_JSD, jensen_shannon
from lrptrain.auditing.last_block import LastBlock, last_blocks
from lrptrain.auditing.result import AuditResult
from lrptrain.auditing.score import summarize
from lrptrain.auditing.store import Values, to_list
from lrptrain.batch.logits import class_probabilities
from lrptrain.batch.matters import LEAST_EFFECT
from lrptrain.relevance.passes.recording import Inputs


@register
@dataclass(frozen=True)
class AdversarialAttentionTest(AuditTest):
    """Search for other attention in the last block that leaves the prediction as it is."""

    name = "adversarial"
    title = "adversarial attention"
    order = 80
    cost_setting = "search_steps"
    trial_settings = {"search_steps": 4}

    search_copies: int = setting(5, "How many attention rows are searched for at once.")
    search_steps: int = setting(500, "Optimisation steps of the search.")

    def run(self, context: AuditContext, unit: str) -> Values:
        """Return `jsd` of the most different attention that leaves the prediction, and the output's `change`."""
        attentions = [
            adversarial_attention(
                context.model,
                batch.inputs,
                copies=self.search_copies,
                steps=self.search_steps,
                seed=context.seed,
            )
            for batch in context.batches
        ]
        return {
            "jsd": to_list(torch.cat([attention.jsd for attention in attentions])),
            "change": to_list(torch.cat([attention.change for attention in attentions])),
        }

    def sentences(self, result: AuditResult) -> Iterator[str]:
        """Say for how many samples there is other attention, and how different it is."""
        values = result.values(self.name)
        if values:
            share = float(np.mean(np.array(values["jsd"]) > DIFFERENT_MAP_JSD))
            yield (
                f"For {share:.0%} of the samples the search found other attention in the last block (JSD above "
                f"{DIFFERENT_MAP_JSD}) with the same prediction; mean JSD {summarize(values['jsd'])} of at most 0.69."
            )


@dataclass(frozen=True)
class AdversarialAttention:
    """The most different attention that the search found with about the same prediction.

    Attributes:
        jsd: Its Jensen-Shannon divergence from the model's attention over the content tokens, in nats, at most ln 2; 0
            where no attention that was found leaves the prediction.
        change: Its mean change of the class probabilities; the smallest one of all copies, where all are above
            `LEAST_EFFECT`.
    """

    jsd: Float[Tensor, " batch"]
    change: Float[Tensor, " batch"]


def adversarial_attention(
    model: nn.Module,
    inputs: Inputs,
    copies: int = 5,
    steps: int = 500,
    lr: float = 0.01,
    allowed: float = 0.01,
    penalty: float = 500.0,
    seed: int = 0,
    batch_size: int = 64,
) -> AdversarialAttention:
    """Search for attention rows that differ from the model's, and from each other, with the same prediction.

    AMSGrad maximises JSD(model's, row) + mean JSD(other rows, row) - penalty * relu(sum |dy| - allowed), summed over
    the copies, on logits that start at 0 plus noise of standard deviation 3. An attention is one row over the content
    tokens, for all heads of the last block alike (`lrptrain.auditing.attention`). Only what follows that attention is
    computed again. A sample's result does not depend on its batch.

    Args:
        model: As for `lrptrain.attribute`; run in evaluation mode and left as it was.
        inputs: As for `lrptrain.attribute`.
        copies: Rows that are searched for at once, per sample.
        steps: Steps of the optimiser; each costs a forward and backward pass of what follows, per copy.
        lr: Learning rate.
        allowed: Change of the class probabilities, summed over classes, that is not penalised.
        penalty: Weight of a larger change.
        seed: Seed of the start.
        batch_size: Samples in one forward pass.

    Raises:
        ValueError: If a number is not positive.
        UnsupportedModelError: If the model has no attention that can be found.
    """
    if copies < 1 or steps < 1:
        raise ValueError(f"copies and steps must be 1 or more, not {copies} and {steps}")
    with evaluating(model) as model:
        results = []
        for block in last_blocks(model, inputs, batch_size):
            generator = torch.Generator().manual_seed(seed)
            start = 3 * torch.randn(copies, block.usable.shape[1], generator=generator)
            rows = _search(block, start, steps, lr, allowed, penalty)
            results.append(_most_different(block, rows))
    return AdversarialAttention(
        jsd=torch.cat([result.jsd for result in results]), change=torch.cat([result.change for result in results])
    )


def _search(
    block: LastBlock, start: Float[Tensor, "copies tokens"], steps: int, lr: float, allowed: float, penalty: float
) -> Float[Tensor, "copies batch tokens"]:
    before = _original_probabilities(block)
    # Every sample starts from the same noise: [copies, 1, tokens] -> [copies, batch, tokens].
    logits = start[:, None].to(block.map).repeat(1, len(block.map), 1).requires_grad_()
    optimizer = torch.optim.Adam([logits], lr, amsgrad=True)
    for _ in range(steps):
        with torch.enable_grad():
            rows = _masked_softmax(logits, block.usable)
            excess = ((_probabilities(block, rows) - before).abs().sum(-1) - allowed).relu()
            loss = (penalty * excess - _divergence(block.map, rows)).sum()
            # For the rows alone: the model's weights get no gradient.
            (logits.grad,) = torch.autograd.grad(loss, logits)
        optimizer.step()
    return _masked_softmax(logits.detach(), block.usable)


@torch.no_grad()
def _most_different(block: LastBlock, rows: Float[Tensor, "copies batch tokens"]) -> AdversarialAttention:
    change = (_probabilities(block, rows) - _original_probabilities(block)).abs().mean(-1)  # [copies, batch]
    jsd = torch.where(change <= LEAST_EFFECT, jensen_shannon(block.map.expand_as(rows), rows), 0)
    # A copy that changed the prediction counts as no different attention, its JSD as 0.
    largest, copy = jsd.max(0)
    smallest_change = change.amin(0)
    change_of_copy = change.gather(0, copy[None])[0]
    return AdversarialAttention(
        jsd=largest, change=torch.where(smallest_change <= LEAST_EFFECT, change_of_copy, smallest_change)
    )


@torch.no_grad()
def _original_probabilities(block: LastBlock) -> Float[Tensor, "batch classes"]:
    return class_probabilities(block.logits(block.attention), dtype=None)


def _probabilities(
    block: LastBlock, rows: Float[Tensor, "copies batch tokens"]
) -> Float[Tensor, "copies batch classes"]:
    return torch.stack(
        [class_probabilities(block.logits(block.reweighted(block.in_sequence(row))), dtype=None) for row in rows]
    )


def _masked_softmax(
    logits: Float[Tensor, "copies batch tokens"], usable: Bool[Tensor, "batch tokens"]
) -> Float[Tensor, "copies batch tokens"]:
    """Return a softmax over the usable tokens; 0 where there are none."""
    has_none = ~usable.any(1, keepdim=True)
    return torch.where(usable, logits.masked_fill(~usable & ~has_none, -torch.inf).softmax(-1), 0)


def _divergence(
    attention: Float[Tensor, "batch tokens"], rows: Float[Tensor, "copies batch tokens"]
) -> Float[Tensor, "copies batch"]:
    """Return the JSD from the model's attention plus the mean JSD from the other copies."""
    # [copies, 1, batch, tokens] and [1, copies, batch, tokens]; a row's distance to itself is 0.
    others = jensen_shannon(rows[:, None], rows[None]).sum(1) / max(len(rows) - 1, 1)
    return jensen_shannon(attention.expand_as(rows), rows) + others
