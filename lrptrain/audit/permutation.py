"""Does it matter which token has which weight? They are shuffled (Jain & Wallace 2019, section 4.2.1)."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lrptrain.audit.attention import evaluating
from lrptrain.audit.distances import class_probabilities, total_variation
from lrptrain.audit.last_block import LastBlock, last_blocks
from lrptrain.relevance.recording import Inputs


@dataclass(frozen=True)
class Permutation:
    """What shuffling the attention weights does.

    Attributes:
        median_tvd: Of the output distributions before and after, over the shuffles; in [0, 1].
        largest_weight: Of the attention over the content tokens, in [0, 1]: if one token has it all, a shuffle should
            matter.
    """

    median_tvd: Float[Tensor, " batch"]
    largest_weight: Float[Tensor, " batch"]


def permuted_attention(
    model: nn.Module, inputs: Inputs, shuffles: int = 100, seed: int = 0, at_once: int = 64
) -> Permutation:
    """Shuffle the weights that the classifier's row of the last block gives the content tokens.

    All heads are shuffled alike. See `lrptrain.audit.attention` for which attention this is. Only what follows that
    attention is computed again. A sample's result does not depend on its batch.

    Args:
        model: As for `lrptrain.attribute`; run in evaluation mode and left as it was.
        inputs: As for `lrptrain.attribute`.
        shuffles: How many.
        seed: Of the shuffles.
        at_once: Samples in one forward pass.

    Raises:
        ValueError: If `shuffles` or `at_once` is not positive.
        UnsupportedModelError: If the model has no attention that can be found.
    """
    if shuffles < 1:
        raise ValueError(f"shuffles must be 1 or more, not {shuffles}")
    with evaluating(model) as model:
        parts = [_permuted(block, shuffles, seed) for block in last_blocks(model, inputs, at_once)]
    return Permutation(*(torch.cat(column) for column in zip(*parts, strict=True)))


@torch.no_grad()
def _permuted(block: LastBlock, shuffles: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    own = block.attention
    before = class_probabilities(block.logits(own))
    found = []
    for _ in range(shuffles):
        keys = torch.rand(own.shape[-1], generator=generator, dtype=torch.float64)
        order = shuffled(block.content, keys.to(own.device))
        weights = own.gather(-1, order[:, None, None].expand_as(own))
        found.append(total_variation(before, class_probabilities(block.logits(block.spread(weights)))))
    return torch.stack(found).quantile(0.5, 0), block.map.amax(1)


def shuffled(content: Bool[Tensor, "batch length"], keys: Float[Tensor, " length"]) -> Int[Tensor, "batch length"]:
    """Which token's weight comes to each place: the content tokens change places by the order of the keys."""
    places = (~content).to(torch.uint8).argsort(dim=1, stable=True)  # the content tokens first
    drawn = torch.where(content, keys, torch.inf).argsort(dim=1, stable=True)
    return torch.empty_like(places).scatter(1, places, drawn)
