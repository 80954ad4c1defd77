"""Methods by layer-wise relevance propagation: transformer attribution, partial LRP, LRP to the input."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.relevance.explanation import Explanation
from lrptrain.relevance.fast.kernels import KernelAttention
from lrptrain.relevance.methods.attention import (
    Rows,
    content,
    fused,
    pooled_row,
    positive_part,
    related,
    rolled_out,
    rolled_out_in_parts,
    weighted_maps,
)
from lrptrain.relevance.methods.layers import input_maps, layer_maps, output_of
from lrptrain.relevance.passes.recording import Recording
from lrptrain.relevance.propagation.composite import Composite
from lrptrain.relevance.propagation.conservative_composites import CP, CP_GRADIENT_FORM
from lrptrain.relevance.propagation.named_rules import PatchRule, check_alpha_beta, first_rule
from lrptrain.relevance.propagation.pixels import Bound
from lrptrain.relevance.propagation.positive_composites import (
    alpha_beta_composite,
    chefer_composite,
    split_alpha_beta_composite,
)
from lrptrain.relevance.propagation.rules import check_not_negative
from lrptrain.relevance.propagation.signed_composites import GRADIENT_FORM, attnlrp_composite, epsilon_composite
from lrptrain.relevance.registry import RelevanceMaps, method
from lrptrain.relevance.tape.nodes import Value
from lrptrain.relevance.tokens.attention_layers import AttentionLayer, AttentionMap
from lrptrain.relevance.types import UnsupportedMethodError, unknown_name

COMPOSITES = ("alpha_beta", "chefer", "split_alpha_beta")
Embeddings = Literal["all", "token", "position"]
"""Which of a text's embeddings a score is of: their sum, the word's, or what is added to it (positions, types)."""


# Registers methods whose signed relevance goes down to the input.
_to_the_input = partial(method, class_specific=True, signed=True, reaches_input=True, uses_rules=True)


def _row_weights(weights: Float[Tensor, "batch length"], pooling: Tensor) -> Float[Tensor, "batch length"]:
    """Relevance that arrives at the pooled tokens, scaled to sum 1; the pooling's own weights where none arrives."""
    total = weights.sum(-1, keepdim=True)
    return torch.where(total.abs() > 0, weights / total, pooling.to(weights.dtype))


@method(class_specific=True, signed=False, uses_rules=True, source="Chefer et al. 2021 (CVPR)")
def transformer_attribution(
    explanation: Explanation,
    start_layer: int = 0,
    normalize_rows: bool = False,
    keep_attention: bool = False,
    stabiliser: float = 0.0,
) -> RelevanceMaps:
    """Transformer attribution (Chefer, Gur, Wolf, CVPR 2021): gradient times relevance of every block's attention.

    With an `other` class, the gradient is that of the difference, the relevance still the target's: the product of two
    differences would be positive on both classes' evidence.

    Args:
        explanation: The forward pass and the target.
        start_layer: First block used; the segmentation test of the paper skips the first (1), its BERT code uses only
            the last (-1).
        normalize_rows: Scale the rows of every block's map to 1, as the paper's BERT code does. The streams of an
            encoder-decoder are then rolled out together, as `rollout` does.
        keep_attention: Return the relevance at the attention of every block, from the first on.
        stabiliser: Added to every denominator. The published code adds 1e-9, which makes the map depend on the scale of
            activations; with it, the paper's numbers are met to the digit, at about twice the cost.
    """
    recording = explanation.recording
    layers = recording.attention_layers.layers(start_layer)
    used = [_single(attention) for layer in layers for attention in layer.maps]
    wanted = recording.blocks if keep_attention else used
    start = {recording.output: replace(explanation, other=None).direction}
    chefer = chefer_composite(stabiliser)
    attentions = [] if keep_attention else fused(recording, layers)
    if attentions:
        walk = recording.propagator.propagate_by_rows(start, chefer, [recording.token_output], used)
        in_parts = _attributed_in_parts(explanation, layers, attentions, Arrivals(walk), normalize_rows)
        return RelevanceMaps(content(recording, in_parts))
    steps = recording.propagator.propagate_stepwise(start, chefer, [*wanted, recording.token_output])
    arrived: dict[Value, Tensor] = {}

    def relevance(block: Value) -> Tensor:
        """Relevance at a block: it goes back in step with the maps, so that one block's is there at a time."""
        while block not in arrived:
            arrived.update([next(steps)])
        return recording.per_head(block, arrived[block] if keep_attention else arrived.pop(block))

    maps = weighted_maps(explanation, layers, relevance)
    arrived.update(steps)
    recording.propagator.check_order(recording.output)
    pooling = _arrived_at_tokens(recording, arrived[recording.token_output])
    rows = rolled_out(pooling, layers, maps, normalize_rows=True) if normalize_rows else related(pooling, layers, maps)
    attention = tuple(recording.per_head(block, arrived[block]) for block in wanted) if keep_attention else None
    return RelevanceMaps(content(recording, rows), attention=attention)


