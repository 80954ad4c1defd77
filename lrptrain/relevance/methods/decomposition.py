"""Norm-based methods: how much of every token's new state comes from which token, rolled out over the blocks.

The forms differ in how far a block is followed; `lrptrain.decompose` gives the maps of every block:

attention_norm: The parts of the attention, || sum_h alpha_ij f^h(x_j) ||. They lack the residual: rolled out, rows are
    scaled to 1 and averaged with the identity, as in Abnar & Zuidema 2020. The other forms are rolled out without it.
attn_res_ln_norm: Attention, residual and norm of a post-LN block; "Atb" of Kobayashi et al. 2024.
atb_norm: Norm, attention and residual of a pre-LN block ("Atb").
atb_ff_norm: Atb, then the feed-forward block ("AtbFf"), which every part passes.
atb_ff_res_norm: Atb, the feed-forward block and its residual ("AtbFfRes").
atb_ff_res_ln_norm: Atb, the feed-forward block, its residual and norm: a post-LN block ("AtbFfResLn").

All take the same options:

start_layer: First block of the roll-out; negative numbers count from the end.
block: This block's own map, instead of the roll-out over all blocks.
project: Class-specific and signed: in the last block, contributions are not measured by their norm but projected on the
    classifier's row for the target, seen through what lies between; earlier blocks are rolled out.
"""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.relevance.decomposition.blocks import Block, transformer_blocks
from lrptrain.relevance.decomposition.contributions import Contributions
from lrptrain.relevance.explanation import Explanation
from lrptrain.relevance.methods.attention import pooled_row
from lrptrain.relevance.registry import RelevanceMaps, register_method
from lrptrain.relevance.tokens.attention_layers import check_block

# The papers of Kobayashi et al. that the forms come from.
_YEARS = {
    "attention_norm": 2020,
    "attn_res_ln_norm": 2021,
    **dict.fromkeys(("atb_norm", "atb_ff_norm", "atb_ff_res_norm", "atb_ff_res_ln_norm"), 2024),
}


def _decomposed(
    form: str, explanation: Explanation, start_layer: int = 0, block: int | None = None, project: bool = False
) -> RelevanceMaps:
    recording = explanation.recording
    blocks = transformer_blocks(recording)
    weights = recording.pooling
    if block is not None:
        if project or start_layer:
            raise ValueError("block=... asks for one block's own map; leave out start_layer and project")
        check_block(block, len(blocks))
        used = [blocks[block]]
    else:
        used = blocks[-len(recording.attention_layers.layers(start_layer)) :]
    for used_block in used:
        used_block.site(form)
    if project:
        row = _projected(explanation, used[-1], form)
        used = used[:-1]
    else:
        row = weights.to(recording.logits.dtype)
    for used_block in reversed(used):
        (norms,) = Contributions(recording, used_block).norms([used_block.site(form)])
        row = _rolled(row, norms, identity=form == "attention_norm" and block is None)
    return RelevanceMaps(recording.layout.content(row))


def _rolled(
    row: Float[Tensor, "batch length"], norms: Float[Tensor, "batch length length"], *, identity: bool
) -> Float[Tensor, "batch length"]:
    """One step of the roll-out, later blocks on the left; a form without the residual gets the identity."""
    total = norms.sum(-1)
    row = row.to(norms.dtype)
    passed = pooled_row(row / torch.where(total == 0, 1.0, total), norms)
    return (row + passed) / 2 if identity else passed


def _projected(explanation: Explanation, block: Block, form: str) -> Float[Tensor, "batch length"]:
    """What every token contributes to the explained logit in the last block.

    The attention's parts enter the residual stream behind the block's first norm where that follows the sum (post-LN).
    The parts of the last form are those of the one before, seen through a norm that the projection holds fixed.
    """
    contributions = Contributions(explanation.recording, block)
    if form in ("atb_ff_res_norm", "atb_ff_res_ln_norm"):
        return contributions.shares(explanation, block.stream, block.stream, residual=True)
    if form == "attention_norm":
        entering = block.sites.get("attn_res_ln_norm", block.sites.get("atb_norm", block.stream))
        return contributions.shares(explanation, entering, block.stream, residual=False)
    return contributions.shares(explanation, block.site(form), block.stream, residual=True)


for _form, _year in _YEARS.items():
    register_method(
        partial(_decomposed, _form),
        name=_form,
        class_specific=False,
        signed=False,
        source=f"Kobayashi et al. {_year}",
    )
