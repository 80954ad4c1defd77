"""Methods on the attention probabilities: raw attention, rollout, attention Grad-CAM, generic attention."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.relevance.explanation import Explanation
from lrptrain.relevance.fast.double_backward import row_of_map
from lrptrain.relevance.fast.kernels import KernelAttention, Kernels
from lrptrain.relevance.passes.recording import Recording
from lrptrain.relevance.registry import RelevanceMaps, method
from lrptrain.relevance.tape.nodes import Value
from lrptrain.relevance.tape.sample_axes import SampleAxis
from lrptrain.relevance.tokens.attention_layers import DECODER, OWN, WAY_OUT, AttentionLayer
from lrptrain.relevance.types import UnsupportedMethodError

# By stream of tokens: relevance of its tokens.
Rows = dict[int, Float[Tensor, "batch length"]]
# Given the row that is to be multiplied with a map: the map's queries, part by part, with their rows of it. Queries
# that the row does not read may be left out.
MapParts = Callable[[Float[Tensor, "batch length"]], Iterable[tuple[slice, Float[Tensor, "batch rows length"]]]]


def rolled_out(
    weights: Float[Tensor, "batch length"],
    layers: Sequence[AttentionLayer],
    maps: Sequence[Float[Tensor, "batch length length"]],
    *,
    normalize_rows: bool,
) -> Rows:
    """The pooled token's row of (I + A_B) ... (I + A_1), later layers on the left; other poolings weigh the rows.

    Taken from the left, it costs a product of a vector with every map, not of matrices. In cross-attention the row of
    the queries' stream goes over to the stream of the keys. Where rows are scaled, and n branches add to the states one
    by one before they are joined, the identity counts n times: (x + A x) + (x + B x) = (2 I + A + B) x. What acts side
    by side is one map, the sum.
    """
    weights = weights.to(maps[0].dtype)
    return rolled_out_in_parts(weights, layers, [partial(_whole, block) for block in maps], normalize_rows)


def _whole(block: Tensor, _: Tensor) -> list[tuple[slice, Tensor]]:
    return [(slice(None), block)]


def rolled_out_in_parts(
    weights: Float[Tensor, "batch length"],
    layers: Sequence[AttentionLayer],
    maps: Sequence[MapParts],
    normalize_rows: bool,
) -> Rows:
    """`rolled_out` of maps that need not be there as a whole, nor all at a time: they are read from the last on."""
    rows = {layers[-1].queries: weights}
    for layer, parts in zip(reversed(layers), reversed(maps), strict=True):
        if layer.queries not in rows:  # nothing behind it reads this stream
            continue
        row = rows[layer.queries]
        skipped = torch.zeros_like(row)
        passed = torch.zeros_like(row)
        for queries, block in parts(row):
            read = row[:, queries]
            if normalize_rows:
                read = read / (layer.residuals + block.sum(-1))
                skipped = skipped.slice_scatter(layer.residuals * read, 1, queries.start, queries.stop)
            passed = passed + pooled_row(read, block)
        if normalize_rows:
            rows[layer.queries] = skipped
        rows[layer.keys] = rows[layer.keys] + passed if layer.keys in rows else passed
    return rows


def crosses(layers: Sequence[AttentionLayer]) -> bool:
    """Whether one stream of tokens attends to another."""
    return any(layer.queries != layer.keys for layer in layers)


def related(
    weights: Float[Tensor, "batch length"],
    layers: Sequence[AttentionLayer],
    maps: Sequence[Float[Tensor, "batch length length"]],
) -> Rows:
    """The pooled token's row of the relevancy that gradient-weighted maps have gathered, for each stream.

    One stream: R <- R + A R. An encoder and a decoder follow the rules of Chefer, Gur and Wolf (ICCV 2021): with d the
    decoder's tokens and e the encoder's, R_ee <- R_ee + A R_ee in the encoder; R_dd <- R_dd + A R_dd and
    R_de <- R_de + A R_de in the decoder's self-attention (equations 6 and 7); R_de <- R_de + N(R_dd)^T A N(R_ee) in
    cross-attention (10), where N scales the rows of R - I to 1 and adds I again (8 and 9). What the decoder itself has
    gathered is R_dd - I (8): its start at the pooled token is no attention.
    """
    if not crosses(layers):
        return rolled_out(weights, layers, maps, normalize_rows=False)
    unit = torch.eye(maps[0].shape[-1], dtype=maps[0].dtype, device=maps[0].device).expand_as(maps[0])
    encoder = decoder = unit
    crossed = torch.zeros_like(maps[0])
    for layer, block in zip(layers, maps, strict=True):
        if layer.queries != layer.keys:
            crossed = crossed + _normalized(decoder, unit).mT @ block @ _normalized(encoder, unit)
        elif layer.queries == OWN:
            encoder = encoder + block @ encoder
        else:
            decoder = decoder + block @ decoder
            crossed = crossed + block @ crossed
    return {OWN: pooled_row(weights, crossed), DECODER: pooled_row(weights, decoder - unit)}


def _normalized(relevancy: Tensor, unit: Tensor) -> Tensor:
    gathered = relevancy - unit
    total = gathered.sum(-1, keepdim=True)
    return gathered / torch.where(total > 0, total, 1.0) + unit


def content(recording: Recording, rows: Rows) -> Float[Tensor, "batch tokens"]:
    """Relevance of the content tokens, wherever they are read."""
    parts = [recording.content_of(row, stream) for stream, row in rows.items()]
    return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]


def pooled_row(weights: Float[Tensor, "batch length"], maps: Float[Tensor, "batch length length"]) -> Tensor:
    """The row of the pooled token; other poolings weigh the rows."""
    return (weights.to(maps.dtype)[:, None] @ maps)[:, 0]


def weighted_maps(
    explanation: Explanation,
    layers: Sequence[AttentionLayer],
    weigh: Callable[[Value], Float[Tensor, "batch heads length length"]] | None = None,
) -> list[Float[Tensor, "batch length length"]]:
    """Per layer, the positive part of gradient times weights, mean over heads; what acts side by side is added up.

    `weigh` gives the weights of a block, of its first part; what weighs the values by default.
    """
    recording = explanation.recording
    maps = {attention.parts[0]: attention for layer in layers for attention in layer.maps}

    weighted: dict[Value, Tensor] = {}
    gradients = explanation.attention_gradient(list(maps))
    # From the last block on, in which order relevance goes back.
    for block, gradient in reversed([*zip(maps, gradients, strict=True)]):
        weights = recording.map_tensor(maps[block]) if weigh is None else weigh(block)
        weighted[block] = (gradient * weights).clamp(min=0).mean(1)
    return [_added([weighted[attention.parts[0]] for attention in layer.maps]) for layer in layers]


# -- Maps of fused attention, some queries at a time ------------------------------------------------------------------


def fused(recording: Recording, layers: Sequence[AttentionLayer]) -> list[KernelAttention]:
    """The fused attention of every layer; none if one of them is of another kind.

    A row of relevance is then multiplied with their maps part by part, and no map is there as a whole.
    """
    kernels = recording.tape.kernels
    if kernels is None or crosses(layers) or torch.is_grad_enabled() or kernels.twice:
        return []
    return _fused(kernels, layers)


def _fused(kernels: Kernels, layers: Sequence[AttentionLayer]) -> list[KernelAttention]:
    """The fused attention of every layer; none if one of them is of another kind."""
    blocks = [layer.blocks for layer in layers]
    attentions = [kernels.of_map(parts[0]) if len(parts) == 1 else None for parts in blocks]
    fused = [attention for attention in attentions if attention is not None]
    return fused if len(fused) == len(layers) else []


def _served_twice(recording: Recording, layers: Sequence[AttentionLayer]) -> list[KernelAttention]:
    """The attention of every layer, if a row times its positive map can be differentiated in parts; none if not."""
    kernels = recording.tape.kernels
    if kernels is None or not kernels.twice or crosses(layers) or not torch.is_grad_enabled():
        return []
    fused = _fused(kernels, layers)
    return fused if all(_has_samples_first(recording, attention) for attention in fused) else []


def _has_samples_first(recording: Recording, attention: KernelAttention) -> bool:
    """Whether queries are [samples, heads, tokens, width], as no axis of windows, say, is merged into the samples."""
    at = recording.propagator.axis(attention.block)
    return attention.call.query.shape[0] == recording.samples and (at == SampleAxis(0) or recording.samples == 1)


def _rolled_out_twice(
    explanation: Explanation, layers: Sequence[AttentionLayer], attentions: Sequence[KernelAttention]
) -> Rows:
    """`rolled_out` of generic attention's maps, with a graph that holds none of them."""
    order = list(reversed(attentions))
    row = explanation.recording.pooling.to(order[0].call.query.dtype)
    gradients = explanation.gradient([attention.output for attention in order])
    for attention, gradient in zip(order, gradients, strict=True):
        query, key, value = _numbers_of(explanation, attention)
        row = row + row_of_map(query, key, value, gradient, row, attention.call.scoring, positive=True)
    return {layers[-1].queries: row}


