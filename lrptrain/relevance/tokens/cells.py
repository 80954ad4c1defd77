"""The values of a forward pass that tokens are made of: the last feature map before the sequence, or rows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lrptrain.relevance.propagation.composite import Composite, InputRelevance, OutputRelevance, RuleFunction
from lrptrain.relevance.propagation.linear_maps import linear_map, vjp
from lrptrain.relevance.propagation.operation_rules import choose, shape_back, single_output
from lrptrain.relevance.propagation.propagator import Propagator, unchanged
from lrptrain.relevance.tape.functions import AVERAGES, DENSE, ELEMENTWISE, MAXIMA, PRODUCTS
from lrptrain.relevance.tape.nodes import Node, Value, making, values_of
from lrptrain.relevance.tape.sample_axes import split_samples
from lrptrain.relevance.tokens.flow import FLOW
from lrptrain.relevance.tokens.geometry import Line, even_line, lines_to, moved_from, tiled
from lrptrain.relevance.types import UnsupportedOperationError


@dataclass(frozen=True, eq=False)
class Cells:
    """Values of which every cell becomes a token.

    Attributes:
        value: A feature map `[samples, channels, *spatial]`, or rows `[..., cells, width]`.
        channels: The axis of the features of a cell.
        start: The value nearest to the cells that holds the input's own entries.
        lines: Where cells stand in `start`, one line for each spatial axis; () for rows, which are `start` itself.
    """

    value: Value
    channels: int
    start: Value
    lines: tuple[Line, ...] = ()

    def per_cell(self, propagator: Propagator, x: Float[Tensor, "..."]) -> Float[Tensor, "samples cells"]:
        """Sum numbers of the shape of `value` over the features of every cell."""
        return by_sample(propagator, self.value, self.channels, x.sum(self.channels, keepdim=True)).flatten(1)


def by_sample(propagator: Propagator, value: Value, channels: int, x: Tensor) -> Float[Tensor, "samples cells width"]:
    """Bring the samples of a value to the front and its features to the end, what is between them in its order."""
    at = propagator.axis(value)
    axis = at.axis - (channels < at.axis)
    parts = split_samples(x.movedim(channels, -1), at._replace(axis=axis), propagator.samples)
    return parts.reshape(propagator.samples, -1, x.shape[channels])


def find_cells(propagator: Propagator, block: Value | None = None) -> Cells | None:
    """Find the cells that the tokens of a model are made of.

    Where a model has attention, they are those of the last feature map before it; where it has none, those of its last
    feature map of more than one cell. A model that reads its input by a linear layer has rows.

    Args:
        propagator: Of the recording.
        block: The first attention probabilities over the whole sequence; where there are none, the first product of two
            activations counts.

    Returns:
        None if the model takes its input by none of these.
    """
    nodes = propagator.tape.nodes
    root = propagator.root
    first = next((node for node in nodes if node.name in DENSE | PRODUCTS), None)
    if first is None:
        return None
    moved = moved_from(nodes, root)
    source = first.inputs[0]
    if first.name not in ("conv1d", "conv2d", "conv3d"):
        is_read = source in moved and len(first.inputs) == 1 and _reads_last_axis(first, source)
        return Cells(source, len(source.shape) - 1, source) if is_read else None
    product = attention_product(nodes, block)
    maps = [node.outputs[0] for node in _feature_maps(nodes, first.name, product)]
    if product is not None:
        maps = [value for value in maps if _is_read(propagator, value, product.inputs[0])] or maps
    if not maps:
        return None
    last = maps[0]
    # A convolution of positions after the last feature map has the same cells, but may be hard to follow.
    for value in (value for value in maps if value.shape[2:] == last.shape[2:] and value.shape[0] == last.shape[0]):
        path = lines_to(nodes, value, moved, len(last.shape) - 2)
        if path is not None and path[0].shape[0] == last.shape[0]:
            lines = map(tiled, path[1], path[0].shape[2:], last.shape[2:])
            return Cells(value, 1, path[0], tuple(lines))
    start = source if source in moved else root
    if len(start.shape) != len(last.shape) or start.shape[0] != last.shape[0]:
        return None
    return Cells(last, 1, start, tuple(map(even_line, start.shape[2:], last.shape[2:])))


def _reads_last_axis(node: Node, source: Value) -> bool:
    if node.name == "einsum" or len(source.shape) < 2:
        return False
    return node.argument(0, "input") is source


def _feature_maps(nodes: list[Node], convolution: str, end: Node | None) -> Iterator[Node]:
    """The convolutions that may make the cells, the last one first; before attention also pooling."""
    kinds = {convolution} if end is None else {convolution, f"avg_pool{convolution[4:]}", f"max_pool{convolution[4:]}"}
    for node in reversed(nodes if end is None else nodes[: nodes.index(end)]):
        sizes = node.outputs[0].shape
        # Without attention, a gate or the classifier may be a convolution of a single cell.
        if node.name in kinds and len(sizes) == int(convolution[4]) + 2 and (end or sizes[2:].numel() > 1):
            yield node


def attention_product(nodes: list[Node], block: Value | None) -> Node | None:
    """The product of queries and keys: the last one of two activations before the block, or the first one of all."""
    # Queries and keys may be the very same.
    products = [node for node in nodes if node.name in PRODUCTS and len(values_of(node)) > 1]
    if block is None:
        return products[0] if products else None
    end = next(i for i, node in enumerate(nodes) if block in node.outputs)
    before = set(nodes[:end])
    return next((node for node in reversed(products) if node in before), None)


def _is_read(propagator: Propagator, cells: Value, query: Value) -> bool:
    """Whether the queries come from a feature map: all they know came through it, or its every cell reaches them."""
    return _is_passed(propagator, cells, query) or _reaches(propagator, cells, query)


def _is_passed(propagator: Propagator, cells: Value, query: Value) -> bool:
    """Whether no way from the queries to the input goes around a feature map, as it does around a side branch."""
    nodes = [node for node in propagator.tape.nodes if cells not in node.outputs]
    root = propagator.root
    return root is cells or (root is not query and all(root not in node.inputs for node in making(nodes, [query])))


def _reaches(propagator: Propagator, cells: Value, query: Value) -> bool:
    """Whether every cell of a feature map reaches the queries by operations on single tokens, in some sample."""
    # Of a padded sample the model may overwrite what is padding.
    ones = torch.ones(query.shape, dtype=torch.float64, device=query.tensor.device)
    arrived = traced(propagator, {query: ones}, cells)
    try:
        by_cell = by_sample(propagator, cells, 1, arrived).sum(-1)
    except UnsupportedOperationError:  # the samples are lost before the attention
        by_cell = arrived.sum(1).flatten()[None]
    return bool((by_cell > 0).any(0).all())


def tokens_of_cells(propagator: Propagator, cells: Cells, tokens: Value, length: int) -> Int[Tensor, " cells"] | None:
    """Which token every cell becomes, in all samples.

    Returns:
        Numbers from 0 on; None if the tokens are no copies of the cells, one of each.
    """
    # Token i holds the number i, and its square. What arrives at a cell is divided by how much of a token arrives at
    # all, so that it does not matter what goes elsewhere. Where parts of several tokens arrive, the squares do not fit.
    axis = propagator.token_axis(tokens, length)
    numbers = torch.arange(length, dtype=torch.float64, device=tokens.tensor.device)
    numbers = numbers.view([-1 if i == axis else 1 for i in range(len(tokens.shape))])
    arriving, first, second = (
        cells.per_cell(
            propagator,
            traced(propagator, {tokens: (numbers**power / tokens.shape[-1]).expand(tokens.shape)}, cells.value),
        )
        for power in (0, 1, 2)
    )
    # What a model overwrites in a padded sample arrives in the others only.
    arrives = arriving > 1e-9
    mean = torch.where(arrives, first / arriving, 0.0)
    spread = torch.where(arrives, second / arriving - mean**2, 0.0)
    number = mean.round()
    in_any = number.where(arrives, -1.0).amax(0)
    # A share of a half of two neighbours has a variance of 1/4.
    exact = bool(((mean - number).abs() < 1e-6).all()) and bool((spread.abs() < 1e-3).all())
    same = bool(((number == in_any) | ~arrives).all())
    distinct = bool((in_any >= 0).all()) and torch.unique(in_any).numel() == in_any.numel()
    return in_any.long() if exact and same and distinct else None


def traced(propagator: Propagator, start: Mapping[Value, Tensor], at: Value) -> Tensor:
    """What of `start` stays with single tokens all the way back to a value; what is mixed with others is dropped."""
    return propagator.propagate(start, _TRACE, [at])[at]


class _Trace(Composite):
    """The rules of the flow, for single tokens; other operations keep a token in its place, or nothing passes them."""

    def rule_for(self, node: Node) -> RuleFunction:
        """Return the rule that serves a recorded operation; there always is one."""
        rule = super().rule_for(node)
        if rule is None:
            rule = unchanged if node.name in ELEMENTWISE else _same_shape
        return partial(_where_possible, rule)


def _where_possible(
    rule: RuleFunction, propagator: Propagator, node: Node, relevance: OutputRelevance
) -> InputRelevance:
    try:
        return list(rule(propagator, node, relevance))
    except UnsupportedOperationError:
        return []


def _nothing(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    return []


def _same_shape(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """What an operation of no known kind makes of a token, by itself or from its neighbours, stands where it stood."""
    value = node.inputs[0]
    part = relevance[0]
    is_kept = len(relevance) == len(node.inputs) == 1 and part is not None and part.shape == value.shape
    return [(value, part)] if is_kept and part is not None else []


def _numerator(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """A quotient belongs to the token that is divided, whatever it is divided by."""
    part = single_output(relevance)
    value = node.argument(0, "input")
    return [shape_back(value, part)] if isinstance(value, Value) else []


def _stays(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """A token that a constant overwrites, as padding, keeps its place."""
    part = single_output(relevance)
    if len(node.inputs) > 1:
        return choose(propagator, node, relevance) if node.name == "where" else []
    return [shape_back(node.inputs[0], part)]


def _product(part: Float[Tensor, "*tokens given"], shares: Float[Tensor, "given taken"]) -> Tensor:
    """`part @ shares`, of samples or tokens that are copies of one (in an expanded tensor) computed once."""
    once = tuple(slice(1) if stride == 0 else slice(None) for stride in part.stride()[:-1])
    return (part[once] @ shares).expand(*part.shape[:-1], -1)


def _weighted(propagator: Propagator, node: Node, relevance: OutputRelevance) -> InputRelevance:
    """A product with a constant comes from what it weighs, by the size of the weights: exact if it only reorders."""
    part = single_output(relevance)
    value, weight, _, forward = linear_map(node)  # two activations raise: attention mixes tokens
    if node.name == "linear" and weight.ndim == 2:  # shares are the same for all tokens
        size = weight.detach().abs().to(part.dtype)
        shares = size / size.sum(-1, keepdim=True)
        return [(value, _product(part, torch.where(shares.isfinite(), shares, 0.0)))]
    ones = torch.ones(value.shape, dtype=part.dtype, device=part.device)
    weight = weight.detach().abs().to(part.dtype)
    total = forward(ones, weight)
    share = torch.where(total > 0, part / total, 0.0)
    (back,) = vjp(lambda x: forward(x, weight), [ones], [share])
    return [] if back is None else [(value, back)]


_MIXING = {"mean", "sum", "rmatmul", "tensordot"} | AVERAGES | MAXIMA | DENSE - {"linear"}
_TRACE = _Trace(
    {
        **FLOW.type_map,
        "linear": _weighted,
        "div": _numerator,
        "where": _stays,
        "masked_fill": _stays,
        **dict.fromkeys(PRODUCTS, _weighted),
        **dict.fromkeys(_MIXING, _nothing),
    },
    name="trace",
    replaceable=False,
)
