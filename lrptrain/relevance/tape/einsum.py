"""What an einsum equation says about its operands."""

from typing import Any

from lrptrain.relevance.tape.nodes import Node, Value, unsupported


def einsum_parts(node: Node) -> tuple[str, Any, Any]:
    """The equation and the two operands of a recorded `torch.einsum`.

    Raises:
        UnsupportedOperationError: If it has not exactly two operands, or the equation is not given as a string.
    """
    equation, operands = node.args[0], node.args[1:]
    if len(operands) == 1 and isinstance(operands[0], (tuple, list)):
        operands = tuple(operands[0])
    if not isinstance(equation, str) or len(operands) != 2:
        raise unsupported(node.name, node.path, "is not a product of two operands by an equation")
    return equation.replace(" ", ""), *operands


def labels(node: Node, value: Value) -> tuple[str, str]:
    """The labels of `value`'s axes and of the output's axes; "" where the equation leaves the output out."""
    equation, first, _ = einsum_parts(node)
    operands, _, output = equation.partition("->")
    left, _, right = operands.partition(",")
    return (left if first is value else right), output
