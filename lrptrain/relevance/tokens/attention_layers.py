"""How the attention blocks of a model follow one another, and over which tokens: when their maps may be multiplied.

Attention maps are multiplied as if nothing but attention moved anything from token to token. Origins of the tokens,
walked from the states before the first block to the last states, tell whether that is so: the product of a block's map
with its values passes each token on to itself, and whatever else joins two tokens is named and refused.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.relevance.advice import REACH_INPUT, other_methods
from lrptrain.relevance.propagation.propagator import Propagator
from lrptrain.relevance.tape.functions import CAST, ENTRIES
from lrptrain.relevance.tape.nodes import Node, Value, behind, making
from lrptrain.relevance.tape.regions import Graph
from lrptrain.relevance.tokens.attentions import Attention, find_attentions, has_constant_queries
from lrptrain.relevance.tokens.provenance import MIXED, NOWHERE, TokenProvenance
from lrptrain.relevance.tokens.token_walk import between, bottlenecks, numbered
from lrptrain.relevance.types import UnsupportedMethodError

OTHER_TOKENS = "is between other tokens than those of the sequence (cross-attention?)"
WAY_OUT = "attnlrp and input_x_gradient reach the input without attention maps"
# Streams of tokens: the sequence itself, and the text as a decoder reads it, one token later.
OWN = 0
DECODER = 1
Factor = float | Tensor
Streams = Mapping[Attention, tuple[int, int]]


def check_one_sequence(propagator: Propagator, logits: Value) -> None:
    """Reject a model whose maps cannot be multiplied from the input to the logits."""
    graph = Graph(propagator.tape)
    every = find_attentions(propagator.tape, square=False)
    passed = set(between(propagator, None, logits, {each.product: each for each in every}))
    ways = [x for x in every if x.product in passed and not has_constant_queries(graph, x)]
    shapes = [tuple(way.block.shape[-2:]) for way in ways]
    is_square = [queries == keys for queries, keys in shapes]
    while is_square and not is_square[-1] and any(is_square):
        is_square.pop()
    if not all(is_square):
        queries, keys = shapes[is_square.index(False)]
        raise UnsupportedMethodError(
            f"a block attends from {queries} tokens to {keys} others (merged ones, or those of another input), so that "
            f"maps cannot be multiplied; {other_methods(*REACH_INPUT)} reach the input without them"
        )


def check_block(number: int, blocks: int, argument: str = "block") -> None:
    """Raise if a model has no block of this number; negative ones count from the end."""
    if not -blocks <= number < blocks:
        raise ValueError(f"{argument}={number} is out of range for a model of {blocks} blocks")


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """What weighs one set of values: a map, or a sum of maps with factors (differential attention).

    The first factor is 1, so that the gradient at the first part is the gradient at the sum.
    """

    parts: tuple[Value, ...]
    factors: tuple[Factor, ...] = (1.0,)


@dataclass(frozen=True, eq=False)
class AttentionLayer:
    """Attention that acts side by side on the same states: one map mostly.

    Attributes:
        maps: The maps.
        queries: The stream of the tokens that attend.
        keys: The stream of the tokens that are attended to; another one in cross-attention.
        residuals: How many times the states themselves are in the sum: for each branch that adds its output to them
            before the branches are joined, once.
    """

    maps: tuple[AttentionMap, ...]
    queries: int = OWN
    keys: int = OWN
    residuals: int = 1

    @property
    def blocks(self) -> tuple[Value, ...]:
        """The blocks of all maps."""
        return tuple(value for attention in self.maps for value in attention.parts)


@dataclass(eq=False)
class AttentionLayers:
    """The attention layers of a recorded model of `length` tokens, first to last, up to the last states, `output`."""

    propagator: Propagator
    attentions: Sequence[Attention]
    output: Value
    length: int

    def __post_init__(self) -> None:
        self._checked: dict[int, list[AttentionLayer]] = {}

    def layers(self, start: int = 0, argument: str = "start_layer") -> list[AttentionLayer]:
        """The layers from one on; negative numbers count from the end.

        Raises:
            ValueError: If there is no such layer.
            UnsupportedMethodError: If their maps cannot be multiplied, with the reason.
        """
        steps = self._steps
        check_block(start, len(steps), argument)
        start %= len(steps)
        if start not in self._checked:
            self._checked[start] = self._check(steps[start:])
        return self._checked[start]

    @cached_property
    def _graph(self) -> Graph:
        return Graph(self.propagator.tape)

    # -- Order --------------------------------------------------------------------------------------------------------

    @cached_property
    def _before(self) -> dict[Attention, set[Value]]:
        """The blocks that the values of each attention come from."""
        by_product = {attention.product: attention for attention in self.attentions}
        sources: dict[Value, frozenset[Value]] = {}
        before: dict[Attention, set[Value]] = {}
        for node in self.propagator.tape.nodes:
            attention = by_product.get(node)
            read = [value for value in node.inputs if attention is None or value is not attention.weights]
            reached = frozenset[Value]().union(*(sources.get(value, frozenset()) for value in read))
            if attention is not None:
                before[attention] = set(reached)
                reached |= {attention.block}
            sources.update(dict.fromkeys(node.outputs, reached))
        return before

    @cached_property
    def _steps(self) -> list[list[Attention]]:
        """Attention in the order in which it follows one another; what acts side by side is together."""
        steps: list[list[Attention]] = []
        for attention in self.attentions:
            if steps and self._before[attention] == self._before[steps[-1][0]]:
                steps[-1].append(attention)
            else:
                steps.append([attention])
        return steps

    def _check_order(self, steps: Sequence[Sequence[Attention]], streams: Streams) -> None:
        """Every layer reads what all layers before it have written to its keys."""
        written: dict[int, set[Value]] = {OWN: set(), DECODER: set()}
        used = {attention.block for step in steps for attention in step}
        for step in steps:
            queries, keys = streams[step[0]]
            for attention in step:
                if written[keys] - self._before[attention]:
                    raise _refusal(attention, "neither follows the attention before it nor acts beside it")
                if attention.block in self._before[attention]:
                    raise _refusal(attention, "uses the probabilities of an earlier block once more")
            if keys == OWN and (self._before[step[0]] & used) - written[OWN]:
                raise _refusal(step[0], "reads what a decoder has written")
            written[queries].update(attention.block for attention in step)

    # -- Tokens -------------------------------------------------------------------------------------------------------

    def _check(self, steps: Sequence[Sequence[Attention]]) -> list[AttentionLayer]:
        used = [attention for step in steps for attention in step]
        for attention in self.attentions:
            if has_constant_queries(self._graph, attention) or self._adds_learned_tokens(attention):
                raise _refusal(attention, OTHER_TOKENS)
        walk = _Walk(self.propagator, self.attentions, used, self.output, self.length)
        walk.run()
        steps = [part for step in steps for part in _by_streams(step, walk.streams)]
        self._check_order(steps, walk.streams)
        self._check_heads(used)
        return [AttentionLayer(self._maps(step), *walk.streams[step[0]], self._residuals(step)) for step in steps]

    def _adds_learned_tokens(self, attention: Attention) -> bool:
        """Whether the attention's output is added to states that are the same for every input."""
        for node, operands in behind(self.propagator.tape.nodes, attention.product.outputs):
            if node.name == "add" and len(node.inputs) == 2 and len(operands) == 1:
                return False
            if node.name == "add":
                constants = [x for x in (node.argument(0, "input"), node.argument(1, "other")) if isinstance(x, Tensor)]
                if any(x.ndim >= 2 and x.shape[-2] == self.length for x in constants):
                    return True
        return False

    def _residuals(self, step: Sequence[Attention]) -> int:
        """How many residual connections go around attention that acts side by side.

        x + A x + B x             one: the second adds to what the first has added to
        (x + A x) + (x + B x)     two
        """
        if len(step) == 1:
            return 1
        sums = {self._residual_sum(attention) for attention in step}
        return max(len(sums - {None}), 1)

    def _residual_sum(self, attention: Attention) -> Node | None:
        """The first sum of what the attention makes with states that its values are made of."""
        values = [attention.values] if isinstance(attention.values, Value) else []
        read = {*values, *(value for node in making(self.propagator.tape.nodes, values) for value in node.inputs)}
        for node, operands in behind(self.propagator.tape.nodes, attention.product.outputs):
            others = set(node.inputs) - operands
            # A bias of relative positions, say, is added too, but is no state that the values are made of.
            if node.name == "add" and others and others <= read:
                return node
        return None

    # -- Differential attention ---------------------------------------------------------------------------------------

    def _maps(self, step: Sequence[Attention]) -> tuple[AttentionMap, ...]:
        """One map for each set of values: what weighs the same values and is added up is one map."""
        maps: dict[Value, AttentionMap] = {}
        for attention in step:
            maps.setdefault(attention.block, AttentionMap((attention.block,)))
        for first, second, factor in self._sums(step):
            maps[first.block] = AttentionMap((first.block, second.block), (1.0, factor))
            maps.pop(second.block, None)
        return tuple(maps.values())

    def _sums(self, step: Sequence[Attention]) -> Iterable[tuple[Attention, Attention, Factor]]:
        """Pairs of attention over the same values of which the second is added to the first, times a factor."""
        by_output = {attention.product.outputs[0]: attention for attention in step}
        for node in self.propagator.tape.nodes:
            if node.name not in ("add", "sub") or len(node.inputs) != 2 or "alpha" in node.kwargs:
                continue
            operands = [self._scaled(node.argument(0, "input")), self._scaled(node.argument(1, "other"))]
            pair = [by_output.get(value) for value, _ in operands]
            if pair[0] is None or pair[1] is None or pair[0].values is not pair[1].values:
                continue
            sign = -1.0 if node.name == "sub" else 1.0
            yield pair[0], pair[1], sign * operands[1][1] / operands[0][1]

    def _scaled(self, value: Value) -> tuple[Value, Factor]:
        """The value of which this one is a multiple by a number, and the number."""
        factor: Factor = 1.0
        while True:
            node = self._graph.producer(value)
            if node is None or node.name not in CAST | {"mul"} or len(node.inputs) != 1:
                return value, factor
            if node.name == "mul":
                operands = (node.argument(0, "input"), node.argument(1, "other"))
                number = operands[1] if operands[0] is node.inputs[0] else operands[0]
                if isinstance(number, Tensor) and number.numel() > 1:
                    return value, factor
                factor = factor * number
            value = node.inputs[0]

    def _check_heads(self, attentions: Sequence[Attention]) -> None:
        """Heads of one attention that are subtracted from one another weigh values together."""
        joined = {frozenset((a.product.outputs[0], b.product.outputs[0])) for a, b, _ in self._sums(attentions)}
        for attention in attentions:
            moving = {attention.product.outputs[0]}
            for node in self.propagator.tape.nodes:
                operands = moving.intersection(node.inputs)
                if node.name in ("add", "sub") and len(operands) == 2:
                    sources = frozenset(self._scaled(value)[0] for value in operands)
                    if sources not in joined:
                        raise _refusal(
                            attention, "adds or subtracts its heads (differential attention) behind the values"
                        )
                if operands and (node.name in ENTRIES | CAST or (node.name == "mul" and len(node.inputs) == 1)):
                    moving.update(node.outputs)


