"""Composites of CP-LRP (Ali et al. 2022): AttnLRP's rules, with what softmaxes make held fixed."""

import torch
from torch import Tensor

from lrptrain.relevance.fast.kernels import FUSED_ATTENTION
from lrptrain.relevance.propagation import rules
from lrptrain.relevance.propagation.composite import Composite, InputRelevance, OutputRelevance, RuleFunction
from lrptrain.relevance.propagation.linear_maps import vjp
from lrptrain.relevance.propagation.operation_rules import single_output
from lrptrain.relevance.propagation.propagator import Propagator
from lrptrain.relevance.propagation.signed_composites import GRADIENT_FORM, attnlrp_composite
from lrptrain.relevance.tape.functions import PRODUCTS
from lrptrain.relevance.tape.nodes import Node, Value


def nothing(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """A softmax makes constants, to which relevance goes and no further."""
    return []


def by_moving_factor(of_activations: RuleFunction, *, per_unit: bool) -> RuleFunction:
    """The rule of a product: one factor made by softmaxes is a constant, and the other gets all relevance."""

    def rule(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
        moving = [value for value in node.inputs if value not in propagator.from_softmaxes]
        if len(node.inputs) != 2 or len(moving) != 1:
            return of_activations(propagator, node, relevance)
        part = single_output(relevance)
        return [_to_factor(node, moving[0], part, per_unit)]

    return rule


def _to_factor(node: Node, factor: Value, part: Tensor, per_unit: bool) -> tuple[Value, Tensor]:
    """The product is a linear map of one factor, to which the epsilon rule with epsilon 0 passes relevance."""
    share = part if per_unit else rules.safe_divide(part, node.outputs[0].tensor.to(part.dtype))

    def multiplied(x: Tensor) -> Tensor:
        result = node.call(lambda value: x if value is factor else value.tensor.to(part.dtype))
        assert isinstance(result, Tensor)
        return result

    x = factor.tensor.to(part.dtype)
    (gradient,) = vjp(multiplied, [x], [share])
    back = torch.zeros_like(x) if gradient is None else gradient
    return factor, back if per_unit else x * back


def _conservative(base: Composite, *, per_unit: bool) -> Composite:
    products = {name: by_moving_factor(base.type_map[name], per_unit=per_unit) for name in (*PRODUCTS, "mul")}
    rules_by_operation = {**base.type_map, **products, "softmax": nothing}
    rules_by_operation.pop(FUSED_ATTENTION, None)  # it passes relevance through the softmax
    return Composite(rules_by_operation, name="cp", by_queries=True)


CP = _conservative(attnlrp_composite(), per_unit=False)
CP_GRADIENT_FORM = _conservative(GRADIENT_FORM, per_unit=True)
