"""Texts with tokens really taken out: shorter inputs, not masked ones."""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from lrptrain.batch.content import special_tokens


def text_probability(
    predict: Callable[..., Tensor],
    inputs: Mapping[str, Tensor],
    target: Int[Tensor, " batch"],
    keep_ends: bool = True,
    pad: int | None = None,
) -> Callable[[Bool[Tensor, "batch tokens"]], Float[Tensor, " batch"]]:
    """Return a class's probability as a function of the tokens that stay, for `comprehensiveness` and `sufficiency`.

    Args:
        predict: `predict(**inputs)` returns logits `[batch, classes]`; run without gradients.
        inputs: Of the model's forward. `input_ids`, `attention_mask` and whatever else is `[batch, tokens]` and whole
            numbers lose the same tokens; anything else is passed on as it is.
        target: The explained class of every sample.
        keep_ends: The first and the last token always stay where they are special: where all texts have the same one.
        pad: Id that fills texts up; else the one the inputs are padded with, or 0 where none is.

    Returns:
        `probability(keep)`, with `keep` true for the tokens that stay. What stays of a text moves together to the left;
        a text of which nothing is left keeps its first token.

    Raises:
        ValueError: If there is no `attention_mask`.
    """
    if not isinstance(inputs.get("attention_mask"), Tensor) or inputs["attention_mask"].ndim != 2:
        raise ValueError(
            "deleting tokens needs inputs['attention_mask'] [batch, tokens]: ones, where no text is padded"
        )
    attended = inputs["attention_mask"] != 0
    always = special_tokens({"input_ids": attended, **inputs}) if keep_ends else torch.zeros_like(attended)
    fill = _pad_id(inputs, attended) if pad is None else pad

    def probability(keep: Bool[Tensor, "batch tokens"]) -> Float[Tensor, " batch"]:
        shorter = delete_tokens(inputs, (keep | always) & attended, fill)
        with torch.no_grad():
            logits = predict(**shorter)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return logits.softmax(1).gather(1, target[:, None])[:, 0]

    return probability


def delete_tokens(inputs: Mapping[str, Tensor], keep: Bool[Tensor, "batch tokens"], pad: int = 0) -> dict[str, Tensor]:
    """Take all other tokens out of every entry that has a row or a number per token.

    Args:
        inputs: With `attention_mask`; `position_ids`, if given, stay with their tokens, and so do boxes
            `[batch, tokens, 4]`.
        keep: Tokens that stay; where a row keeps none, its first stays.
        pad: Fills `input_ids` up; all else is filled with 0.
    """
    attended = inputs["attention_mask"] != 0
    # The first attended token is where the running count is 1.
    keep = torch.where(keep.any(1, keepdim=True), keep, attended & (attended.cumsum(1) == 1))
    length = keep.sum(1, keepdim=True)
    # A stable sort by "goes": the tokens that stay come first and keep their order.
    order = (~keep).to(torch.uint8).sort(dim=1, stable=True).indices[:, : int(length.max())]
    filled = torch.arange(order.shape[1], device=keep.device) < length
    shorter = dict(inputs)
    for name, value in inputs.items():
        if isinstance(value, Tensor) and value.shape[:2] == keep.shape and not value.is_floating_point():
            shorter[name] = at_tokens(value, order).masked_fill(
                _wide(~filled, value), pad if name == "input_ids" else 0
            )
    return shorter


def at_tokens(
    values: Shaped[Tensor, "batch tokens *width"], places: Int[Tensor, "batch n"]
) -> Shaped[Tensor, "batch n *width"]:
    """Return what belongs to each token of another order, some of them several times perhaps."""
    return values.gather(1, _wide(places, values).expand(*places.shape, *values.shape[2:]))


def _wide(places: Shaped[Tensor, "batch n"], values: Tensor) -> Tensor:
    """Return a table with as many axes as some values have."""
    return places.view(*places.shape, *[1] * (values.ndim - 2))


def _pad_id(inputs: Mapping[str, Tensor], attended: Bool[Tensor, "batch tokens"]) -> int:
    padding = inputs["input_ids"][~attended] if "input_ids" in inputs else attended.new_empty(0)
    return int(padding[0]) if len(padding) else 0