def _numbers_of(explanation: Explanation, attention: KernelAttention) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values. In first order the gradient at the map, of which the values are part, is a constant."""
    query, key, value = (x.tensor if isinstance(x, Value) else x for x in attention.operands)
    return query, key, value.detach() if explanation.first_order else value


def _mean_parts(
    recording: Recording, attention: KernelAttention, row: Float[Tensor, "batch length"]
) -> Iterator[tuple[slice, Tensor]]:
    """The map of fused attention, mean over heads."""
    for queries in attention.slices(row[..., None]):
        probabilities = attention.probabilities(queries, row.dtype)
        yield queries, recording.per_head(attention.block, probabilities).mean(1)


def _weighted_parts(
    recording: Recording, attention: KernelAttention, gradient: Tensor, row: Float[Tensor, "batch length"]
) -> Iterator[tuple[slice, Tensor]]:
    """The positive part of the map times its gradient, mean over heads, of the gradient at the attention's output."""
    for queries in attention.slices(row[..., None]):
        weights = attention.probabilities(queries, row.dtype)
        yield queries, positive_part(recording, attention, gradient, queries, weights)


def positive_part(
    recording: Recording, attention: KernelAttention, gradient: Tensor, queries: slice, weights: Tensor
) -> Float[Tensor, "batch rows length"]:
    """The positive part of the gradient at some queries' rows of a map, times weights in its shape, mean over heads.

    The gradient that is given is the one at the attention's output.
    """
    product = attention.weighted_gradient(gradient, queries, weights)
    return recording.per_head(attention.block, product.clamp_(min=0)).mean(1)