def _arrived_at_tokens(recording: Recording, relevance: Tensor) -> Float[Tensor, "batch length"]:
    """The weight of each token's row, from the relevance that arrives at the last states."""
    states = recording.propagator.per_token(recording.token_output, relevance, recording.length)
    return _row_weights(states, recording.pooling)


class Arrivals:
    """Sorts what a walk yields by the value that it belongs to, and walks no further than is asked for."""

    def __init__(self, steps: Iterator[tuple[Value, slice, Tensor]]) -> None:
        self._steps = steps
        self._early: dict[Value, list[tuple[slice, Tensor]]] = {}

    def of(self, value: Value) -> Iterator[tuple[slice, Tensor]]:
        """What arrives at a value, part by part."""
        parts = self._early.pop(value, [])
        yield from parts
        for arrived, rows, part in self._steps:
            if arrived is value:
                parts = [(rows, part)]
                yield rows, part
                continue
            self._early.setdefault(arrived, []).append((rows, part))
            if parts:  # the parts of one value follow one another
                return


def _attributed_in_parts(
    explanation: Explanation,
    layers: Sequence[AttentionLayer],
    attentions: Sequence[KernelAttention],
    arrivals: Arrivals,
    normalize_rows: bool,
) -> Rows:
    """Transformer attribution of fused attention, some queries at a time.

    From the last block to the first, the relevance at the rows of a map is multiplied with their gradient, and with
    the row of the pooled token, as it arrives.
    """
    recording = explanation.recording
    gradients = explanation.gradient([attention.output for attention in attentions])
    ((_, at_tokens),) = arrivals.of(recording.token_output)
    recording.propagator.check_order(recording.output)

    def parts(attention: KernelAttention, gradient: Tensor, row: Tensor) -> Iterator[tuple[slice, Tensor]]:
        is_read = (row != 0).any(0).tolist()  # one look for all parts: each would wait for the device
        for queries, relevance in arrivals.of(attention.block):
            if any(is_read[queries]):
                yield queries, positive_part(recording, attention, gradient, queries, relevance)

    maps = [partial(parts, attention, at) for attention, at in zip(attentions, gradients, strict=True)]
    return rolled_out_in_parts(_arrived_at_tokens(recording, at_tokens), layers, maps, normalize_rows)


def _single(attention: AttentionMap) -> Value:
    """The value at which relevance of a map arrives.

    Raises:
        UnsupportedMethodError: If the map is a sum, at which none arrives.
    """
    if len(attention.parts) > 1:
        raise UnsupportedMethodError(
            "relevance arrives at two softmaxes, whose difference weighs the values (differential attention): "
            "generic_attention and attnlrp serve it"
        )
    return attention.parts[0]


@method(class_specific=True, signed=False, uses_rules=True, source="Voita et al. 2019")
def partial_lrp(explanation: Explanation, stabiliser: float = 0.0) -> RelevanceMaps:
    """Partial LRP (Voita et al. 2019, as in Chefer et al. 2021): relevance of the last block's attention.

    Args:
        explanation: The forward pass and the target.
        stabiliser: Added to every denominator; see `transformer_attribution`.
    """
    recording = explanation.recording
    (last,) = recording.attention_layers.layers(-1)
    blocks = [_single(attention) for attention in last.maps]
    arrived = explanation.relevance(split_alpha_beta_composite(stabiliser), blocks)
    maps = [recording.per_head(block, x).clamp(min=0).mean(1) for block, x in zip(blocks, arrived, strict=True)]
    return RelevanceMaps(recording.content_of(pooled_row(recording.pooling, torch.stack(maps).sum(0)), last.keys))


