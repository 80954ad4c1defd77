"""Operations that are linear in their input, as functions of the input and the weight, and their transposes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lrptrain.relevance.propagation import rules
from lrptrain.relevance.propagation.composite import OutputRelevance
from lrptrain.relevance.tape.nodes import Node, Value, equation_of, operands_of, tensors_in, unsupported


def vjp(
    function: Callable[..., Tensor | tuple[Any, ...]], inputs: list[Tensor], outputs: OutputRelevance
) -> list[Tensor | None]:
    """Transpose a linear function: products of `outputs` with its Jacobian, differentiable in `outputs`."""
    cotangents = [part for part in outputs if part is not None]
    # The Jacobian is taken at copies, so that only the graph of `outputs` continues; with a graph, through the product.
    keep = torch.is_grad_enabled()
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in inputs]
        results = [y for y, part in zip(tensors_in(function(*leaves)), outputs, strict=True) if part is not None]
        return list(torch.autograd.grad(results, leaves, cotangents, allow_unused=True, create_graph=keep))


def transposed(function: Callable[[Tensor], Tensor], x: Tensor, output: Tensor) -> Tensor:
    """The same for a function of one tensor that its result depends on."""
    (back,) = vjp(function, [x], [output])
    assert back is not None
    return back


Map = tuple[Value, Tensor, Tensor | None, rules.Linear]


def linear_map(node: Node) -> Map:
    """(input, weight, bias, linear map) of an operation with a constant weight."""
    operation = _convolution(node) if node.name.startswith("conv") else _dense(node)
    if not isinstance(operation[0], Value) or len(node.inputs) > 1:
        raise unsupported(node.name, node.path, "has a weight or bias that depends on the input")
    return operation


def factors(node: Node) -> tuple[Any, Any, Callable[..., Tensor]]:
    """The two operands of a product, and the product as a function of them."""
    multiply = partial(torch.einsum, equation_of(node)) if node.name == "einsum" else torch.matmul
    left, right = operands_of(node)
    return left, right, multiply


def _dense(node: Node) -> Map:
    if node.name == "linear":
        return node.argument(0, "input"), node.argument(1, "weight"), node.argument(2, "bias"), F.linear
    left, right, multiply = factors(node)
    if isinstance(left, Value):
        return left, right, None, multiply
    return right, left, None, lambda x, w: multiply(w, x)


def _convolution(node: Node) -> Map:
    options = convolution_options(node)
    bias = node.argument(2, "bias")
    x = node.argument(0, "input")
    weight = node.argument(1, "weight")
    if isinstance(bias, Tensor):
        bias = bias.view(-1, *[1] * (weight.ndim - 2))
    return x, weight, bias, lambda x, w: node.function(x, w, None, **options)


def transpose_of(node: Node, x: Tensor, forward: rules.Linear) -> rules.Linear:
    """The transpose of `forward` as a map from outputs to inputs."""
    if node.name == "linear":
        return lambda s, w: s @ w
    return lambda s, w: transposed(lambda leaf: forward(leaf, w), x, s)


def per_axis(number: Any, axes: int) -> list[int]:
    """A setting of a convolution or a pooling along every axis: given once for all, or one by one."""
    numbers = [number] if isinstance(number, int) else list(number)
    return [int(x) for x in (numbers * axes if len(numbers) == 1 else numbers)]


def convolution_options(node: Node) -> dict[str, Any]:
    """The stride, padding and further settings of a recorded convolution, by name."""
    names: tuple[str, ...] = ("stride", "padding", "dilation", "groups")
    if node.name.startswith("conv_transpose"):
        names = ("stride", "padding", "output_padding", "groups", "dilation")
    options = {name: node.argument(i, name) for i, name in enumerate(names, start=3)}
    return {name: option for name, option in options.items() if option is not None}
