"""The numbers of an attention map that a row is multiplied by, as the product with the values has them."""

from collections.abc import Callable, Iterator

from torch import Tensor

from lrptrain.relevance.fast.kernels import KernelAttention
from lrptrain.relevance.propagation.propagator import at_least_float32
from lrptrain.relevance.tape.nodes import Value
from lrptrain.relevance.tape.tape import Tape
from lrptrain.relevance.tokens.attentions import Attention

# Of the numbers of a map and what else is known of it, those that the row is multiplied by.
Parts = Iterator[tuple[slice, Tensor]]


def probabilities(tape: Tape, attention: Attention) -> Parts:
    """The map itself: that of fused attention some queries at a time."""
    fused = _fused(tape, attention)
    if fused is None:
        yield slice(None), as_weighing(attention, at_least_float32(attention.block.tensor))
        return
    precision = at_least_float32(fused.output.tensor).dtype
    for queries in fused.slices():
        yield queries, fused.probabilities(queries, precision)


def weighted(
    tape: Tape, attention: Attention, gradient: Tensor, weights: Callable[[Tensor], Tensor] = Tensor.relu
) -> Parts:
    """What is made of the map times its gradient.

    Args:
        tape: The tape.
        attention: The attention.
        gradient: The gradient at the map; of fused attention, at its output.
        weights: What is made of the product, entry by entry; its positive part by default.
    """
    fused = _fused(tape, attention)
    if fused is None:
        product = at_least_float32(attention.block.tensor) * gradient
        yield slice(None), as_weighing(attention, weights(product))
        return
    precision = at_least_float32(gradient).dtype
    for queries in fused.slices():
        yield queries, weights(fused.weighted_gradient(gradient, queries, fused.probabilities(queries, precision)))


def place_of_gradient(tape: Tape, attention: Attention) -> Value:
    """Where the gradient is taken that `weighted` needs."""
    fused = _fused(tape, attention)
    return attention.block if fused is None else fused.output


def as_weighing(attention: Attention, numbers: Tensor) -> Tensor:
    """Numbers of the map in the shape in which it weighs the values: views may stand in between."""
    return numbers.reshape(attention.weights.shape)


def _fused(tape: Tape, attention: Attention) -> KernelAttention | None:
    """The fused attention of a map of which no graph is asked for."""
    kernels = tape.kernels
    return None if kernels is None or kernels.twice else kernels.of_map(attention.block)
