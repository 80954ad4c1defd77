"""Methods on the attention probabilities: raw attention, rollout, attention Grad-CAM, generic attention."""

from collections.abc import Sequence
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.relevance.explanation import Explanation
from lrptrain.relevance.registry import RelevanceMaps, method

Block = TypeVar("Block")


def rolled_out(
    weights: Float[Tensor, "batch length"],
    maps: Sequence[Float[Tensor, "batch length length"]],
    *,
    normalize_rows: bool,
) -> Float[Tensor, "batch length"]:
    """The pooled token's row of (I + A_B) ... (I + A_1), later blocks on the left; other poolings weigh the rows.

    Taken from the left, it costs a product of a vector with every map, not of matrices.

    Args:
        weights: Share of the pooling per token.
        maps: A per block, first to last.
        normalize_rows: Scale the rows of every I + A to sum 1.
    """
    row = weights.to(maps[0].dtype)
    for block in reversed(maps):
        if normalize_rows:
            row = row / (1 + block.sum(-1))
        row = row + pooled_row(row, block)
    return row


def pooled_row(weights: Float[Tensor, "batch length"], maps: Float[Tensor, "batch length length"]) -> Tensor:
    """The row of the pooled token; other poolings weigh the rows."""
    return (weights.to(maps.dtype)[:, None] @ maps)[:, 0]


def positive_mean_over_heads(
    gradient: Float[Tensor, "batch heads length length"], weights: Float[Tensor, "batch heads length length"]
) -> Float[Tensor, "batch length length"]:
    """Mean over heads of the positive part of gradient times weights."""
    if torch.is_grad_enabled():
        return (gradient * weights).clamp(min=0).mean(1)
    total = torch.zeros_like(gradient[:, 0] * weights[:, 0])
    for head_gradient, head_weights in zip(
        gradient.unbind(1), weights.unbind(1), strict=True
    ):  # little memory at a time
        total += (head_gradient * head_weights).clamp_(min=0)
    return total / gradient.shape[1]


def chosen(blocks: list[Block], start_layer: int) -> list[Block]:
    """The blocks from `start_layer` on; negative numbers count from the end.

    Raises:
        ValueError: If there is no such block.
    """
    if not -len(blocks) <= start_layer < len(blocks):
        raise ValueError(f"start_layer={start_layer} is out of range for a model of {len(blocks)} blocks")
    return blocks[start_layer:]


@method(class_specific=False, signed=False, source="-")
def raw_attention(explanation: Explanation) -> RelevanceMaps:
    """Attention of the pooled token in the last block, mean over heads."""
    recording = explanation.recording
    last = recording.attention[-1].mean(1)
    return RelevanceMaps(recording.layout.content(pooled_row(recording.pooling, last)))


@method(class_specific=False, signed=False, source="Abnar & Zuidema 2020")
def rollout(explanation: Explanation, start_layer: int = 0) -> RelevanceMaps:
    """Attention rollout (Abnar & Zuidema 2020): mean over heads plus identity, rows normalised, multiplied."""
    recording = explanation.recording
    maps = [block.mean(1) for block in chosen(recording.attention, start_layer)]
    return RelevanceMaps(recording.layout.content(rolled_out(recording.pooling, maps, normalize_rows=True)))


@method(class_specific=True, signed=False, source="Chefer et al. 2021, after Selvaraju et al. 2017")
def attention_gradcam(explanation: Explanation) -> RelevanceMaps:
    """Grad-CAM on the last block's attention: the mean gradient of each head's content tokens weighs its attention."""
    recording = explanation.recording
    weights = recording.pooling
    layout = recording.layout
    last = recording.blocks[-1]
    attention = recording.attention[-1]
    (gradient,) = explanation.attention_gradient([last])
    rows = [
        layout.content(torch.einsum("bi,bhij->bhj", weights.to(block.dtype), block)) for block in (attention, gradient)
    ]
    content = torch.ones_like(rows[0][:, 0]) if recording.padding is None else recording.padding.to(rows[0].dtype)
    importance = (rows[1] * content[:, None]).sum(-1, keepdim=True) / content.sum(-1)[:, None, None]
    cam = (rows[0] * importance).mean(1).clamp(min=0)
    low = torch.where(content > 0, cam, torch.inf).amin(1, keepdim=True)
    high = torch.where(content > 0, cam, -torch.inf).amax(1, keepdim=True)
    return RelevanceMaps(torch.where(high > low, (cam - low) / (high - low), 0.0))


@method(class_specific=True, signed=False, source="Chefer et al. 2021 (ICCV)")
def generic_attention(explanation: Explanation, start_layer: int = 0) -> RelevanceMaps:
    """Generic attention explainability (Chefer, Gur, Wolf, ICCV 2021): R <- R + mean_h((dy/dA * A)+) R."""
    recording = explanation.recording
    maps = explanation.with_attention_gradient(
        chosen(recording.blocks, start_layer),
        lambda block, gradient: positive_mean_over_heads(gradient, recording.per_head(block, block.tensor)),
    )
    return RelevanceMaps(recording.layout.content(rolled_out(recording.pooling, maps, normalize_rows=False)))


@method(class_specific=True, signed=True, source="after Chefer et al. 2021 (ICCV) and Barkan et al. 2021")
def attention_x_gradient(explanation: Explanation, block: int = -1) -> RelevanceMaps:
    """Attention times its gradient, of the pooled token in one block, mean over heads, with its sign.

    To first order, how much the explained logit would fall if the token's attention were taken away.

    Args:
        explanation: The forward pass and the target.
        block: Which one; negative numbers count from the end.
    """
    recording = explanation.recording
    attention = _one(recording.attention, block)
    (gradient,) = explanation.attention_gradient([_one(recording.blocks, block)])
    return RelevanceMaps(recording.layout.content(pooled_row(recording.pooling, (attention * gradient).mean(1))))


def _one(blocks: list[Block], block: int) -> Block:
    if not -len(blocks) <= block < len(blocks):
        raise ValueError(f"block={block} is out of range for a model of {len(blocks)} blocks")
    return blocks[block]