def _by_streams(step: Sequence[Attention], streams: Streams) -> list[list[Attention]]:
    """The encoder's first block and the decoder's follow nothing, both; they are not side by side."""
    parts: dict[tuple[int, int], list[Attention]] = {}
    for attention in step:
        parts.setdefault(streams[attention], []).append(attention)
    return list(parts.values())


@dataclass(eq=False)
class _Walk:
    """Origins of the tokens between the states before the first used block and the last states."""

    propagator: Propagator
    attentions: Sequence[Attention]
    used: Sequence[Attention]
    output: Value
    length: int

    def __post_init__(self) -> None:
        self.origins = TokenProvenance()
        self.streams: dict[Attention, tuple[int, int]] = {}
        self._products = {attention.product: attention for attention in self.attentions}

    def run(self) -> None:
        """Walk."""
        entry = self._entry()
        if entry is None:
            raise UnsupportedMethodError(
                f"no states [batch, {self.length}, width] were found from which all attention blocks come, so that it "
                f"cannot be told what else mixes tokens; {WAY_OUT}"
            )
        self.origins, numbers = numbered(self.propagator, entry, self.length)
        for node in between(self.propagator, entry, self.output, self._products):
            attention = self._products.get(node)
            if attention is not None:
                self._attend(attention, numbers)
                continue
            self.origins.follow(node)
            if self.origins.mixed(node):
                raise UnsupportedMethodError(
                    f"{node.name} in module '{node.path or '(model)'}' is not known to keep tokens apart, so that "
                    f"attention maps do not say all of what tokens read from one another; {WAY_OUT}"
                )
        for attention in self.used:
            if attention not in self.streams:
                raise _refusal(attention, "does not lead to the last states of the sequence")

    def _entry(self) -> Value | None:
        """The latest states from which all of it comes; of a text, the embeddings, if more is mixed before."""
        targets = [self.output, *(value for attention in self.used for value in attention.product.inputs)]
        latest = next(bottlenecks(self.propagator, targets, self.length), None)
        root = self.propagator.root
        # The patches of an image are cut by convolutions, and those may well mix what is no token yet.
        is_text = self.propagator.token_axis(root, self.length) is not None
        if is_text and len(self.used) == len(self.attentions) and (latest is None or not self._is_local(latest)):
            return root
        return latest

    def _is_local(self, states: Value) -> bool:
        """Whether states of a text come from their own token and at most two neighbours on each side (trigrams)."""
        leaf = self.propagator.tape.leaf
        axis = self.propagator.token_axis(states, self.length)
        if states is self.propagator.root or states.edge is None or leaf is None or axis is None:
            return states is self.propagator.root
        # A sum of features would have no slope behind a norm.
        slope = torch.arange(states.shape.numel(), device=leaf.device).view(states.shape).sin().to(states.tensor.dtype)
        for token in (self.length // 2, self.length - 1):
            indicator = torch.zeros_like(slope).index_fill(axis, torch.tensor([token], device=leaf.device), 1.0)
            (gradient,) = torch.autograd.grad([states.edge], [leaf], [slope * indicator], retain_graph=True)
            read = gradient.abs().sum((0, 2)).nonzero().flatten()
            if ((read - token).abs() > 2).any():
                return False
        return True

    def _attend(self, attention: Attention, numbers: Float[Tensor, " length"]) -> None:
        """A query is passed on to itself."""
        of_values, of_output = attention.axes
        keys = self.origins.along(attention.values, of_values)
        if (keys == MIXED).any():
            raise _refusal(attention, f"is over features or windows, not over the {self.length} tokens of the sequence")
        queries = self._queries(attention)
        queries = keys if queries is None or len(queries) != len(keys) else queries
        (output,) = attention.product.outputs
        axis = of_output % len(output.shape)
        self.origins[output] = queries.view([-1 if i == axis else 1 for i in range(len(output.shape))])
        of_queries = self._stream(queries, numbers)
        of_keys = self._stream(keys, numbers)
        if of_queries is not None and of_keys is not None:
            self.streams[attention] = (of_queries, of_keys)
        elif attention in self.used:
            raise _refusal(attention, OTHER_TOKENS)

    def _queries(self, attention: Attention) -> Float[Tensor, " length"] | None:
        """The origins of the states to which the attention's output is added: those of the tokens that attend."""
        for node, operands in behind(self.propagator.tape.nodes, attention.product.outputs):
            if node.name == "add" and len(node.inputs) == 2 and len(operands) == 1:
                (residual,) = set(node.inputs) - operands
                axis = self.propagator.token_axis(residual, self.length)
                if axis is None or residual not in self.origins:
                    return None
                origins = self.origins.along(residual, axis)
                return origins if (origins != NOWHERE).any() else None
        return None

    def _stream(self, origins: Tensor, numbers: Tensor) -> int | None:
        if torch.equal(origins, numbers):
            return OWN
        return DECODER if torch.equal(origins, numbers - 1) else None


def _refusal(attention: Attention, why: str) -> UnsupportedMethodError:
    return UnsupportedMethodError(
        f"the attention of module '{attention.product.path or '(model)'}' {why}, so that its maps are not maps of the "
        f"input; {WAY_OUT}"
    )
