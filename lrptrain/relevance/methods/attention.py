"""Methods on the attention probabilities: raw attention, rollout, attention Grad-CAM, generic attention."""

from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.relevance.explanation import Explanation
from lrptrain.relevance.registry import Maps, method

Block = TypeVar("Block")


def accumulate(maps: Float[Tensor, "blocks batch length length"]) -> Float[Tensor, "batch length length"]:
    """Multiply the maps of successive blocks, later blocks on the left."""
    product = maps[0]
    for block in maps[1:]:
        product = block @ product
    return product


def with_identity(maps: Tensor, *, normalize_rows: bool) -> Tensor:
    """Add the residual connection; rows may be normalised to 1."""
    maps = maps + torch.eye(maps.shape[-1], dtype=maps.dtype, device=maps.device)
    return maps / maps.sum(-1, keepdim=True) if normalize_rows else maps


def pooled_row(weights: Float[Tensor, "batch length"], maps: Float[Tensor, "batch length length"]) -> Tensor:
    """The row of the pooled token; other poolings weigh the rows."""
    return (weights.to(maps.dtype)[:, None] @ maps)[:, 0]


def chosen(blocks: list[Block], start_layer: int) -> list[Block]:
    """The blocks from `start_layer` on; negative numbers count from the end.

    Raises:
        ValueError: If there is no such block.
    """
    if not -len(blocks) <= start_layer < len(blocks):
        raise ValueError(f"start_layer={start_layer} is out of range for a model of {len(blocks)} blocks")
    return blocks[start_layer:]


@method(class_specific=False, signed=False, source="-")
def raw_attention(explanation: Explanation) -> Maps:
    """Attention of the pooled token in the last block, mean over heads."""
    recording = explanation.recording
    last = recording.attention[-1].mean(1)
    return Maps(recording.layout.content(pooled_row(recording.pooling, last)))


@method(class_specific=False, signed=False, source="Abnar & Zuidema 2020")
def rollout(explanation: Explanation, start_layer: int = 0) -> Maps:
    """Attention rollout (Abnar & Zuidema 2020): mean over heads plus identity, rows normalised, multiplied."""
    recording = explanation.recording
    maps = torch.stack([block.mean(1) for block in chosen(recording.attention, start_layer)])
    rolled = accumulate(with_identity(maps, normalize_rows=True))
    return Maps(recording.layout.content(pooled_row(recording.pooling, rolled)))


@method(class_specific=True, signed=False, source="Chefer et al. 2021, after Selvaraju et al. 2017")
def attention_gradcam(explanation: Explanation) -> Maps:
    """Grad-CAM on the last block's attention: the mean gradient of each head's content tokens weighs its attention."""
    recording = explanation.recording
    weights, layout = recording.pooling, recording.layout
    attention, gradient = recording.attention[-1], explanation.attention_gradient[-1]
    rows = [
        layout.content(torch.einsum("bi,bhij->bhj", weights.to(block.dtype), block)) for block in (attention, gradient)
    ]
    kept = torch.ones_like(rows[0][:, 0]) if recording.padding is None else recording.padding.to(rows[0].dtype)
    importance = (rows[1] * kept[:, None]).sum(-1, keepdim=True) / kept.sum(-1)[:, None, None]
    cam = (rows[0] * importance).mean(1).clamp(min=0)
    low = torch.where(kept > 0, cam, torch.inf).amin(1, keepdim=True)
    high = torch.where(kept > 0, cam, -torch.inf).amax(1, keepdim=True)
    return Maps(torch.where(high > low, (cam - low) / (high - low), 0.0))


@method(class_specific=True, signed=False, source="Chefer et al. 2021 (ICCV)")
def generic_attention(explanation: Explanation, start_layer: int = 0) -> Maps:
    """Generic attention explainability (Chefer, Gur, Wolf, ICCV 2021): R <- R + mean_h((dy/dA * A)+) R."""
    recording = explanation.recording
    blocks = chosen(list(zip(recording.attention, explanation.attention_gradient, strict=True)), start_layer)
    maps = torch.stack([(gradient * attention).clamp(min=0).mean(1) for attention, gradient in blocks])
    rolled = accumulate(with_identity(maps, normalize_rows=False))
    return Maps(recording.layout.content(pooled_row(recording.pooling, rolled)))
