"""Which token every entry of a value belongs to: origins go forwards along a tape, and what mixes tokens shows.

An entry that comes from token i only has the origin i + 1, an entry that comes from no token (a constant) NOWHERE, and
one that comes from several MIXED. An operation that is not known to treat tokens apart mixes what it reads.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lrptrain.relevance.tape.functions import (
    AVERAGES,
    CAST,
    COPIES,
    DENSE,
    ELEMENTWISE,
    ENTRIES,
    MAXIMA,
    POINTWISE,
    PRODUCTS,
    is_in_place,
)
from lrptrain.relevance.tape.nodes import Node, Value, aligned, map_nested, named_axes, operands_of, tensors_in
from lrptrain.relevance.types import UnsupportedOperationError

NOWHERE = 0.0
MIXED = -1.0

# Entries of several tensors, as they are broadcast.
_BROADCAST = frozenset({
    "add", "sub", "rsub", "mul", "div", "rdiv", "pow", "rpow", "where", "masked_fill", "maximum", "minimum", "addcmul",
    "addcdiv", "lerp", "fmod", "remainder", "floor_divide",
}) | POINTWISE | (ELEMENTWISE - {"softmax", "layer_norm", "rms_norm", "group_norm", "native_layer_norm"}) | {
    "sign", "round", "floor", "ceil", "trunc", "logit", "sinh", "cosh", "tan", "asin", "acos", "log2", "log10", "exp2",
}  # fmt: skip
# One number per line of the axes that the argument at this position names.
_REDUCTIONS = {
    **dict.fromkeys(("mean", "sum", "amax", "amin", "max", "min", "prod", "var", "std", "var_mean", "logsumexp"), 1),
    **dict.fromkeys(("norm", "vector_norm", "linalg_vector_norm"), 2),
}
# As many numbers per line as before.
_ALONG = frozenset({"softmax", "log_softmax", "cumsum", "cumprod", "logcumsumexp", "sort", "topk"})

Origins = Float[Tensor, "..."]


class TokenProvenance:
    """The origins of the values of a tape, as far as they were asked for.

    They are few, and looked at after each operation: on the CPU, wherever the model is, nothing is waited for.
    """

    def __init__(self) -> None:
        self._origins: dict[Value, Origins] = {}

    def __contains__(self, value: object) -> bool:
        """Return whether a value has origins."""
        return value in self._origins

    def __setitem__(self, value: Value, origins: Origins) -> None:
        """Give a value its origins, which are expanded to its shape."""
        # Constants that stand among them, as in a concatenation, bring their own precision.
        self._origins[value] = _compact(origins).float().expand(value.shape)

    def __getitem__(self, value: Any) -> Origins:
        """Return the origins of a value, or of a constant."""
        if isinstance(value, Value) and value in self._origins:
            return self._origins[value]
        shape = value.shape if isinstance(value, Value) else torch.as_tensor(value).shape
        return torch.full((1,), NOWHERE).expand(shape)

    def follow(self, node: Node) -> None:
        """Mark the origin of what an operation makes."""
        rule = _rule(node)
        try:
            pairs = zip(node.outputs, rule(self, node), strict=True)
            origins = [origin.expand(value.shape) for value, origin in pairs]
        except (RuntimeError, IndexError, TypeError, ValueError, AttributeError, UnsupportedOperationError):
            origins = _unknown(self, node)
        for value, origin in zip(node.outputs, origins, strict=True):
            self[value] = origin

    def mixed(self, node: Node) -> bool:
        """Whether an operation makes entries of several tokens."""
        return any(bool((_compact(self[value]) == MIXED).any()) for value in node.outputs)

    def along(self, value: Any, axis: int) -> Float[Tensor, " length"]:
        """One origin for each place along an axis; MIXED where other axes differ there."""
        origins = self[value]
        axis %= origins.ndim
        lines = _merged(origins, [i for i in range(origins.ndim) if i != axis])
        return lines.expand([size if i == axis else 1 for i, size in enumerate(origins.shape)]).flatten()


def _compact(origins: Origins) -> Origins:
    """One entry along the axes over which origins are only expanded."""
    return origins[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in origins.stride())]


def _merged(origins: Origins, axes: Sequence[int]) -> Origins:
    """The origin of all entries along some axes together, which stay with size 1."""
    origins = _compact(origins)
    if not axes or origins.numel() == 0:
        return origins
    high = origins.amax(list(axes), keepdim=True)
    # NOWHERE counts for nothing beside a token; MIXED is the lowest of all.
    low = torch.where(origins == NOWHERE, torch.inf, origins).amin(list(axes), keepdim=True)
    return torch.where((low == high) | (high == NOWHERE) & low.isinf(), high, MIXED)


def _together(*origins: Origins) -> Origins:
    """The origins of entries that are made of an entry of each."""
    first, *rest = (_compact(x) for x in origins)
    for other in rest:
        both = torch.where(first == other, first, MIXED)
        first = torch.where(first == NOWHERE, other, torch.where(other == NOWHERE, first, both))
    return first


# -- Rules: origins of the outputs, which are then expanded to their shapes --------------------------------------------

OriginRule = Callable[[TokenProvenance, Node], list[Origins]]


def _rule(node: Node) -> OriginRule:
    name = node.name
    if name in CAST | COPIES:
        return lambda origins, node: [origins[node.inputs[0]]]
    if hasattr(node.function, "frozen") or name in ("layer_norm", "rms_norm", "group_norm", "native_layer_norm"):
        return _normalised
    if name in ("max", "min") and node.argument(1, "dim", node.kwargs.get("other")).__class__ in (Value, Tensor):
        return _broadcast
    if name in _BROADCAST:
        return _broadcast
    if name in _ALONG:  # before what copies entries: which ones a sort copies depends on all of them
        return _along
    if name in ENTRIES:
        return _moved
    if name in _REDUCTIONS:
        return _reduced
    if name in PRODUCTS | {"linear"}:
        return _product if name != "linear" else _linear
    if name in DENSE:
        return _convolved
    if name in AVERAGES | MAXIMA | {"interpolate"}:
        return _pooled
    return {"setitem": _written_over, "scatter": _scattered, "index_add": _added}.get(name, _unknown)


def _unknown(origins: TokenProvenance, node: Node) -> list[Origins]:
    """Nothing is known of it: every entry may come from all that it reads."""
    read = torch.cat([_compact(origins[value]).flatten() for value in node.inputs]).unique()  # type: ignore[no-untyped-call]
    tokens = read[read != NOWHERE]
    origin = MIXED if len(tokens) > 1 else tokens.sum()  # of one token, or of none
    return [torch.as_tensor(origin, dtype=read.dtype, device=read.device).expand(value.shape) for value in node.outputs]


def _broadcast(origins: TokenProvenance, node: Node) -> list[Origins]:
    return [_together(*(origins[value] for value in node.inputs))]


def _moved(origins: TokenProvenance, node: Node) -> list[Origins]:
    """Repeat the call on origins."""
    if node.name == "constant_pad_nd" or (node.name == "pad" and node.argument(2, "mode", "constant") == "constant"):
        return [F.pad(origins[node.inputs[0]], node.argument(1, "pad"), value=NOWHERE)]
    device = origins[node.inputs[0]].device
    constants = map_nested(
        (node.args, node.kwargs),
        Tensor,
        lambda x: torch.full_like(x, NOWHERE, device=device) if x.is_floating_point() else x.to(device),
    )
    in_place = is_in_place(node.function, node.args, node.kwargs)
    args, kwargs = map_nested(constants, Value, lambda value: origins[value].clone() if in_place else origins[value])
    # Origins are not laid out in memory as the recorded value was.
    function = torch.Tensor.reshape if node.name == "view" else node.function
    return [x for x in tensors_in(function(*args, **kwargs)) if x.is_floating_point()]


def _reduced(origins: TokenProvenance, node: Node) -> list[Origins]:
    axes = named_axes(node, _REDUCTIONS[node.name])
    x = _merged(origins[node.inputs[0]], axes)
    return [x if x.ndim == len(value.shape) else _without(x, axes) for value in node.outputs]


def _without(origins: Origins, axes: Sequence[int]) -> Origins:
    """The origins without some axes, along which they are all the same."""
    return origins[tuple(0 if i in axes else slice(None) for i in range(origins.ndim))]


def _along(origins: TokenProvenance, node: Node) -> list[Origins]:
    dim = node.argument(1, "dim")
    x = origins[node.inputs[0]]
    return [_merged(x, range(x.ndim) if dim is None else [dim % x.ndim])] * len(node.outputs)


def _normalised(origins: TokenProvenance, node: Node) -> list[Origins]:
    x = origins[node.inputs[0]]
    factor = getattr(node.function, "factor", None)
    if factor is not None:  # written out: the factor has one number per line of the axes that are reduced
        shape = [1] * (x.ndim - len(factor.shape)) + list(factor.shape)
        axes = [i for i, size in enumerate(shape) if size == 1 and x.shape[i] > 1]
    elif node.name == "group_norm":
        axes = list(range(1, x.ndim))
    else:
        shape = node.argument(1, "normalized_shape")
        axes = list(range(x.ndim - (1 if isinstance(shape, int) else len(shape)), x.ndim))
    return [_merged(x, axes)] * len(node.outputs)


def _linear(origins: TokenProvenance, node: Node) -> list[Origins]:
    return [_merged(_together(*(origins[value] for value in node.inputs)), [len(node.outputs[0].shape) - 1])]


def _product(origins: TokenProvenance, node: Node) -> list[Origins]:
    """Every entry comes from a line of each factor, along the axes that are summed over."""
    if node.name == "einsum":
        return [_einsum(origins, node)]
    left, right = (origins[operand] for operand in operands_of(node))
    if min(left.ndim, right.ndim) < 2:
        return _unknown(origins, node)
    return [_together(_merged(left, [left.ndim - 1]), _merged(right, [right.ndim - 2]))]


def _einsum(origins: TokenProvenance, node: Node) -> Origins:
    equation = node.args[0]
    inside, arrow, output = equation.replace(" ", "").partition("->")
    if not arrow or "." in equation:
        return _unknown(origins, node)[0]
    parts = []
    for letters, operand in zip(inside.split(","), operands_of(node), strict=True):
        x = origins[operand]
        summed = [i for i, letter in enumerate(letters) if letter not in output]
        remaining = _without(_merged(x, summed), summed)
        parts.append(aligned(remaining, "".join(letter for letter in letters if letter in output), output))
    return _together(*parts)


def _convolved(origins: TokenProvenance, node: Node) -> list[Origins]:
    """A kernel of several pixels sees neighbours; one of a single pixel mixes channels only."""
    x = origins[node.argument(0, "input")]
    weight = node.argument(1, "weight")
    rank = weight.ndim - 2
    first = x.ndim - rank
    stride = node.argument(3, "stride", 1)
    step = [stride] * rank if isinstance(stride, int) else list(stride) * (rank if len(stride) == 1 else 1)
    apart = (
        list(weight.shape[2:]) == [1] * rank and step == [1] * rank and x.shape[first:] == node.outputs[0].shape[first:]
    )
    # Each channel by itself: what is a token may be the channel.
    channelwise = node.argument(6, "groups", 1) == weight.shape[0] == x.shape[first - 1]
    axes = [] if apart else list(range(first, x.ndim))
    return [_merged(x, axes if channelwise else [first - 1, *axes])]


def _pooled(origins: TokenProvenance, node: Node) -> list[Origins]:
    x = origins[node.inputs[0]]
    rank = int(node.name[-2]) if node.name[-2:-1].isdigit() else x.ndim - 2
    return [_merged(x, range(x.ndim - rank, x.ndim))] * len(node.outputs)


def _written_over(origins: TokenProvenance, node: Node) -> list[Origins]:
    """`x[place] = y`."""
    x = origins[node.args[0]].clone()
    x[map_nested(node.args[1], Tensor, lambda place: place.to(x.device))] = origins[node.args[2]]
    return [x]


def _scattered(origins: TokenProvenance, node: Node) -> list[Origins]:
    """`x.scatter(axis, places, y)`, where y may be a number; what is overwritten leaves its token's origin behind."""
    x = origins[node.argument(0, "input")].contiguous()
    axis = node.argument(1, "dim")
    places = node.argument(2, "index").to(x.device)
    y = node.argument(3, "src", node.kwargs.get("value"))
    source = origins[y][tuple(slice(size) for size in places.shape)] if isinstance(y, Value) else NOWHERE
    # Which places are written was chosen by the token that stands there.
    return [_together(x, torch.full_like(x, NOWHERE).scatter(axis, places, source))]


def _added(origins: TokenProvenance, node: Node) -> list[Origins]:
    """`x.index_add(axis, places, y)`."""
    x = origins[node.argument(0, "input")]
    axis = node.argument(1, "dim")
    places = node.argument(2, "index").to(x.device)
    y = origins[node.argument(3, "source")].contiguous()
    added = torch.full_like(x, NOWHERE, memory_format=torch.contiguous_format).index_copy(axis, places, y)
    # Where several are added at one place, only one was copied.
    if not torch.equal(added.index_select(axis, places), y):
        return _unknown(origins, node)
    return [_together(x, added)]
