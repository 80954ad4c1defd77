"""What a tape holds: the recorded calls, the tensors between them, and how their arguments are read."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from string import ascii_letters
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge
from torch.utils.weak import TensorWeakRef

from lrptrain.relevance.advice import WITHOUT_RULES, other_methods
from lrptrain.relevance.tape.functions import is_in_place
from lrptrain.relevance.types import UnsupportedOperationError


class Value:
    """A tensor of the forward pass as it was when an operation made it, or the input itself.

    Attributes:
        shape: The tensor's shape.
        depends: Whether the tensor depends on the explained input; what does not is a constant.
        has_graph: Whether the tensor has a graph.
        is_complex: Whether the tensor holds complex numbers.
        hidden: Whether a custom autograd function made the tensor on its way, so that no gradient arrives at it.
    """

    # Three states: `_tensor` holds the tensor; or it was released, and lives as long as the model holds it (`_held`);
    # or nobody holds it, and `_make` repeats the call that made it.

    def __init__(self, tensor: Tensor, depends: bool):
        self._tensor: Tensor | None = tensor
        self._held = TensorWeakRef(tensor)
        self._make: Callable[[], Tensor] | None = None
        self._edge: GradientEdge | None = None
        self.shape = tensor.shape
        self.depends = depends
        self.has_graph = tensor.requires_grad
        self.is_complex = tensor.is_complex()
        self.hidden = False

    def come_out(self, tensor: Tensor) -> None:
        """Take the place in the graph that a custom autograd function has given to the tensor, which it returned."""
        self._edge = torch.autograd.graph.get_gradient_edge(tensor)
        self.has_graph = True
        self.hidden = False

    @property
    def edge(self) -> GradientEdge | None:
        """The tensor's place in the graph, for gradients; None without a graph."""
        if self._edge is None and self.has_graph:
            self._edge = torch.autograd.graph.get_gradient_edge(self.tensor)
        return self._edge

    @property
    def tensor(self) -> Tensor:
        """The tensor; the call that made it is repeated if nobody holds it."""
        held = self.held
        if held is None:
            assert self._make is not None
            return self._make()
        return held

    @property
    def held(self) -> Tensor | None:
        """The tensor, or None if nobody holds it any more."""
        return self._held() if self._tensor is None else self._tensor

    def replace(self, tensor: Tensor) -> None:
        """Hold another tensor with the same numbers, before the one that is held is overwritten."""
        _ = self.edge
        self._tensor = tensor

    def release(self, node: "Node") -> None:
        """Hold the tensor no longer. The node that made it can make it once more, but must not be referred to."""
        _ = self.edge
        self._tensor = None
        self._make = partial(_called, node.function, node.args, node.kwargs)


@dataclass(eq=False)
class Node:
    """One recorded call. Tensors that depend on the input stand in `args` and `kwargs` as `Value`s.

    `F.linear(x, weight, bias)` in module `blocks.0.mlp.fc1`, for instance, is `Node("linear", F.linear, (Value of x,
    weight, bias), {}, inputs=(Value of x,), outputs=(Value of the result,), path="blocks.0.mlp.fc1")`.

    Attributes:
        name: One name for every spelling of the operation; see `canonical_name`.
        function: The function that was called.
        args: The arguments by position.
        kwargs: The arguments by name.
        inputs: The values among the arguments, each once.
        outputs: The floating-point tensors that the call returned.
        path: The module that ran the operation; "" for the model itself.
        constants: The tensors among the arguments that do not depend on the input, and their versions.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...] = ()
    path: str = ""
    constants: tuple[tuple[Tensor, int], ...] = ()

    def call(self, substitute: Callable[[Value], Any] = lambda value: value.tensor) -> Any:
        """Repeat the call with other tensors in the places of the inputs.

        A call that writes in place writes into a copy, and returns it: neither what is given for the inputs nor a
        constant of the tape is changed by it.
        """
        if not is_in_place(self.function, self.args, self.kwargs):
            return _called(self.function, self.args, self.kwargs, substitute)
        args = list(map_nested(self.args, Value, substitute))
        kwargs = map_nested(self.kwargs, Value, substitute)
        if args:
            args[0] = self._copy_to_write(args[0], self.args[0], substitute)
        else:
            kwargs["input"] = self._copy_to_write(kwargs["input"], self.kwargs["input"], substitute)
        result = self.function(*args, **kwargs)
        return args[0] if self.name == "setitem" else result

    def _copy_to_write(self, written: Tensor, argument: Any, substitute: Callable[[Value], Any]) -> Tensor:
        """Copy what the call writes into; a constant takes the precision of what is given for the inputs."""
        if isinstance(argument, Value) or not written.is_floating_point():
            return written.clone()
        # Rules may repeat a call of float32 in float64, of which `index_add_`, for one, makes no mixture.
        precisions = [substitute(value).dtype for value in self.inputs if value.tensor.dtype == written.dtype]
        return written.to(precisions[0], copy=True) if precisions else written.clone()

    def check_constants(self) -> None:
        """Raise if a mask, weight or other constant of the call was overwritten since."""
        for tensor, version in self.constants:
            if version_of(tensor) != version:
                raise unsupported(self.name, self.path, "reads a constant that the model overwrites in place later on")

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """The argument given by position or by name; `Value`s stay wrapped."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)


