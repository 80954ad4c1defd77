"""Where entries travel, whatever their values: which tokens the logits pool, and at which tokens the patches arrive."""

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.relevance.advice import REACH_INPUT, other_methods
from lrptrain.relevance.propagation.composite import Composite, InputRelevance, OutputRelevance
from lrptrain.relevance.propagation.operation_rules import (
    evenly,
    multiply,
    passing_rules,
    shape_back,
    single_output,
    to_the_winner,
)
from lrptrain.relevance.propagation.propagator import Propagator, at_least_float32
from lrptrain.relevance.tape.functions import AVERAGES, MIXTURES, SUMS
from lrptrain.relevance.tape.nodes import Node, Value, operands_of
from lrptrain.relevance.types import UnsupportedMethodError, UnsupportedModelError


def _to_features(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """A linear layer mixes the features of a token: each gets the same."""
    part = single_output(relevance)
    x = node.inputs[0].tensor
    yield node.inputs[0], (part.sum(-1, keepdim=True) / x.shape[-1]).expand(x.shape)


def _shared(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """A sum of activations comes from each of them alike; constants come from nowhere."""
    part = single_output(relevance)
    operands = (node.argument(0, "input"), node.argument(1, "other"))
    values = [operand for operand in operands if isinstance(operand, Value)]
    return [shape_back(value, part / len(values)) for value in values]


def _weighted_sum(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """Attention pooling: the attention weights say where the values come from."""
    part = single_output(relevance)
    attention, values = operands_of(node)
    if not isinstance(values, Value):
        return _to_features(propagator, node, relevance)
    if not isinstance(attention, Value):
        # A constant mixes rows, of either sign: the embeddings of texts, say, with which images are compared.
        sizes = at_least_float32(attention).abs()
        shares = sizes / sizes.sum(-1, keepdim=True).clamp(min=torch.finfo(sizes.dtype).tiny)
        return [shape_back(values, shares.mT.to(part.dtype) @ part)]
    if bool((attention.tensor < 0).any()):  # linear attention: queries times keys, without a softmax
        raise UnsupportedMethodError(
            f"{node.name} in module '{node.path or '(model)'}' weighs tokens by activations of either sign, so that "
            f"it has no share of the logits to say of each token; {other_methods(*REACH_INPUT)} reach the input "
            "without that"
        )
    return [shape_back(values, at_least_float32(attention.tensor).mT @ part)]


FLOW = Composite(
    {
        **passing_rules(to_the_winner),
        "linear": _to_features,
        **dict.fromkeys(("matmul", "bmm"), _weighted_sum),
        **dict.fromkeys(SUMS, _shared),
        **dict.fromkeys(("mean", "sum"), evenly),
        # The slope of an average, too, is its share.
        **dict.fromkeys(AVERAGES | MIXTURES | {"logsumexp"}, to_the_winner),
    },
    name="flow",
    replaceable=False,
)


def _weights_of_tokens(node: Node) -> Tensor | None:
    """A constant weight per token that states are multiplied by, such as a mask."""
    first = node.argument(0, "input")
    second = node.argument(1, "other")
    weight = second if isinstance(first, Value) else first
    ndim = len(node.outputs[0].shape)
    weighs_tokens = (
        node.name == "mul" and isinstance(weight, Tensor) and weight.ndim == ndim > 2 and weight.shape[-1] == 1
    )
    return weight if weighs_tokens else None


def _weigh_tokens(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """Such a weight says how much is read from a token; of another constant, that nothing is where it is 0."""
    part = single_output(relevance)
    weight = _weights_of_tokens(node)
    operands = (node.argument(0, "input"), node.argument(1, "other"))
    constant = next((operand for operand in operands if isinstance(operand, Tensor)), None)
    if weight is not None:
        part = part * weight.abs()
    elif constant is not None:
        part = torch.where(constant == 0, 0.0, part)
    yield from multiply(propagator, node, [part])


def unweighted(propagator: Propagator, states: Value) -> Value:
    """The token states before the pooling's own weights."""
    for node in reversed(propagator.tape.nodes):
        if states in node.outputs and _weights_of_tokens(node) is not None:
            states = node.inputs[0]
    return states


POOLING_FLOW = Composite({**FLOW.type_map, "mul": _weigh_tokens}, name="flow", replaceable=False)


def flow_to(
    propagator: Propagator, logits: Value, value: Value, length: int, logit: int = 0
) -> Float[Tensor, "batch length"]:
    """The pooling's own weights: what share of a logit is read from every token of `value`; sums to 1."""
    # Mostly any class does: the rules of the flow do not look at values.
    start = at_least_float32(logits.tensor).new_zeros(logits.tensor.shape)
    start[:, logit] = 1.0
    weights = propagator.per_token(value, propagator.propagate({logits: start}, POOLING_FLOW, [value])[value], length)
    if (weights.sum(-1) <= 0).any():
        raise UnsupportedModelError(
            "the logits read nothing from the last states of the tokens that the attention sees"
        )
    return weights / weights.sum(-1, keepdim=True)
