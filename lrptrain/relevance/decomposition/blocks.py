"""The parts of a transformer block, found on the tape: attention, residual sums, norms and the feed-forward block."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from lrptrain.relevance.decomposition.linearised import chain, is_norm
from lrptrain.relevance.passes.recording import Recording
from lrptrain.relevance.tape.functions import CAST, ENTRIES
from lrptrain.relevance.tape.nodes import Node, Value, axis_letters, behind
from lrptrain.relevance.tape.regions import Graph
from lrptrain.relevance.types import UnsupportedMethodError

POST_LN = ("attention_norm", "attn_res_ln_norm", "atb_ff_norm", "atb_ff_res_norm", "atb_ff_res_ln_norm")
PRE_LN = ("attention_norm", "atb_norm", "atb_ff_norm", "atb_ff_res_norm")
FORMS = (*POST_LN[:2], "atb_norm", *POST_LN[2:])


@dataclass(frozen=True, eq=False)
class Block:
    """One transformer block.

    Attributes:
        weights: The weights of the values: the attention probabilities, behind dropout and masks.
        attention: The attention's output, up to which every token is treated alike.
        residual: The state of each token that is added to it.
        sites: For each form that exists, the value of which it shows the contributions.
        stream: The value that the rest of the model is given: the second residual sum (the first if there is no other).
        reason: Why no other form exists.
    """

    weights: Value
    attention: Value
    residual: Value
    sites: Mapping[str, Value]
    stream: Value
    reason: str

    def site(self, form: str) -> Value:
        """The value of a form."""
        if form not in self.sites:
            raise UnsupportedMethodError(
                f"{form} does not exist for this model: {self.reason}. These exist: {', '.join(self.sites)}"
            )
        return self.sites[form]


def transformer_blocks(recording: Recording) -> list[Block]:
    """The blocks of a model, first to last."""
    graph = Graph(recording.tape)
    layers = recording.attention_layers.layers()
    if any(layer.queries != layer.keys or len(layer.blocks) > 1 for layer in layers):
        raise UnsupportedMethodError(
            "the attention is not one block after another on the same tokens (an encoder and a decoder, several side "
            "by side, or differential attention), which has no decomposition; generic_attention and attnlrp serve it"
        )
    return [_block(recording, graph, layer.blocks[0]) for layer in layers]


def _block(recording: Recording, graph: Graph, probabilities: Value) -> Block:
    weights, product = _product(graph, probabilities)
    attention = _attention_output(recording, graph, product)
    attended, residual, result = _residual_sum(graph, attention, product)
    if any(recording.propagator.token_axis(value, recording.length) is None for value in (attended, residual, result)):
        raise _no_residual(product)
    # Post-LN (BERT): sum -> norm -> feed-forward + norm -> norm: the sum is read by one norm and by nothing else.
    # Pre-LN (ViT): sum -> norm -> feed-forward, + sum: the sum is read by a norm and by the next sum.
    readers = graph.readers.get(result, [])
    norms = [node for node in readers if is_norm(node)]
    post = len(norms) == len(readers) == 1
    if not post and not (norms and any(node.name == "add" for node in readers)):
        sites = {"attention_norm": attended}
        reason = (
            f"the block of module '{product.path}' is neither post-LN (sum, norm) nor pre-LN (norm, attention, sum)"
        )
        return Block(weights=weights, attention=attention, residual=residual, sites=sites, stream=result, reason=reason)
    base, atb = (norms[0].outputs[0], "attn_res_ln_norm") if post else (result, "atb_norm")
    sites = {"attention_norm": attended, atb: base}
    second = _feed_forward_sum(graph, base)
    reason = "no feed-forward block with a residual sum follows" if second is None else ""
    block = Block(weights=weights, attention=attention, residual=residual, sites=sites, stream=base, reason=reason)
    return block if second is None else _with_feed_forward(graph, block, base, second, post)


def _with_feed_forward(graph: Graph, block: Block, base: Value, second: Node, post: bool) -> Block:
    """The block with the forms behind `base`, which the feed-forward block reads and `second` adds to its output.

    In their order: that output, the sum, and the norm of the sum where the block is post-LN. The stream continues
    behind the sum in any case; where parts cannot be pushed through the feed-forward block, as through a gate, the
    reason says so.
    """
    stream = second.outputs[0]
    (forward,) = (value for value in second.inputs if value is not base)
    kind = "post" if post else "pre"
    reason = f"its blocks are {kind}-LN, with the forms {', '.join(POST_LN if post else PRE_LN)}"
    sites = {**block.sites}
    try:
        chain(graph.tape, [base], [forward])
        sites |= {"atb_ff_norm": forward, "atb_ff_res_norm": stream}
        norms = [node for node in graph.readers.get(stream, []) if is_norm(node)] if post else []
        if norms:
            sites["atb_ff_res_ln_norm"] = norms[0].outputs[0]
    except UnsupportedMethodError as error:
        reason = f"{error}; {reason}"
    return replace(block, sites=sites, stream=stream, reason=reason)


def _product(graph: Graph, value: Value) -> tuple[Value, Node]:
    """The product of the attention probabilities with the values, and what stands in it for the probabilities."""
    pending = [value]
    while pending:
        value = pending.pop()
        for node in graph.readers.get(value, ()):
            if _weighs_by(node, value):
                return value, node
            if node.outputs[0].shape.numel() == value.shape.numel():
                pending.append(node.outputs[0])
    raise UnsupportedMethodError("the product of the attention probabilities with the values was not found")


def _weighs_by(node: Node, value: Value) -> bool:
    if node.name not in ("einsum", "matmul", "bmm"):
        return False
    inside, _, outside = axis_letters(node, value)
    return inside[-1:] not in outside


def _attention_output(recording: Recording, graph: Graph, product: Node) -> Value:
    """The last token states behind the product that treat every token alike: its value at a token is that token's."""
    # Behind the product stand the heads' merging, the output projection, dropout: all of them act on single tokens.
    value = product.outputs[0]
    last_states = None
    while True:
        if recording.propagator.token_axis(value, recording.length) is not None:
            last_states = value
        readers = graph.readers.get(value, [])
        if len(readers) != 1 or not _treats_tokens_alike(readers[0], value):
            break
        value = readers[0].outputs[0]
    if last_states is None:
        raise UnsupportedMethodError(
            f"the attention of module '{product.path}' has no output [batch, {recording.length}, width] of its own "
            "before something that differs between tokens (a gate?)"
        )
    return last_states


