"""Which entries of a value are of one token: marks of the tokens go forwards along a tape, through all that mixes them.

Every place of the input has a mark, a random number. An entry that is made of several places has a number that is made
of their marks. So entries with the same mark are of the same token: those of its features, in each of its heads. An
axis along which no mark changes counts features; one along which they change counts tokens.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lrptrain.relevance.propagation.linear_maps import convolution_options, factors
from lrptrain.relevance.propagation.propagator import Propagator
from lrptrain.relevance.tape.functions import (
    ADDING,
    AS_ANOTHER,
    AVERAGES,
    ENTRIES,
    MAXIMA,
    MIXTURES,
    NORMALISATIONS,
    PRODUCTS,
    PUTS,
    WRITTEN,
)
from lrptrain.relevance.tape.nodes import (
    Node,
    Value,
    aligned,
    axis_letters,
    making,
    named_axes,
    operands_of,
    tensors_in,
)
from lrptrain.relevance.tape.regions import Graph
from lrptrain.relevance.tokens.attentions import Attention, scores_of
from lrptrain.relevance.tokens.labels import BROADCAST, REDUCTIONS, compact, moved, without, written_over
from lrptrain.relevance.types import UnsupportedMethodError

# Marks that differ by less are of one token. They are means of numbers about 1: rounding makes a smaller difference,
# and two tokens hardly ever so small a one.
TOLERANCE = 1e-9
# Each entry is a weighted mean of entries of one input, by the geometry of the call.
_WINDOWS = (AVERAGES | MIXTURES | {name for name in MAXIMA if "pool" in name}) - ADDING - {"cumsum"}
_ALONG = frozenset({"softmax", "log_softmax", "normalize"})

Marks = Float[Tensor, "..."]


class TokenMarks:
    """The marks of the values that the logits come from, with size 1 along the axes where they do not change.

    Args:
        propagator: The tape.
        nodes: The operations between the input and the logits, first to last.
        attentions: The attention of each product with values. What it makes has the marks of its queries.

    Raises:
        UnsupportedMethodError: If it is not known of an operation which tokens it reads.
    """

    def __init__(self, propagator: Propagator, nodes: Iterable[Node], attentions: Mapping[Node, Attention]) -> None:
        self._propagator = propagator
        self._attentions = attentions
        graph = Graph(propagator.tape)
        self._scores = {node: _scores(graph, attention) for node, attention in attentions.items()}
        root = propagator.root
        self._marks: dict[Value, Marks] = {root: _of_places(root)}
        for node in self._needed(nodes):
            for value, marks in zip(node.outputs, self._of_outputs(node), strict=True):
                self._marks[value] = _compact(marks)

    def __getitem__(self, value: object) -> Marks:
        """Return the marks of a value, in its shape; those of a constant are 0."""
        if isinstance(value, Value):
            return self._marks[value].expand(value.shape)
        tensor = torch.as_tensor(value)
        device = next(iter(self._marks.values())).device
        return torch.zeros(1, dtype=torch.float64, device=device).expand(tensor.shape)

    def compact(self, value: Value) -> Marks:
        """Return the marks with size 1 along the axes where they do not change."""
        return self._marks[value]

    def of_one_token(self, value: Value, axes: Iterable[int]) -> bool:
        """Whether the entries along some axes are of one token, whatever the place on the others."""
        return all(self._marks[value].shape[axis] == 1 for axis in axes)

    def features(self, value: Value) -> list[int]:
        """The axes along which the token stays the same, but for that of the samples."""
        samples = self._propagator.axis(value).axis
        return [axis for axis, size in enumerate(self._marks[value].shape) if size == 1 and axis != samples]

    def of_same_tokens(self, first: Value, second: Value) -> bool:
        """Whether entries that meet as the two are broadcast are of the same tokens."""
        return not _differ(self._marks[first], self._marks[second])

    # -- Which operations --------------------------------------------------------------------------------------------

    def _needed(self, nodes: Iterable[Node]) -> list[Node]:
        """The operations of which the marks are needed: also those that make queries."""

        def read(node: Node) -> Iterable[Value]:
            attention = self._attentions.get(node)
            read = node.inputs if attention is None else (attention.values, _attending(self._scores[node])[0])
            return (value for value in read if isinstance(value, Value))

        return making(self._propagator.tape.nodes, [value for node in nodes for value in node.outputs], read)

    # -- What an operation makes of marks ------------------------------------------------------------------------------

    def _of_outputs(self, node: Node) -> list[Marks]:
        try:
            marks = self._rule(node)
            return [part.expand(value.shape) for part, value in zip(marks, node.outputs, strict=True)]
        except (RuntimeError, IndexError, TypeError, ValueError, AttributeError, KeyError) as error:
            raise refusal(node) from error

    def _rule(self, node: Node) -> list[Marks]:
        name = node.name
        count = len(node.outputs)
        if node in self._attentions:
            return [self._of_queries(node)]
        if name in ENTRIES:
            return moved(self, node)
        if name in WRITTEN | PUTS:
            return written_over(self, node) if name == "setitem" else moved(self, node)
        if name in AS_ANOTHER or name in NORMALISATIONS | _ALONG or hasattr(node.function, "frozen"):
            return [self[node.inputs[0]]] * count
        if name in ("max", "min") and isinstance(node.argument(1, "dim", node.kwargs.get("other")), (Value, Tensor)):
            return [self._together(node)]
        if name in _WINDOWS:
            return [x for x in tensors_in(node.call(lambda value: self[value])) if x.is_floating_point()]
        if name in REDUCTIONS:
            return self._reduced(node)
        if name == "linear":
            return [self._marks[node.inputs[0]].mean(-1, keepdim=True)]
        if name.startswith("conv"):
            return [self._convolved(node)]
        if name in PRODUCTS and len(node.inputs) == 1:
            return [self._multiplied(node)]
        if name in BROADCAST:
            return [self._together(node)]
        raise refusal(node)

    def _together(self, node: Node) -> Marks:
        """Entries that are made of an entry of each input."""
        marks = [self._marks[value] for value in node.inputs]
        return sum(marks[1:], start=marks[0]) / len(marks)

    def _reduced(self, node: Node) -> list[Marks]:
        axes = named_axes(node, REDUCTIONS[node.name])
        x = self._marks[node.inputs[0]].mean(axes, keepdim=True)
        keeps_axes = all(len(value.shape) == x.ndim for value in node.outputs)
        return [x if keeps_axes else without(x, axes)] * len(node.outputs)

    def _convolved(self, node: Node) -> Marks:
        """Every entry is a mean over its kernel, of the channels of its group."""
        x = self[node.argument(0, "input")]
        weight = node.argument(1, "weight")
        options = convolution_options(node)
        channels = x.ndim - weight.ndim + 1
        groups = options.get("groups", 1) if self._marks[node.inputs[0]].shape[channels] > 1 else 1
        x = x.reshape(*x.shape[:channels], groups, -1, *x.shape[channels + 1 :]).mean(channels + 1)
        # Of unequal weights: two places that read the same tokens, as in a small image, are two tokens all the same.
        kernel = (
            _random(list(weight.shape[2:])).to(x.device).expand(groups, 1, *weight.shape[2:]) / weight[0, 0].numel()
        )
        result: Tensor = node.function(x, kernel, None, **{**options, "groups": groups})
        repeats = node.outputs[0].shape[channels] // groups
        return result.repeat_interleave(repeats, channels) if groups > 1 else result

    def _multiplied(self, node: Node) -> Marks:
        """A product with a constant, of which every entry is a mean over what is summed."""
        left, right, multiply = factors(node)
        ones = [torch.ones(x.shape, dtype=torch.float64, device=self[left].device) for x in (left, right)]
        marks = [
            self[x] if isinstance(x, Value) else ones_of_x for x, ones_of_x in zip((left, right), ones, strict=True)
        ]
        return multiply(*marks) / multiply(*ones)

    def _of_queries(self, node: Node) -> Marks:
        """What attention makes is of the tokens that attend."""
        attention = self._attentions[node]
        scores = self._scores[node]
        queries, letters = _attending(scores)
        marks = self._marks[queries] if isinstance(queries, Value) else self._of_learned(queries)
        rows = _placed(marks, letters, axis_letters(scores, queries)[2][:-1])
        # On its way to the product the map may have been given another shape, not another order.
        rows = rows.expand(scores.outputs[0].shape[:-1]).reshape(attention.weights.shape[:-1])
        weights, _, output = axis_letters(node, attention.weights)
        return _placed(rows, weights[:-1], output)

    def _of_learned(self, queries: Tensor) -> Marks:
        """Learned queries are no tokens of the input, but each is one."""
        count = queries.shape[-2]
        numbers = torch.arange(1, count + 1, dtype=torch.float64, device=queries.device)
        return numbers[:, None].expand(queries.shape)


def _of_places(root: Value) -> Marks:
    """A random number for each place of the input: for each pixel of an image, for each token of a text."""
    shape = list(root.shape)
    shape[0] = 1
    if len(shape) == 4:
        shape[1] = 1
    elif len(shape) == 3:
        shape[2] = 1
    return _random(shape).to(root.tensor.device)


def _random(shape: Sequence[int]) -> Tensor:
    """Numbers between 0.5 and 1.5, the same in every call."""
    # A generator of its own, so that no random number of the run is used up.
    generator = torch.Generator().manual_seed(0)
    return torch.rand(list(shape), dtype=torch.float64, generator=generator) + 0.5


def _compact(marks: Marks) -> Marks:
    """The marks, with size 1 along the axes where they do not change."""
    marks = compact(marks)
    # Features are mostly last, and shrink what is looked at next.
    for axis in reversed(range(marks.ndim)):
        first = marks.narrow(axis, 0, 1)
        # The second entry tells of most axes that they are not the same all along.
        if marks.shape[axis] > 1 and _differ(marks.narrow(axis, 1, 1), first):
            continue
        if marks.shape[axis] > 2 and _differ(marks, first):
            continue
        marks = first
    return marks


def _differ(marks: Marks, others: Marks) -> bool:
    return bool(((marks - others).abs_() > TOLERANCE).any())


def _placed(x: Tensor, letters: str, output: str) -> Tensor:
    """The mean over the axes whose letters are not in the output, the others at their places there."""
    others = [axis for axis, letter in enumerate(letters) if letter not in output]
    mean = x.mean(others) if others else x
    return aligned(mean, "".join(letter for letter in letters if letter in output), output)


def _scores(graph: Graph, attention: Attention) -> Node:
    """The product of queries and keys that a map is made of.

    Raises:
        UnsupportedMethodError: If there is none.
    """
    product = scores_of(graph, attention)
    if product is None:
        raise refusal(attention.product)
    return product


def _attending(scores: Node) -> tuple[Value | Tensor, str]:
    """The factor of the scores that their rows are made of, and the letters of its axes."""
    left, right = operands_of(scores)
    first, second, output = axis_letters(scores, left)
    return (left, first) if output[-2] in first else (right, second)


def refusal(node: Node, why: str = "is not known to read certain tokens and no others") -> UnsupportedMethodError:
    """The error for an operation through which no row of tokens goes."""
    return UnsupportedMethodError(
        f"{node.name} in module '{node.path or '(model)'}' {why}, so that no row of tokens can be followed through it"
    )
