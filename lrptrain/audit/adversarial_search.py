"""Is there another attention with the same prediction? It is searched for (Jain & Wallace 2019, section 4.2.2)."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lrptrain.audit.attention import evaluating
from lrptrain.audit.distances import class_probabilities, jensen_shannon
from lrptrain.audit.last_block import LastBlock, last_blocks
from lrptrain.relevance.recording import Inputs

SAME = 0.05
"""Mean change of the class probabilities up to which a prediction counts as the same."""


@dataclass(frozen=True)
class Adversarial:
    """The most different attention that was found with about the same prediction.

    Attributes:
        jsd: Its Jensen-Shannon divergence from the model's attention over the content tokens, in nats, at most ln 2; 0
            where no attention that was found leaves the prediction.
        change: Its mean change of the class probabilities; the smallest one that was found, where all are above 0.05.
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
    at_once: int = 64,
) -> Adversarial:
    """Search for attention that differs from the model's, and from each other, with the same prediction.

    Maximised is JSD(model's, own) + mean JSD(others, own) - penalty * relu(sum |dy| - allowed), summed over the copies,
    by AMSGrad on logits that start at 0 plus noise of standard deviation 3. An attention is one row over the content
    tokens, for all heads of the last block alike; see `lrptrain.audit.attention`. Only what follows that attention is
    computed again. A sample's result does not depend on its batch.

    Args:
        model: As for `lrptrain.attribute`; run in evaluation mode and left as it was.
        inputs: As for `lrptrain.attribute`.
        copies: Rows that are searched at once, per sample.
        steps: Of the optimiser; each costs a forward and backward pass of what follows, per copy.
        lr: Of the optimiser.
        allowed: Change of the class probabilities, summed over classes, that costs nothing.
        penalty: Of more change.
        seed: Of the start.
        at_once: Samples in one forward pass.

    Raises:
        ValueError: If a number is not positive.
        UnsupportedModelError: If the model has no attention that can be found.
    """
    if copies < 1 or steps < 1:
        raise ValueError(f"copies and steps must be 1 or more, not {copies} and {steps}")
    with evaluating(model) as model:
        parts = []
        for block in last_blocks(model, inputs, at_once):
            start = 3 * torch.randn(copies, block.usable.shape[1], generator=torch.Generator().manual_seed(seed))
            rows = _searched(block, start, steps, lr, allowed, penalty)
            parts.append(_most_different(block, rows))
    return Adversarial(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _searched(
    block: LastBlock, start: Float[Tensor, "copies tokens"], steps: int, lr: float, allowed: float, penalty: float
) -> Float[Tensor, "copies batch tokens"]:
    before = _before(block)
    found = start[:, None].to(block.map).repeat(1, len(block.map), 1).requires_grad_()
    optimizer = torch.optim.Adam([found], lr, amsgrad=True)
    for _ in range(steps):
        with torch.enable_grad():
            rows = _rows(found, block.usable)
            excess = ((_answers(block, rows) - before).abs().sum(-1) - allowed).relu()
            (found.grad,) = torch.autograd.grad((penalty * excess - _difference(block.map, rows)).sum(), found)
        optimizer.step()
    return _rows(found.detach(), block.usable)


@torch.no_grad()
def _most_different(block: LastBlock, rows: Float[Tensor, "copies batch tokens"]) -> tuple[Tensor, Tensor]:
    change = (_answers(block, rows) - _before(block)).abs().mean(-1)
    jsd = torch.where(change <= SAME, jensen_shannon(block.map.expand_as(rows), rows), 0)
    best, copy = jsd.max(0)
    least = change.amin(0)
    return best, torch.where(least <= SAME, change.gather(0, copy[None])[0], least)


@torch.no_grad()
def _before(block: LastBlock) -> Float[Tensor, "batch classes"]:
    return class_probabilities(block.logits(block.attention))


def _answers(block: LastBlock, rows: Float[Tensor, "copies batch tokens"]) -> Float[Tensor, "copies batch classes"]:
    return torch.stack([class_probabilities(block.logits(block.spread(block.placed(row)))) for row in rows])


def _rows(logits: Float[Tensor, "copies batch tokens"], usable: Bool[Tensor, "batch tokens"]) -> Tensor:
    """A softmax over the usable tokens; 0 where there are none."""
    none = ~usable.any(1, keepdim=True)
    return torch.where(usable, logits.masked_fill(~usable & ~none, -torch.inf).softmax(-1), 0)


def _difference(
    own: Float[Tensor, "batch tokens"], rows: Float[Tensor, "copies batch tokens"]
) -> Float[Tensor, "copies batch"]:
    """From the model's attention, and on average from the other copies (a row's distance to itself is 0)."""
    others = jensen_shannon(rows[:, None], rows[None]).sum(1) / max(len(rows) - 1, 1)
    return jensen_shannon(own.expand_as(rows), rows) + others
