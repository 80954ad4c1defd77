"""Methods by layer-wise relevance propagation: transformer attribution, partial LRP, LRP to the input."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.relevance.composites import ALPHA_BETA, CHEFER
from lrptrain.relevance.explanation import Explanation
from lrptrain.relevance.methods.attention import accumulate, chosen, pooled_row, with_identity
from lrptrain.relevance.methods.input_maps import input_maps
from lrptrain.relevance.registry import Maps, method, unknown

COMPOSITES = {"alpha_beta": ALPHA_BETA, "chefer": CHEFER}


def _row_weights(weights: Float[Tensor, "batch length"], pooling: Tensor) -> Float[Tensor, "batch length"]:
    """Relevance that arrives at the pooled tokens, scaled to sum 1; the pooling's own weights where none arrives."""
    total = weights.sum(-1, keepdim=True)
    return torch.where(total.abs() > 0, weights / total, pooling.to(weights.dtype))


@method(class_specific=True, signed=False, source="Chefer et al. 2021 (CVPR)")
def transformer_attribution(
    explanation: Explanation, start_layer: int = 0, normalize_rows: bool = False, keep_attention: bool = False
) -> Maps:
    """Transformer attribution (Chefer, Gur, Wolf, CVPR 2021): gradient times relevance of every block's attention.

    Args:
        explanation: The forward pass and the target.
        start_layer: First block used; the segmentation test of the paper skips the first (1), its BERT code uses only
            the last (-1).
        normalize_rows: Scale the rows of every block's map to 1, as the paper's BERT code does.
        keep_attention: Return the relevance at the attention of every block, from the first on.
    """
    recording = explanation.recording
    wanted = chosen(recording.blocks, 0 if keep_attention else start_layer)
    *blocks, states = explanation.relevance(CHEFER, [*wanted, recording.token_output])
    attention = [recording.per_head(block, part) for block, part in zip(wanted, blocks, strict=True)]
    used = chosen(attention, start_layer) if keep_attention else attention
    gradients = chosen(explanation.attention_gradient, start_layer)
    maps = torch.stack([(g * r).clamp(min=0).mean(1) for g, r in zip(gradients, used, strict=True)])
    rolled = accumulate(with_identity(maps, normalize_rows=normalize_rows))
    arrived = recording.walk.per_token(recording.token_output, states, recording.length)
    row = pooled_row(_row_weights(arrived, recording.pooling), rolled)
    return Maps(recording.layout.content(row), attention=tuple(attention) if keep_attention else None)


@method(class_specific=True, signed=False, source="Voita et al. 2019")
def partial_lrp(explanation: Explanation) -> Maps:
    """Partial LRP (Voita et al. 2019, as in Chefer et al. 2021): relevance of the last block's attention."""
    recording = explanation.recording
    last = recording.blocks[-1]
    (relevance,) = explanation.relevance(ALPHA_BETA, [last])
    maps = recording.per_head(last, relevance).clamp(min=0).mean(1)
    return Maps(recording.layout.content(pooled_row(recording.pooling, maps)))


@method(class_specific=True, signed=True, reaches_input=True, source="Bach et al. 2015")
def lrp(explanation: Explanation, composite: Literal["alpha_beta", "chefer"] = "alpha_beta") -> Maps:
    """Layer-wise relevance propagation down to the pixels, or to the sum of embeddings that a text's encoder reads.

    Args:
        explanation: The forward pass and the target.
        composite: "alpha_beta", the LRP baseline of Chefer et al. 2021 (alpha-1-beta-0), or "chefer", the rules of
            their transformer attribution ("full relevance"). The patch embedding takes the z^B rule.

    Raises:
        ValueError: If the composite is unknown.
    """
    recording = explanation.recording
    if composite not in COMPOSITES:
        raise ValueError(unknown("composite", composite, tuple(COMPOSITES)))
    (relevance,) = explanation.relevance(COMPOSITES[composite], [recording.encoder_input])
    return input_maps(recording, relevance)