def _treats_tokens_alike(node: Node, value: Value) -> bool:
    if node.inputs != (value,):
        return False
    if node.name in ENTRIES | CAST:
        return True
    if node.name in ("linear", "matmul"):
        return node.argument(0, "input") is value
    constants = [x for x in (*node.args, *node.kwargs.values()) if isinstance(x, Tensor)]
    return node.name in ("add", "mul", "div") and all(x.ndim <= 1 or x.numel() == 1 for x in constants)


def _residual_sum(graph: Graph, attention: Value, product: Node) -> tuple[Value, Value, Value]:
    """The first sum of something from the attention's output and something else: (this, that, sum)."""
    # Follow the attention's output until it meets something that does not come from it: the residual connection.
    for node, operands in behind(graph.tape.nodes, [attention]):
        if node.name == "add" and len(node.inputs) == 2 and len(operands) == 1:
            (other,) = set(node.inputs) - operands
            return operands.pop(), other, node.outputs[0]
    raise _no_residual(product)


def _no_residual(product: Node) -> UnsupportedMethodError:
    return UnsupportedMethodError(
        f"the attention of module '{product.path}' is not added to token states of the same shape: there is no "
        "residual connection to decompose"
    )


def _feed_forward_sum(graph: Graph, base: Value) -> Node | None:
    """The sum of `base` and something that comes from it."""
    for node, operands in behind(graph.tape.nodes, [base]):
        if node.name == "add" and base in operands and len(operands) == len(node.inputs) == 2:
            return node
    return None
