"""Does it matter which token has which attention weight? They are shuffled (Jain & Wallace 2019, section 4.2.1)."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lrptrain.auditing.attention import evaluating
from lrptrain.auditing.base import AuditTest, register, setting
from lrptrain.auditing.context import AuditContext
from lrptrain.auditing.distances import total_variation
from lrptrain.auditing.last_block import LastBlock, last_blocks
from lrptrain.auditing.result import AuditResult
from lrptrain.auditing.score import summarize
from lrptrain.auditing.store import Values, to_list
from lrptrain.batch.logits import class_probabilities
from lrptrain.batch.matters import LEAST_EFFECT
from lrptrain.relevance.passes.recording import Inputs
from lrptrain.render.audit import BLUE, RED, saved_plot


@register
@dataclass(frozen=True)
class PermutationTest(AuditTest):
    """Shuffle the attention weights of the last block: does the output change?"""

    name = "permutation"
    title = "permuted attention"
    order = 70
    cost_setting = "shuffles"
    trial_settings = {"shuffles": 4}

    shuffles: int = setting(100, "How often the attention weights are shuffled.")

    def run(self, context: AuditContext, unit: str) -> Values:
        """Return `median_tvd` of the outputs over shuffles, and the `largest_weight` of the attention; per sample."""
        effects = [
            permuted_attention(context.model, batch.inputs, self.shuffles, context.seed) for batch in context.batches
        ]
        return {
            "median_tvd": to_list(torch.cat([effect.median_tvd for effect in effects])),
            "largest_weight": to_list(torch.cat([effect.largest_weight for effect in effects])),
        }

    def sentences(self, result: AuditResult) -> Iterator[str]:
        """Say how far the output changes, and what that means."""
        values = result.values(self.name)
        if values:
            tvd = summarize(values["median_tvd"])
            matters = "it hardly matters" if tvd.high < LEAST_EFFECT else "it matters"
            yield (
                f"Shuffling the last block's attention over the content tokens changes the output by a TVD of {tvd} "
                f"(median over shuffles, mean over samples): {matters} which token has which weight."
            )

    def plot(self, result: AuditResult, folder: Path) -> None:
        """Save `permutation.png`: how far the output changes, against the largest weight."""
        values = result.values(self.name)
        if values:
            plot_permutation(
                folder / "permutation.png", np.array(values["largest_weight"]), np.array(values["median_tvd"])
            )


@dataclass(frozen=True)
class PermutationEffect:
    """What shuffling the attention weights does.

    Attributes:
        median_tvd: Total variation distance of the output before and after, median over the shuffles; in [0, 1].
        largest_weight: Largest share of a content token in the attention, in [0, 1]: if one token has all of it, a
            shuffle should matter.
    """

    median_tvd: Float[Tensor, " batch"]
    largest_weight: Float[Tensor, " batch"]


def permuted_attention(
    model: nn.Module, inputs: Inputs, shuffles: int = 100, seed: int = 0, batch_size: int = 64
) -> PermutationEffect:
    """Shuffle the weights that the classifier's row of the last block gives the content tokens.

    All heads are shuffled alike. See `lrptrain.auditing.attention` for which attention this is. Only what follows that
    attention is computed again. A sample's result does not depend on its batch.

    Args:
        model: As for `lrptrain.attribute`; run in evaluation mode and left as it was.
        inputs: As for `lrptrain.attribute`.
        shuffles: Number of shuffles.
        seed: Seed of the shuffles.
        batch_size: Samples in one forward pass.

    Raises:
        ValueError: If `shuffles` or `batch_size` is not positive.
        UnsupportedModelError: If the model has no attention that can be found.
    """
    if shuffles < 1:
        raise ValueError(f"shuffles must be 1 or more, not {shuffles}")
    with evaluating(model) as model:
        effects = [_permute(block, shuffles, seed) for block in last_blocks(model, inputs, batch_size)]
    return PermutationEffect(
        median_tvd=torch.cat([effect.median_tvd for effect in effects]),
        largest_weight=torch.cat([effect.largest_weight for effect in effects]),
    )


@torch.no_grad()
def _permute(block: LastBlock, shuffles: int, seed: int) -> PermutationEffect:
    generator = torch.Generator().manual_seed(seed)
    attention = block.attention
    before = class_probabilities(block.logits(attention), dtype=None)
    distances = []
    for _ in range(shuffles):
        # One key per place, the same for all samples: so a sample's shuffle does not depend on its batch.
        keys = torch.rand(attention.shape[-1], generator=generator, dtype=torch.float64)
        order = shuffled_places(block.content, keys.to(attention.device))
        # All heads and rows [batch, heads, length, length] by the same order of the last axis.
        weights = attention.gather(-1, order[:, None, None].expand_as(attention))
        after = class_probabilities(block.logits(block.reweighted(weights)), dtype=None)
        distances.append(total_variation(before, after))
    return PermutationEffect(torch.stack(distances).quantile(0.5, 0), block.map.amax(1))


def shuffled_places(
    content: Bool[Tensor, "batch length"], keys: Float[Tensor, " length"]
) -> Int[Tensor, "batch length"]:
    """Return from which place each place gets its weight: the content tokens change places by the order of the keys.

    With content [no, yes, yes, yes, no] and keys [.5, .9, .1, .4, .2] the result is [0, 2, 3, 1, 4].
    """
    places = (~content).to(torch.uint8).argsort(dim=1, stable=True)  # the content tokens first
    sources = torch.where(content, keys, torch.inf).argsort(dim=1, stable=True)  # the same, in the order of the keys
    return torch.empty_like(places).scatter(1, places, sources)


def plot_permutation(
    path: Path, largest_weight: Float[np.ndarray, " samples"], median_tvd: Float[np.ndarray, " samples"]
) -> None:
    """Save a plot of how far the output changes under shuffled attention, against the largest weight.

    Raises:
        ImportError: Without matplotlib.
    """
    with saved_plot(path, "Last block's attention, shuffled") as (_, axes):
        axes.scatter(largest_weight, median_tvd, s=16, color=BLUE, alpha=0.6, linewidths=0)
        for low, high in pairwise(np.linspace(0, 1, 5)):
            inside = median_tvd[(largest_weight > low) & (largest_weight <= high)]
            if len(inside):
                axes.hlines(np.median(inside), low, high, color=RED, linewidth=2)
        axes.plot([], [], color=RED, linewidth=2, label="median of a quarter of the range")
        axes.legend(frameon=False, fontsize="small", loc="best")
        axes.set(xlabel="largest attention weight", ylabel="median TVD of the output over shuffles")
        axes.set(xlim=(0, 1), ylim=(-0.02, 1.02))