@_to_the_input(source="Bach et al. 2015")
def lrp(
    explanation: Explanation,
    composite: Literal["alpha_beta", "split_alpha_beta", "chefer"] = "alpha_beta",
    alpha: float = 1.0,
    beta: float = 0.0,
    bias: bool = True,
    patch_rule: PatchRule | None = "zbox",
    low: Bound = None,
    high: Bound = None,
    stabiliser: float = 0.0,
    embeddings: Embeddings = "all",
    layer: str | None = None,
) -> RelevanceMaps:
    """Layer-wise relevance propagation down to the pixels, or to the sum of embeddings that a text's encoder reads.

    By the alpha-beta rule (Bach et al. 2015, eq. 60), z+ by default: relevance is 1 at the explained logit, and what
    arrives at the input adds up to 1 less what biases and other constants take. Products of two activations are shared
    among their terms in the same way and halved; sums are shared by absolute values; all else passes.

    Args:
        explanation: The forward pass and the target.
        composite: "alpha_beta", the rule of the paper; "chefer", the rules of the transformer attribution of Chefer et
            al. 2021 ("full relevance"); or "split_alpha_beta", the LRP baseline of their code, which passes relevance
            once along x+W+ and once along x-W-, and so up to twice per layer.
        alpha: Weight of the positive contributions.
        beta: Weight of the negative ones, not negative; alpha - beta = 1.
        bias: Whether a bias is a contribution like any other, as in the paper; its share goes nowhere.
        patch_rule: The rule of the convolutions, and linear layers on patches, that read pixels: "zbox" (z^B, Montavon
            et al. 2017), "wsquare", "flat", or None for the same rule as elsewhere. The other two composites have z^B
            in the patch convolution, with the image's own bounds.
        low: The smallest value that pixels can have, or one per channel, for z^B; None for the minimum of every sample
            and channel.
        high: The largest value, likewise.
        stabiliser: Added to every denominator of the other two composites; see `transformer_attribution`.
        embeddings: As of `attnlrp`.
        layer: As of `attnlrp`.

    Raises:
        ValueError: If the composite or the patch rule is unknown, or alpha - beta is not 1.
    """
    if composite not in COMPOSITES:
        raise ValueError(unknown_name("composite", composite, COMPOSITES))
    check_alpha_beta(alpha, beta)
    if composite == "alpha_beta":
        chosen = alpha_beta_composite(alpha, beta, bias, first_rule(patch_rule, low, high))
        if stabiliser:
            raise ValueError(
                "stabiliser is an option of composite='chefer' and 'split_alpha_beta': alpha_beta needs none"
            )
    else:
        chosen = chefer_composite(stabiliser) if composite == "chefer" else split_alpha_beta_composite(stabiliser)
    if composite != "alpha_beta" and (alpha, bias, patch_rule, low, high) != (1.0, True, "zbox", None, None):
        raise ValueError(
            f"alpha, beta, bias, patch_rule, low and high are options of 'alpha_beta', not of {composite!r}"
        )

    def relevance(places: list[Value]) -> Sequence[Tensor]:
        return explanation.relevance(chosen, places, linear=composite != "chefer")

    return _of_place(explanation, embeddings, layer, relevance)


@_to_the_input(source="Bach et al. 2015")
def epsilon_lrp(
    explanation: Explanation, epsilon: float = 1e-6, embeddings: Embeddings = "all", layer: str | None = None
) -> RelevanceMaps:
    """Epsilon-LRP (Bach et al. 2015, eq. 58): signed proportions in linear layers and sums, halved products.

    Nonlinearities, the softmax and norms pass relevance as it is.

    Args:
        explanation: The forward pass and the target.
        epsilon: Added to the size of every denominator; not negative.
        embeddings: As of `attnlrp`.
        layer: As of `attnlrp`.
    """
    return _of_logit(explanation, epsilon_composite(check_not_negative("epsilon", epsilon)), embeddings, layer)


@_to_the_input(full_precision=False, source="Montavon et al. 2019; Achtibat et al. 2024")
def gamma_lrp(
    explanation: Explanation, gamma: float = 0.25, embeddings: Embeddings = "all", layer: str | None = None
) -> RelevanceMaps:
    """AttnLRP with the gamma rule (Montavon et al. 2019) in linear layers, as Achtibat et al. 2024 advise for ViTs.

    Args:
        explanation: The forward pass and the target.
        gamma: How much the contributions of the output's own sign are favoured; not negative.
        embeddings: As of `attnlrp`.
        layer: As of `attnlrp`.
    """
    return _of_logit(
        explanation, attnlrp_composite(check_not_negative("gamma", gamma), name="gamma"), embeddings, layer
    )