def _called(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    substitute: Callable[[Value], Any] = lambda value: value.tensor,
) -> Any:
    return function(*map_nested(args, Value, substitute), **map_nested(kwargs, Value, substitute))


def unsupported(name: str, path: str, why: str) -> UnsupportedOperationError:
    """The error for an operation that relevance cannot pass, with the ways out."""
    return UnsupportedOperationError(
        f"{name} in module '{path or '(model)'}' {why}; relevance would leak there. Ways out: a method that propagates "
        f"no relevance ({other_methods(*WITHOUT_RULES)}), a plain-torch version of the module, or a rule of your own: "
        f"lrptrain.relevance.register_rule({name!r}, rule)."
    )


def is_idle(node: Node) -> bool:
    """Whether the call is a dropout that drops nothing, so that it writes nothing either."""
    return "dropout" in node.name and (node.argument(2, "training", True) is False or node.argument(1, "p", 0.5) == 0)


def order_of_axes(node: Node, ndim: int) -> list[int]:
    """Which axis of the input every axis of the output of a transposition was."""
    sizes = list(range(1, ndim + 1))
    result = node.call(lambda _: torch.empty(sizes, device="meta"))
    return [size - 1 for size in result.shape]


def version_of(tensor: Tensor) -> int:
    """How often a tensor was written in place; inference tensors do not count."""
    return 0 if tensor.is_inference() else tensor._version


