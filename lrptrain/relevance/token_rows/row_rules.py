"""How a row of tokens goes back through the operations of a model: what an output token reads, by the weights alone.

Rules of a composite, with the row in the place of relevance. No rule looks at the numbers of the states, as attention
maps do not: they say how much is read from where, not what.

| operation | the row of an output token goes |
| --- | --- |
| moves, copies, windows, rolls, concatenation | with the entries |
| activations, norms, scaling, a linear layer on one token | to the same token |
| a convolution; a linear layer on several tokens | to the tokens that it reads, by the sizes of their weights |
| an average, a bilinear interpolation | to the tokens, by their weights |
| a maximum | for each feature, to the token that has it |
| a gate, one for all tokens | to what is gated |
| attention | to the values, by the row times the map |
| a sum | see `Branches` |
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lrptrain.relevance.propagation import rules
from lrptrain.relevance.propagation.composite import Composite, InputRelevance, OutputRelevance
from lrptrain.relevance.propagation.linear_maps import convolution_options, factors, transposed
from lrptrain.relevance.propagation.operation_rules import carriers, evenly, passing_rules, shape_back, single_output
from lrptrain.relevance.propagation.propagator import Propagator, at_least_float32, unchanged
from lrptrain.relevance.tape.functions import AVERAGES, DENSE, PRODUCTS, SUMS
from lrptrain.relevance.tape.nodes import Node, Value, aligned, axis_letters
from lrptrain.relevance.token_rows.branches import Branches
from lrptrain.relevance.token_rows.row_marks import TokenMarks, refusal
from lrptrain.relevance.tokens.attentions import Attention

# The parts of a map, as the product has it: some of its queries, with the numbers that the row is multiplied by.
MapParts = Iterable[tuple[slice, Tensor]]
# By how much the rows of a map may miss a sum of 1, as those of a softmax do by rounding.
_SUM_TOLERANCE = 1e-2


def gated(marks: TokenMarks, propagator: Propagator, node: Node) -> list[Value]:
    """The factors of a product of activations that a row goes to.

    Raises:
        UnsupportedMethodError: If it is a product of different tokens, or weighs tokens by activations.
    """
    values = carriers(propagator, node)
    if len(values) < 2:
        return values
    widths = [marks.compact(value).numel() for value in values]
    alone = [i for i, width in enumerate(widths) if width == 1]
    if len(alone) == 1:
        return [values[1 - alone[0]]]
    first, second = values
    if first.shape[-1:] != second.shape[-1:]:
        raise refusal(node, "weighs tokens by activations, and not by attention that is known")
    if not marks.of_same_tokens(first, second):
        raise refusal(node, "multiplies different tokens")
    return values


@dataclass(eq=False)
class RowRules:
    """The rules for one model, and one way to read its attention maps.

    Attributes:
        marks: Which entries are of which tokens.
        branches: How the terms of sums share a row.
        attentions: The attention of each product.
        maps: Of the number of an attention, its map in parts; None where it is not used.
        averaged: Whether the maps are averaged with the states, so that their rows have to sum to 1.
    """

    marks: TokenMarks
    branches: Branches
    attentions: Sequence[Attention]
    maps: Callable[[int], MapParts | None]
    averaged: bool

    def __post_init__(self) -> None:
        self._numbers = {attention.product: i for i, attention in enumerate(self.attentions)}

    def composite(self) -> Composite:
        """The rules as a composite."""
        by_name = {
            **passing_rules(_accumulated),
            **dict.fromkeys(DENSE, self._dense),
            **dict.fromkeys(PRODUCTS, self._product),
            **dict.fromkeys(SUMS, self._sum),
            **dict.fromkeys(AVERAGES | {"interpolate", "upsample", "fold"}, _averaged),
            **dict.fromkeys(("mean", "sum"), _mean),
            "mul": self._multiply,
            "softmax": self._normalized,
        }
        del by_name["put"]
        return Composite(by_name, name="rows", replaceable=False)

    # -- Operations of one token, or of several -----------------------------------------------------------------------

    def _dense(self, propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
        part = single_output(relevance)
        x = node.inputs[0]
        weight = node.argument(1, "weight")
        if len(node.inputs) > 1 or not isinstance(weight, Tensor):
            raise refusal(node, "has a weight that depends on the input")
        if node.name == "linear":
            if self.marks.of_one_token(x, [len(x.shape) - 1]):
                return [(x, _even(part.sum(-1, keepdim=True), x, [len(x.shape) - 1]))]
            sizes = at_least_float32(weight).abs().sum(0).to(part.dtype)
            return [(x, part.sum(-1, keepdim=True) * rules.safe_divide(sizes, sizes.sum()))]
        return [(x, self._convolved(node, part, x, weight))]

    def _convolved(self, node: Node, part: Tensor, x: Value, weight: Tensor) -> Tensor:
        """By the sizes of the kernel's weights; those outside of the image count for nothing."""
        options = convolution_options(node)
        channels = len(x.shape) - weight.ndim + 1
        kernel = at_least_float32(weight).abs().to(part.dtype)
        like = torch.ones_like(x.tensor, dtype=part.dtype)
        if self.marks.of_one_token(x, [channels]):
            kernel = kernel.sum((0, 1), keepdim=True)
            options = {**options, "groups": 1}
            like = like.narrow(channels, 0, 1)
            part = part.sum(channels, keepdim=True)
        back = _by_weights(lambda ones: node.function(ones, kernel, None, **options), like, part)
        return back if like.shape == x.shape else _even(back, x, [channels])

    def _product(self, propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
        if node in self._numbers:
            return self._attend(node, single_output(relevance))
        if len(node.inputs) > 1:
            raise refusal(node, "multiplies activations, and is no attention that is known")
        part = single_output(relevance)
        left, right, multiply = factors(node)
        value, constant = (left, right) if isinstance(left, Value) else (right, left)
        letters, others, output = axis_letters(node, value)
        summed = [i for i, letter in enumerate(letters) if letter in others and letter not in output]
        weight = at_least_float32(constant).abs().to(part.dtype)
        if self.marks.of_one_token(value, summed):
            weight = torch.ones_like(weight)
        ones = torch.ones_like(value.tensor, dtype=part.dtype)
        back = _by_weights(lambda x: multiply(*((x, weight) if value is left else (weight, x))), ones, part)
        return [(value, back)]

    def _multiply(self, propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
        part = single_output(relevance)
        constant = next((x for x in node.args if isinstance(x, Tensor)), None)
        if constant is not None:  # a mask: nothing is read where it is 0
            part = torch.where(constant == 0, 0.0, part)
        values = gated(self.marks, propagator, node)
        return [shape_back(value, part / len(values)) for value in values]

    def _normalized(self, propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
        axis = node.argument(1, "dim")
        value = node.inputs[0]
        if not isinstance(axis, int) or not self.marks.of_one_token(value, [axis % len(value.shape)]):
            raise refusal(node, "normalises over tokens, and is no attention that is known")
        return unchanged(propagator, node, relevance)

    # -- Sums and attention --------------------------------------------------------------------------------------------

    def _sum(self, propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
        part = single_output(relevance)
        for operand in self.branches.operands(node):
            # The whole row, where only a part of it came here.
            row = part / self.branches.scale(node) if operand.on_top else part * operand.share
            yield shape_back(operand.value, row)

    def _attend(self, node: Node, part: Tensor) -> InputRelevance:
        number = self._numbers[node]
        attention = self.attentions[number]
        parts = self.maps(number)
        if parts is None:
            raise refusal(node, "has no residual connection around it, so that its block cannot be left out")
        if not isinstance(attention.values, Value):
            return []
        weights, values, output = axis_letters(attention.product, attention.weights)
        features = [axis for axis, letter in enumerate(values) if letter not in weights]
        if not self.marks.of_one_token(attention.values, features):
            raise refusal(node, "attends over features, not over tokens")
        if not set(weights[:-1]) <= set(output):
            raise refusal(node, "adds up several maps")
        rows = torch.einsum(f"{output}->{weights[:-1]}", part)
        shape = [max(attention.weights.shape[weights.index(x)], 1) for x in weights[:-2] + weights[-1]]
        passed = part.new_zeros(shape)
        for queries, block in parts:
            read = rows[..., queries].to(block.dtype)
            if self.averaged and bool(((block.sum(-1) - 1).abs() > _SUM_TOLERANCE)[read != 0].any()):
                raise refusal(node, "has a map whose rows do not sum to 1")
            passed = passed + torch.einsum(f"{weights[:-1]},{weights}->{weights[:-2] + weights[-1]}", read, block)
        return [_at_values(attention.values, passed, weights[:-2] + weights[-1], values)]


def _at_values(value: Value, passed: Tensor, letters: str, values: str) -> tuple[Value, Tensor]:
    """What arrives at the values: the same for each of a token's features."""
    remaining = "".join(letter for letter in values if letter in letters)
    summed = torch.einsum(f"{letters}->{remaining}", passed)
    placed = aligned(summed, remaining, values)
    size = 1
    for axis, letter in enumerate(values):
        if letter not in remaining:
            size *= value.shape[axis]
        elif value.shape[axis] < placed.shape[axis]:  # one for several heads
            placed = placed.sum(axis, keepdim=True)
    return value, (placed / size).expand(value.shape)


def _even(row: Tensor, value: Value, axes: Sequence[int]) -> Tensor:
    """The same for each of a token's features."""
    size = 1
    for axis in axes:
        size *= value.shape[axis]
    return (row / size).expand(value.shape)


def _by_weights(forward: Callable[[Tensor], Tensor], ones: Tensor, part: Tensor) -> Tensor:
    """A row through a linear map with weights that are not negative: to what is read, by its weight."""
    with torch.no_grad():
        read = forward(ones)
    return transposed(forward, ones, rules.safe_divide(part, read))


def _averaged(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    part = single_output(relevance)
    if node.kwargs.get("mode") == "bicubic":
        raise refusal(node, "has negative weights")
    value = node.inputs[0]
    ones = torch.ones_like(value.tensor, dtype=part.dtype)
    yield value, _by_weights(lambda x: node.call(lambda _: x), ones, part)


def _mean(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    producer = propagator.producer(node.inputs[0])
    if producer is not None and producer.name == "stack":
        raise refusal(node, "adds up what was stacked, which may be states and attention")
    return evenly(propagator, node, relevance)


def _accumulated(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    raise refusal(node, "adds tokens where indices say")