# In its gradient form the gradients of fused attention are all that it needs.
@_to_the_input(full_precision=False, needs="tape", source="Achtibat et al. 2024; Arras et al. 2025")
def attnlrp(
    explanation: Explanation,
    form: Literal["gradient", "explicit"] = "gradient",
    embeddings: Embeddings = "all",
    layer: str | None = None,
) -> RelevanceMaps:
    """AttnLRP (Achtibat et al., ICML 2024): exact proportions, softmax linearised, denominators of norms fixed.

    Args:
        explanation: The forward pass and the target.
        form: "gradient" walks back relevance per unit of activation (Arras et al. 2025), at the cost of a gradient;
            "explicit" relevance itself. They agree but for rounding, and where an activation is exactly 0. Rules of the
            user's are written in the explicit form, and both are computed in it where one is met.
        embeddings: Of a text, whether a score is of all that stands at a token, "all": the sum of its word's, its
            position's and its type's embedding. Or of the word alone, "token", as published code has it for GPT-2; or
            of the other two, "position" (as Bakish et al. 2025, arXiv 2506.02138, tell them apart). The last two add
            up to the first.
        layer: The name of a module ("blocks.3") at whose output relevance is asked for, not at the input.
            `Relevance.input` then has the shape of that output.

    Raises:
        ValueError: If the form, the embeddings, or the layer are unknown.
        UnsupportedMethodError: If parts of embeddings are asked for, and the input is no text, or of a layer.
        UnsupportedModelError: If the logits do not come from what the layer computes.
    """
    return _in_form(explanation, form, attnlrp_composite(), GRADIENT_FORM, embeddings, layer)


@_to_the_input(full_precision=False, source="Ali et al. 2022")
def cp_lrp(
    explanation: Explanation,
    form: Literal["gradient", "explicit"] = "gradient",
    embeddings: Embeddings = "all",
    layer: str | None = None,
) -> RelevanceMaps:
    """CP-LRP (Ali et al., ICML 2022): what softmaxes make is held fixed, and so are denominators of norms.

    Nothing flows to queries and keys: the values get all relevance of an attention. All else is as in AttnLRP. So are
    activations, which pass relevance as it is; the authors' code takes their gradient.

    Args:
        explanation: The forward pass and the target.
        form: "gradient" or "explicit", as of `attnlrp`.
        embeddings: As of `attnlrp`.
        layer: As of `attnlrp`.

    Raises:
        ValueError: If the form is unknown.
        UnsupportedMethodError: If the output itself is made by softmaxes, so that no relevance could leave it.
    """
    recording = explanation.recording
    if recording.output in recording.propagator.from_softmaxes:
        raise UnsupportedMethodError(
            "the output comes from the input by softmaxes only, which cp_lrp holds fixed: explain the numbers before "
            "the softmax, or take attnlrp"
        )
    return _in_form(explanation, form, CP, CP_GRADIENT_FORM, embeddings, layer)


def _in_form(
    explanation: Explanation,
    form: str,
    explicit: Composite,
    per_unit: Composite,
    embeddings: Embeddings,
    layer: str | None,
) -> RelevanceMaps:
    """Relevance by rules that exist in two forms."""
    if form not in ("gradient", "explicit"):
        raise ValueError(unknown_name("form", form, ("gradient", "explicit")))
    # A user's rule may give relevance to an activation of 0, which no relevance per unit can express.
    if form == "explicit" or explanation.recording.propagator.has_custom_rule(explicit):
        return _of_logit(explanation, explicit, embeddings, layer)

    def relevance(places: list[Value]) -> Sequence[Tensor]:
        """Relevance of places, by a composite that passes relevance per unit of activation."""
        arrived = explanation.relevance(per_unit, places)
        return [x * place.tensor.to(x.dtype) for x, place in zip(arrived, places, strict=True)]

    return replace(_of_place(explanation, embeddings, layer, relevance), of_logit=embeddings == "all")


def _of_logit(
    explanation: Explanation, composite: Composite, embeddings: Embeddings, layer: str | None
) -> RelevanceMaps:
    """Relevance of the input that adds up, but for what biases take, to the explained logit."""

    def relevance(places: list[Value]) -> Sequence[Tensor]:
        return explanation.relevance(composite, places, of_logit=True)

    return replace(_of_place(explanation, embeddings, layer, relevance), of_logit=embeddings == "all")


def _of_place(
    explanation: Explanation,
    embeddings: Embeddings,
    layer: str | None,
    relevance: Callable[[list[Value]], Sequence[Tensor]],
) -> RelevanceMaps:
    """Relevance of the input, of a text all or some of its embeddings; or of what a layer hands on."""
    recording = explanation.recording
    if embeddings not in get_args(Embeddings):
        raise ValueError(unknown_name("embeddings", embeddings, get_args(Embeddings)))
    root = recording.propagator.root
    if embeddings != "all" and (len(root.shape) != 3 or layer is not None):
        of = recording.explained.kind if layer is None else f"layer={layer!r}"
        raise UnsupportedMethodError(f"embeddings={embeddings!r} is for the words of a text, not for {of}")
    if layer is not None:
        place = output_of(explanation, layer)
        return layer_maps(recording, layer, place, *relevance([place]))
    everything = recording.encoder_input
    if embeddings == "position":
        first, second = relevance([everything, root])
        return input_maps(recording, first - second)
    (arrived,) = relevance([root if embeddings == "token" else everything])
    return input_maps(recording, arrived)