def same_numbers(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same numbers, or none at the same places."""
    return bool(((one == other) | (one.isnan() & other.isnan())).all())


def named_axes(node: Node, position: int = 1) -> list[int]:
    """The axes that an operation names by its argument at a position; all of them if it names none."""
    # x.mean(1), x.mean(dim=(1, 2)), torch.mean(x, axis=1) and x.mean() alike.
    ndim = len(node.inputs[0].shape)
    dims = node.argument(position, "dim", node.kwargs.get("axis"))
    return sorted(d % ndim for d in ([dims] if isinstance(dims, int) else dims or range(ndim)))


def making(
    nodes: Sequence[Node], values: Iterable[Value], read: Callable[[Node], Iterable[Value]] = lambda node: node.inputs
) -> list[Node]:
    """The operations that some values come from, in order; `read` says by which of its inputs each of them does."""
    needed = set(values)
    made = []
    # From the last operation to the first, so that every reader of a value is seen before the value's producer.
    for node in reversed(nodes):
        if needed.intersection(node.outputs):
            needed.update(read(node))
            made.append(node)
    return made[::-1]


def behind(
    nodes: Iterable[Node], values: Iterable[Value], read: Callable[[Node], Iterable[Any]] = lambda node: node.inputs
) -> Iterator[tuple[Node, set[Value]]]:
    """The operations that read what is made of some values, in order, each with those of what it reads."""
    moving = set(values)
    for node in nodes:
        operands = moving.intersection(read(node))
        if operands:
            yield node, operands
            moving.update(node.outputs)


def values_of(node: Node) -> list[Value]:
    """The recorded values among a call's arguments, each as often as it stands there."""
    values: list[Value] = []
    map_nested((node.args, node.kwargs), Value, values.append)
    return values


def operands_of(product: Node) -> tuple[Any, ...]:
    """What a product multiplies."""
    if product.name != "einsum":
        return product.argument(0, "input"), product.argument(1, "mat2", product.kwargs.get("other"))
    operands = product.args[1:]
    nested = len(operands) == 1 and isinstance(operands[0], (tuple, list))
    return tuple(operands[0]) if nested else operands


def equation_of(product: Node) -> str:
    """A letter for every axis of the first factor, of the second one and of the product: "bhij,bhjd->bhid"."""
    operands = operands_of(product)
    equation = product.args[0] if product.name == "einsum" else ""
    ndims = [len(operand.shape) for operand in operands]
    if equation:
        equation = written_out(equation.replace(" ", ""), ndims) if isinstance(equation, str) else ""
        *factors, result = re.split(",|->", equation)
        repeats = any(len(set(labels)) < len(labels) for labels in factors)
        if len(factors) != 2 or repeats or not set(factors[0]) & set(factors[1]) - set(result):
            raise unsupported("einsum", product.path, "is no sum of products of two operands, of different axes each")
        return equation
    leading = "abcdefgh"[: max(ndims) - 2]
    first, second = (leading[len(leading) + 2 - ndim :] for ndim in ndims)
    return f"{first}xy,{second}yz->{leading}xz"


def aligned(x: Tensor, letters: str, order: str) -> Tensor:
    """Bring axes into an order of letters; those that it has not are of size 1."""
    places = [letters.index(letter) for letter in order if letter in letters]
    x = x if places == sorted(places) else x.permute(places)
    for axis, letter in enumerate(order):
        x = x if letter in letters else x.unsqueeze(axis)
    return x


def axis_letters(product: Node, factor: object) -> tuple[str, str, str]:
    """The letters of the axes of a factor, of the other one and of the product."""
    left, right, output = re.split(",|->", equation_of(product))
    return (left, right, output) if operands_of(product)[0] is factor else (right, left, output)


def written_out(equation: str, ndims: list[int]) -> str:
    """Return an equation with its output, and with letters in the place of "..."."""
    inputs, arrow, output = equation.partition("->")
    parts = inputs.split(",")
    free = [letter for letter in ascii_letters if letter not in equation]
    hidden = [ndim - len(part) + 3 if "..." in part else 0 for part, ndim in zip(parts, ndims, strict=True)]
    # Hidden axes are aligned at their last one, as in broadcasting.
    letters = "".join(free[: max(hidden)])
    if not arrow:
        named = inputs.replace("...", "").replace(",", "")
        output = "..." + "".join(sorted(label for label in set(named) if named.count(label) == 1))
    aligned = [letters[len(letters) - count :] for count in hidden]
    parts = [part.replace("...", axes) for part, axes in zip(parts, aligned, strict=True)]
    return f"{','.join(parts)}->{output.replace('...', letters)}"


_NUMBERS = frozenset({int, float, bool, str, type(None)})
_LEAVES = _NUMBERS | {Tensor, torch.nn.Parameter}


def tensors_in(structure: Any) -> Iterator[Tensor]:
    """All tensors of nested tuples, lists and dicts."""
    found: list[Tensor] = []
    collect_tensors((structure,), found)
    return iter(found)


def collect_tensors(items: Iterable[Any], found: list[Tensor], named: Mapping[str, Any] | None = None) -> None:
    """Add all tensors of nested tuples, lists and dicts to a list: of the arguments of a call, then those by name."""
    for item in (*items, *named.values()) if named else items:
        if type(item) in _NUMBERS:
            continue
        if isinstance(item, Tensor):
            found.append(item)
        elif isinstance(item, (tuple, list)):
            collect_tensors(item, found)
        elif isinstance(item, dict):
            collect_tensors(item.values(), found)


def numbers_in(structure: Any) -> Iterator[Tensor]:
    """The tensors among them that hold real or complex numbers: no indices, no masks."""
    return (x for x in tensors_in(structure) if x.is_floating_point() or x.is_complex())


def map_nested(structure: Any, kind: type, function: Callable[..., Any]) -> Any:
    """Replace everything of type `kind` in nested tuples, lists and dicts."""
    if isinstance(structure, kind):
        return function(structure)
    if type(structure) in _LEAVES:
        return structure
    if isinstance(structure, (tuple, list)):
        items = [map_nested(item, kind, function) for item in structure]
        return type(structure)(*items) if hasattr(structure, "_fields") else type(structure)(items)
    if isinstance(structure, dict):
        return {key: map_nested(item, kind, function) for key, item in structure.items()}
    return structure


def shares_memory(tensor: Tensor, others: Sequence[Tensor]) -> bool:
    """Return whether a tensor is one of the others, or a view of it."""
    storage = tensor.untyped_storage()._cdata if others else None
    return storage in [other.untyped_storage()._cdata for other in others]
