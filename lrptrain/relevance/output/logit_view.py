"""One number per sample, read as the logits of two classes: the output of a binary classifier, say.

A model with one logit z, trained with the binary cross-entropy, tells two classes apart, of which its output names only
one. Read as the logits -z / 2 and z / 2 it is the classifier of two classes with the same probabilities (their softmax
is the sigmoid of z) and the same loss. Everything that works on classes then works on it: the predicted class, maps of
either class, changes of probabilities. The engine itself takes a single number for what it is; whoever means classes
says so, `with one_logit_as(LogitView()): ...`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lrptrain.relevance.tape.functions import CAST
from lrptrain.relevance.tape.nodes import Node, Value
from lrptrain.relevance.tape.regions import Graph, run
from lrptrain.relevance.tape.tape import Tape

# What may stand between the last layer and its logit. Of one number per sample the latter change the shape alone.
_SCALING = frozenset({"mul", "div", "add", "sub", "rsub", "neg"})
_RESHAPES = CAST | {"reshape", "view", "flatten", "squeeze", "unsqueeze", "getitem", "select"}


@dataclass(frozen=True)
class LogitView:
    """The logits of two classes, made of one number per sample: `slopes[k] * z + offsets[k]`.

    Attributes:
        slopes: What the number is multiplied by, for each class.
        offsets: What is added, for each class.
        required: Whether there must be one number per sample; otherwise several logits are read as they are.
        column: Which of several numbers per sample is read; None where there is one.
        of_steps: Whether all of several numbers are read, one for each step between two grades.
    """

    slopes: tuple[float, float] = (-0.5, 0.5)
    offsets: tuple[float, float] = (0.0, 0.0)
    required: bool = False
    column: int | None = None
    of_steps: bool = False

    def __call__(self, logit: Float[Tensor, "batch 1"]) -> Float[Tensor, "batch 2"]:
        """Return the logits of both classes, with their graph."""
        return logit * logit.new_tensor(self.slopes) + logit.new_tensor(self.offsets)

    def into_last_layer(self, tape: Tape, logits: Value) -> None:
        """Let the model's last layer make both logits itself, if it is a linear layer: its weights get two rows.

        The numbers stay the same. But rules that tell what speaks for a logit from what speaks against it look at the
        weights, and what speaks against z speaks for -z. Behind the layer they could not tell.
        """
        layer_and_rest = _last_layer(Graph(tape), logits, self.column is not None)
        if layer_and_rest is None:
            return
        layer, behind = layer_and_rest
        source = layer.inputs[0]
        row = slice(None) if self.column is None else slice(self.column, self.column + 1)
        weight = layer.argument(1, "weight")[row]
        bias = layer.argument(2, "bias")
        bias = None if bias is None else bias[row]
        # All that follows the layer, this view included, is k -> slope * k + offset for the logit of each class.
        output = layer.outputs[0]
        at_zero, at_one = (
            run(behind, {output: output.tensor.new_full(output.shape, x)})[logits][0] for x in (0.0, 1.0)
        )
        slopes = at_one - at_zero
        biases = at_zero if bias is None else slopes * bias + at_zero
        weights = slopes[:, None] * weight
        both = Node(
            "linear", F.linear, (source, weights, biases), {}, (source,), (logits,), layer.path, layer.constants
        )
        tape.nodes = [*(node for node in tape.nodes if logits not in node.outputs), both]
        tape.keep_only(logits)


def _last_layer(graph: Graph, logits: Value, of_column: bool) -> tuple[Node, list[Node]] | None:
    """Return the linear layer behind which its output is only reshaped or scaled, and what follows it; else None."""
    samples = logits.shape[0]
    addition = graph.producer(logits)
    product = None if addition is None else graph.producer(addition.inputs[0])
    if addition is None or product is None:
        return None
    behind = [addition, product]
    node = graph.producer(product.inputs[0])
    if of_column and node is not None:
        behind.append(node)  # takes the column
        node = graph.producer(node.inputs[0])
        outputs = None if node is None else node.outputs[0].shape[1:].numel()
    else:
        outputs = 1
    while not of_column and node is not None and _keeps_one_number(node, samples):
        behind.append(node)
        node = graph.producer(node.inputs[0])
    if node is None or node.name != "linear" or node.outputs[0].shape != (samples, outputs):
        return None
    # A weight that comes from the input is no weight of the layer.
    is_layer = len(node.inputs) == 1 and node.argument(0, "input") is node.inputs[0]
    return (node, behind[::-1]) if is_layer else None


def _keeps_one_number(node: Node, samples: int) -> bool:
    """Return whether a call reshapes one number per sample, or scales or shifts it by what is the same for all."""
    if len(node.inputs) != 1 or node.outputs[0].shape.numel() != samples:
        return False
    if node.name in _RESHAPES:
        return True
    is_linear = node.name in _SCALING and not _is_product_or_quotient_of(node, node.inputs[0])
    return is_linear and all(constant.numel() == 1 for constant, _ in node.constants)


def _is_product_or_quotient_of(node: Node, number: Value) -> bool:
    """Return whether a call is no multiple of its number: z * z and 1 / z are not."""
    arguments = (*node.args, *node.kwargs.values())
    if node.name == "mul":
        return sum(argument is number for argument in arguments) > 1
    return node.name == "div" and (node.argument(0, "input") is not number or arguments[1] is number)


@dataclass(frozen=True)
class CumulativeView(LogitView):
    """The logits of grades, made of one for each step between them: grade k has the sum of the first k.

    So each step's logit tells the grade above it from the one below, as its sigmoid does, and the most probable grade
    is as many as there are steps above 0, where they fall from step to step.
    """

    of_steps: bool = True

    def __call__(self, logit: Float[Tensor, "batch steps"]) -> Float[Tensor, "batch grades"]:
        """Return the logits of all grades, with their graph."""
        steps = logit.shape[1]
        return F.linear(logit, logit.new_ones(steps + 1, steps).tril(-1))

    def into_last_layer(self, tape: Tape, logits: Value) -> None:
        """Leave the view behind the last layer: its weights are no negatives of one another."""


_VIEW: ContextVar[LogitView | None] = ContextVar("logit view", default=None)


@contextmanager
def one_logit_as(view: LogitView | None) -> Iterator[None]:
    """Read one number per sample by a view, in all that reads a model's logits meanwhile."""
    token = _VIEW.set(view)
    try:
        yield
    finally:
        _VIEW.reset(token)


def active_view() -> LogitView | None:
    """Return the view of the innermost `one_logit_as`, or None."""
    return _VIEW.get()
