"""What is said of a map that is finite, yet says less than its reader expects: one that is 0, or that cancels."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lrptrain.relevance.advice import other_methods
from lrptrain.relevance.notices import warn_once
from lrptrain.relevance.registry import Method, RelevanceMaps
from lrptrain.relevance.types import Relevance

LARGEST_FACTOR = 1000.0
"""How many times the number that was shared out the absolute relevance may add up to, without a word."""

ZERO_LOGIT = "the explained logit is 0, and relevance is a share of it"


def remark(
    model: nn.Module,
    method: Method,
    relevance: Relevance,
    maps: RelevanceMaps,
    leaf: Float[Tensor, "batch ..."],
    content: Bool[Tensor, "batch tokens"] | None,
) -> None:
    """Warn, once per model and method, of a sample whose map is 0 everywhere, or whose relevance cancels."""
    explained = _explained(relevance)
    # At a layer, the class token may hold everything.
    shown = relevance.scores if relevance.input is None else relevance.input.flatten(1)
    empty = (shown == 0).all(1)
    if content is not None:
        empty = empty & content.bool().any(1)
    if empty.any():
        samples = empty.nonzero().flatten()
        warn_once(
            model,
            ("zero", method.name),
            f"{method.name}: the map of samples {samples.tolist()[:10]} is 0 everywhere: "
            f"{_why_zero(method, maps, leaf[samples], explained[samples])}",
        )
    rows_of_attention = not (method.class_specific or method.signed or method.reaches_input)
    if rows_of_attention and not empty.any():
        _remark_rounding(model, method, relevance)
    if method.uses_rules and method.signed:
        _remark_cancelled(model, relevance, maps, explained)


def _remark_rounding(model: nn.Module, method: Method, relevance: Relevance) -> None:
    """Warn of rows of attention, which start from 1, that are as small as the rounding of sums over the tokens."""
    scores = relevance.scores
    bound = torch.finfo(scores.dtype).eps * (scores.shape[1] + 1)
    samples = (scores.abs().amax(1) <= bound).nonzero().flatten()
    if len(samples):
        warn_once(
            model,
            ("rounding", method.name),
            f"{method.name}: the map of samples {samples.tolist()[:10]} is nothing but rounding (at most {bound:.0e}): "
            f"the attention of the heads cancels; take {other_methods('attnlrp', 'input_x_gradient')}",
        )


def _explained(relevance: Relevance) -> Float[Tensor, " batch"]:
    """The explained logit, or the difference of the two."""
    logits = relevance.logits.double()
    number = logits.gather(1, relevance.target[:, None])[:, 0]
    return number if relevance.other is None else number - logits.gather(1, relevance.other[:, None])[:, 0]


def _why_zero(
    method: Method, maps: RelevanceMaps, leaf: Float[Tensor, "samples ..."], explained: Float[Tensor, " samples"]
) -> str:
    """The nearest cause, and what to do."""
    if method.signed and method.reaches_input and not leaf.any():
        return (
            "so is the input, which relevance is a share of; check it, or take "
            f"{other_methods('generic_attention', 'rollout')}"
        )
    if maps.of_logit and not explained.any():
        return f"{ZERO_LOGIT}; choose another target, or pass other= for the difference to another class"
    if not method.signed and not method.reaches_input:
        return (
            "the method keeps what is positive, and found nothing positive for this target; "
            f"{other_methods('input_x_gradient', 'attnlrp')} also show what speaks against it"
        )
    return (
        "as far as the method sees, the explained logit does not depend on the input there (units that are off or "
        "saturated, a number that is constant?); check the model's activations, or choose another target"
    )


def _remark_cancelled(
    model: nn.Module, relevance: Relevance, maps: RelevanceMaps, explained: Float[Tensor, " batch"]
) -> None:
    """Warn of relevance that is far larger than what was shared out: of large numbers that cancel."""
    factor = _absolute(relevance) / _shared_out(relevance, maps, explained)
    if not bool((factor > LARGEST_FACTOR).any()):
        return
    worst = int(factor.argmax())
    warn_once(
        model,
        ("cancelled", relevance.method),
        f"{relevance.method}: the absolute relevance of sample {worst} adds up to {float(factor[worst]):.0e} times the "
        "explained logit or the spread of the logits: contributions of both signs nearly cancel somewhere in the "
        f"model, so that signs and sizes of the map are not to be relied on; take "
        f"{other_methods('gamma_lrp', 'input_x_gradient')}, which do not divide by such sums",
    )


def _absolute(relevance: Relevance) -> Float[Tensor, " batch"]:
    """The sum of absolute relevance: of pixels where there are some, of tokens else."""
    # The width of a word's embedding is summed: it is no map that anyone looks at.
    on_grid = relevance.input is not None and relevance.grid is not None
    relevance_map = relevance.input if relevance.input is not None and on_grid else relevance.scores
    return relevance_map.double().flatten(1).abs().sum(1)


def _shared_out(
    relevance: Relevance, maps: RelevanceMaps, explained: Float[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """The size of the number that was shared out; a logit near 0 is as large as logits of the model differ."""
    logits = relevance.logits.double()
    ruled_out = logits.isinf()  # classes by a logit of -inf
    highest = logits.masked_fill(ruled_out, -torch.inf).amax(1)
    lowest = logits.masked_fill(ruled_out, torch.inf).amin(1)
    size = torch.maximum(explained.abs(), highest - lowest)
    # Of a single number no scale is known, and some methods start from 1.
    return size if maps.of_logit and logits.shape[1] > 1 else size.clamp(min=1.0)
