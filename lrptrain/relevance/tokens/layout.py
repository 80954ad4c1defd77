"""What a recording says about a model's sequence: its attention blocks, its tokens, and where the patches went."""

from collections.abc import Iterator

from lrptrain.relevance.advice import REACH_INPUT, other_methods
from lrptrain.relevance.propagation.propagator import Propagator
from lrptrain.relevance.tape.nodes import Value, making
from lrptrain.relevance.tape.tape import Tape
from lrptrain.relevance.tokens.cells import attention_product, tokens_of_cells
from lrptrain.relevance.tokens.inputs import ExplainedInput
from lrptrain.relevance.types import TokenLayout, UnsupportedModelError


def token_states(propagator: Propagator, length: int) -> Iterator[Value]:
    """All recorded values of shape `[batch, length, width]` or `[length, batch, width]`, first to last."""
    candidates = [propagator.root, *(value for node in propagator.tape.nodes for value in node.outputs)]
    return (value for value in candidates if propagator.token_axis(value, length) is not None)


def joints(tape: Tape, output: Value, after: Value) -> set[Value]:
    """The values behind `after` that all of the output passes through: nothing that it comes from goes by them."""
    # From the output backwards: where one value only is still to be made, everything comes through it.
    reached = set[Value]()
    awaited = {output}
    for node in reversed(tape.nodes):
        if len(awaited) == 1:
            reached |= awaited
        if after in node.outputs:
            break
        if awaited.intersection(node.outputs):
            awaited = awaited.difference(node.outputs).union(node.inputs)
    return reached


def reads_sequence(propagator: Propagator, block: Value, length: int) -> bool:
    """Whether there are states of all tokens that the attention probabilities can come from; not so in windows."""
    for node in propagator.tape.nodes:
        if any(propagator.token_axis(value, length) is not None for value in node.inputs):
            return True
        if block in node.outputs:
            return False
    return False


def input_layout(propagator: Propagator, explained: ExplainedInput, length: int, block: Value) -> TokenLayout:
    """Find the input's tokens among those that the attention sees, by following them back to what they are made of."""
    if explained.kind in ("text", "sequence") and explained.tokens == length:
        return TokenLayout(length, tuple(range(length)))
    if explained.cells is not None and explained.order is not None:
        for tokens in _states_read(propagator, length, block):
            numbers = tokens_of_cells(propagator, explained.cells, tokens, length)
            if numbers is not None:
                return TokenLayout(length, tuple(numbers[explained.order].tolist()), explained.grid)
    grid = "" if explained.grid is None else f" on a grid of {' x '.join(map(str, explained.grid))}"
    arguments = f"length={length}, positions=..., grid={explained.grid}" if grid else f"length={length}, positions=..."
    raise UnsupportedModelError(
        f"the {explained.tokens} tokens of the input ({explained.kind}{grid}) cannot be found one by one among the "
        f"{length} tokens that the attention sees (merged, dropped or added ones?); pass "
        f"layout=TokenLayout({arguments}), or take {other_methods(*REACH_INPUT)}"
    )


def _states_read(propagator: Propagator, length: int, block: Value) -> list[Value]:
    """The last token states that the first queries come from, if any: earlier ones may be in another order."""
    product = attention_product(propagator.tape.nodes, block)
    if product is None:
        return []
    query = product.inputs[0]
    needed = {query, *(value for node in making(propagator.tape.nodes, [query]) for value in node.inputs)}
    return [value for value in token_states(propagator, length) if value in needed][-1:]