def mean_maps(recording: Recording, layer: AttentionLayer) -> list[Float[Tensor, "batch length length"]]:
    """The maps of a layer, mean over heads. What differential attention makes negative counts as nothing."""
    return [recording.map_tensor(attention).mean(1).clamp(min=0) for attention in layer.maps]


def _added(maps: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(maps)).sum(0) if len(maps) > 1 else maps[0]


@method(class_specific=False, signed=False, source="-")
def raw_attention(explanation: Explanation) -> RelevanceMaps:
    """Attention of the pooled token in the last block, mean over heads.

    Raises:
        UnsupportedMethodError: If the mean is positive nowhere, as it can be where the model mixes its heads.
    """
    recording = explanation.recording
    (last,) = recording.attention_layers.layers(-1)
    maps = mean_maps(recording, last)
    if not all(block.flatten(1).any(1).all() for block in maps):
        raise UnsupportedMethodError(
            "the last block mixes its heads after the softmax (talking heads?), and the mean of what it makes of them "
            f"is positive nowhere, so that its map would be 0 everywhere; {WAY_OUT}"
        )
    row = pooled_row(recording.pooling, _added(maps) / len(maps))
    return RelevanceMaps(recording.content_of(row, last.keys))


@method(class_specific=False, signed=False, source="Abnar & Zuidema 2020")
def rollout(explanation: Explanation, start_layer: int = 0) -> RelevanceMaps:
    """Attention rollout (Abnar & Zuidema 2020): mean over heads plus identity, rows normalised, multiplied."""
    recording = explanation.recording
    layers = recording.attention_layers.layers(start_layer)
    attentions = fused(recording, layers)
    if attentions:
        parts = [partial(_mean_parts, recording, attention) for attention in attentions]
        return RelevanceMaps(content(recording, rolled_out_in_parts(recording.pooling, layers, parts, True)))
    maps = [_added(mean_maps(recording, layer)) for layer in layers]
    return RelevanceMaps(content(recording, rolled_out(recording.pooling, layers, maps, normalize_rows=True)))


@method(class_specific=True, signed=False, source="Chefer et al. 2021, after Selvaraju et al. 2017")
def attention_gradcam(explanation: Explanation) -> RelevanceMaps:
    """Grad-CAM on the last block's attention: the mean gradient of each head's content tokens weighs its attention."""
    recording = explanation.recording
    weights = recording.pooling
    (last,) = recording.attention_layers.layers(-1)
    attention = torch.cat([recording.map_tensor(x) for x in last.maps], 1)
    gradient = torch.cat(explanation.attention_gradient([x.parts[0] for x in last.maps]), 1)
    rows = [
        recording.content_of(torch.einsum("bi,bhij->bhj", weights.to(block.dtype), block), last.keys)
        for block in (attention, gradient)
    ]
    content = torch.ones_like(rows[0][:, 0]) if recording.padding is None else recording.padding.to(rows[0].dtype)
    importance = (rows[1] * content[:, None]).sum(-1, keepdim=True) / content.sum(-1)[:, None, None]
    cam = (rows[0] * importance).mean(1).clamp(min=0)
    low = torch.where(content > 0, cam, torch.inf).amin(1, keepdim=True)
    high = torch.where(content > 0, cam, -torch.inf).amax(1, keepdim=True)
    return RelevanceMaps(torch.where(high > low, (cam - low) / (high - low), 0.0))


@method(class_specific=True, signed=False, source="Chefer et al. 2021 (ICCV)")
def generic_attention(explanation: Explanation, start_layer: int = 0) -> RelevanceMaps:
    """Generic attention explainability (Chefer, Gur, Wolf, ICCV 2021): R <- R + mean_h((dy/dA * A)+) R.

    An encoder-decoder has its two streams and cross-attention, by the same paper's rules. Attention that acts side by
    side adds up; differential attention has one map, what weighs the values.
    """
    recording = explanation.recording
    layers = recording.attention_layers.layers(start_layer)
    attentions = fused(recording, layers)
    if attentions:
        gradients = explanation.gradient([attention.output for attention in attentions])
        parts = [
            partial(_weighted_parts, recording, attention, gradient)
            for attention, gradient in zip(attentions, gradients, strict=True)
        ]
        return RelevanceMaps(content(recording, rolled_out_in_parts(recording.pooling, layers, parts, False)))
    attentions = _served_twice(recording, layers)
    if attentions:
        return RelevanceMaps(content(recording, _rolled_out_twice(explanation, layers, attentions)))
    maps = weighted_maps(explanation, layers)
    return RelevanceMaps(content(recording, related(recording.pooling, layers, maps)))


@method(class_specific=True, signed=True, source="after Chefer et al. 2021 (ICCV) and Barkan et al. 2021")
def attention_x_gradient(explanation: Explanation, block: int = -1) -> RelevanceMaps:
    """Attention times its gradient, of the pooled token in one block, mean over heads, with its sign.

    To first order, how much the explained logit would fall if the token's attention were taken away.

    Args:
        explanation: The forward pass and the target.
        block: Which one; negative numbers count from the end.

    Raises:
        ValueError: If there is no such block.
        UnsupportedMethodError: If it is a block of an encoder, and the pooled token one of a decoder.
    """
    recording = explanation.recording
    layers = recording.attention_layers.layers(block, argument="block")
    if layers[0].queries != layers[-1].queries:
        raise UnsupportedMethodError(
            f"block={block} is a block of the encoder, which the classifier reads through the decoder only; take "
            "block=-1, or generic_attention"
        )
    attentions = _served_twice(recording, layers)
    if attentions:
        (attention,) = attentions
        (gradient,) = explanation.gradient([attention.output])
        query, key, value = _numbers_of(explanation, attention)
        pooling = recording.pooling.to(query.dtype)
        row = row_of_map(query, key, value, gradient, pooling, attention.call.scoring, positive=False)
        return RelevanceMaps(recording.content_of(row, layers[0].keys))
    gradients = explanation.attention_gradient([attention.parts[0] for attention in layers[0].maps])
    maps = [
        (recording.map_tensor(attention) * gradient).mean(1)
        for attention, gradient in zip(layers[0].maps, gradients, strict=True)
    ]
    return RelevanceMaps(recording.content_of(pooled_row(recording.pooling, _added(maps)), layers[0].keys))
