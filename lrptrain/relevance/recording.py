"""One recorded forward pass: its attention blocks, its tokens, how it pools them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from lrptrain.relevance.autocast import AutocastState, autocast_state
from lrptrain.relevance.flow import flow_to, unweighted
from lrptrain.relevance.layout import attention_probabilities, image_layout, reads_sequence, text_layout, token_states
from lrptrain.relevance.propagation.propagate import Walk, real
from lrptrain.relevance.tape.nodes import Value
from lrptrain.relevance.tape.sample_axes import split_samples
from lrptrain.relevance.tape.tape import Tape
from lrptrain.relevance.types import NonFiniteError, TokenLayout, UnsupportedMethodError, UnsupportedModelError

Inputs = Tensor | Mapping[str, Any]
Blocks = list[Float[Tensor, "batch heads length length"]]


@dataclass(eq=False)
class Recording:
    """A forward pass on tape, and what does not depend on the class that is explained.

    Attributes:
        tape: The recorded operations.
        output: The logits as a recorded value, `[batch, classes]`.
        model: The module that was run, for methods that run it again.
        inputs: What it was given.
        padding: Content mask of a text (1 token, 0 padding), or None.
        given_layout: The layout that the caller knows better, or None.
    """

    tape: Tape
    output: Value
    model: nn.Module
    inputs: Inputs
    padding: Tensor | None = None
    given_layout: TokenLayout | None = None
    autocast: AutocastState = field(default_factory=autocast_state)

    @property
    def logits(self) -> Float[Tensor, "batch classes"]:
        """The model's output."""
        return self.output.tensor

    @property
    def samples(self) -> int:
        """Number of samples in the batch."""
        return self.logits.shape[0]

    @cached_property
    def walk(self) -> Walk:
        """The backward walk over the tape."""
        return Walk(self.tape, self.samples)

    @cached_property
    def blocks(self) -> list[Value]:
        """The attention probabilities of every block."""
        blocks = attention_probabilities(self.tape)
        if not blocks:
            raise UnsupportedModelError(
                "the model has no self-attention that the tape can see: no softmax over the last axis of a square "
                "[tokens, tokens] matrix that weighs values; input_x_gradient and lrp need none"
            )
        return blocks

    @cached_property
    def length(self) -> int:
        """Number of tokens in the sequence, the same in every block."""
        lengths = {value.shape[-1] for value in self.blocks}
        if len(lengths) > 1:
            raise UnsupportedMethodError(
                f"the blocks attend over sequences of different lengths {sorted(lengths)}, so their attention maps "
                "cannot be multiplied; lrp and input_x_gradient reach the input without that"
            )
        length = lengths.pop()
        if not reads_sequence(self.walk, self.blocks[0], length):
            raise UnsupportedMethodError(
                f"the attention sees {length} tokens at a time, not the whole sequence (windows?), so that its maps "
                "are not maps of the input; lrp and input_x_gradient reach the input without them"
            )
        return length

    @cached_property
    def layout(self) -> TokenLayout:
        """Where the content tokens stand."""
        if self.given_layout is not None:
            return self.given_layout
        assert self.tape.root is not None
        if len(self.tape.root.shape) == 4:
            return image_layout(self.walk, self.length)
        if self.tape.root.shape[1] != self.length:
            raise UnsupportedModelError(
                f"the text has {self.tape.root.shape[1]} positions but the attention sees {self.length} tokens; "
                "pass layout=TokenLayout(length, positions)"
            )
        return text_layout(self.length)

    @cached_property
    def encoder_input(self) -> Value:
        """The image, or what a text's encoder reads: the sum of the word, position and type embeddings."""
        value = self.tape.root
        assert value is not None
        for node in self.tape.nodes if len(value.shape) == 3 else ():
            if node.name == "add" and node.inputs == (value,) and node.outputs[0].shape == value.shape:
                value = node.outputs[0]
            elif value in node.inputs:
                break
        return value

    @cached_property
    def token_output(self) -> Value:
        """The last states of all tokens, which the classifier pools."""
        states = list(token_states(self.walk, self.length))
        if not states:
            raise UnsupportedModelError(
                f"no states [batch, {self.length}, width] were found for the {self.length} tokens that the attention "
                "sees (windows, or attention over features?); take input_x_gradient or lrp"
            )
        return unweighted(self.walk, states[-1])

    @cached_property
    def pooling(self) -> Float[Tensor, "batch length"]:
        """What share of the logits is read from every token."""
        return flow_to(self.walk, self.output, self.token_output, self.length)

    @property
    def attention(self) -> Blocks:
        """The attention probabilities of every block."""
        return [self.per_head(value, value.tensor) for value in self.blocks]

    def per_head(self, block: Value, x: Tensor) -> Float[Tensor, "batch heads length length"]:
        """Bring what belongs to a block's attention probabilities to one shape, whichever way heads are merged."""
        at = self.walk.axis(block)
        return split_samples(real(x), at, self.samples).reshape(self.samples, -1, *x.shape[-2:])


def run_on_tape(model: nn.Module, inputs: Inputs, frugal: bool = False) -> tuple[Tape, Any]:
    """Run `model` once on a clone of its inputs and record it, with its graph or frugally (see `Tape`).

    Raises:
        UnsupportedModelError: If no input can be explained.
    """
    name, explained = explained_input(inputs)
    copies = {key: _copied(x) for key, x in inputs.items()} if isinstance(inputs, Mapping) else explained
    watched = explained.detach() if explained.is_floating_point() else explained

    def forward(given: Tensor) -> Any:
        return model(**{**copies, name: given}) if isinstance(copies, dict) else model(given)

    return forward_on_tape(model, forward, watched, frugal)


def forward_on_tape(
    model: nn.Module, forward: Callable[[Tensor], Any], explained: Tensor, frugal: bool = False
) -> tuple[Tape, Any]:
    """Record what `forward` makes of (a clone of) the explained input.

    Args:
        model: Whose module paths are named in messages.
        forward: Runs the model.
        explained: Image, embeddings or token ids. What has a graph keeps it.
        frugal: See `Tape`.

    Raises:
        ValueError: If the input is empty.
        UnsupportedModelError: If it is never looked up.
    """
    if explained.numel() == 0:
        raise ValueError("the batch is empty: there is nothing to explain")
    tape = Tape(frugal=frugal)
    if explained.is_floating_point():
        given = tape.watch(explained if explained.requires_grad else explained.clone())
    else:
        tape.token_ids = given = explained.clone()
    with tape.recording(model):
        output = forward(given)
    if tape.root is None:
        raise UnsupportedModelError("the model never looks up an embedding of its token ids; pass embeddings instead")
    return tape, output


def read_logits(output: Any, samples: int) -> Float[Tensor, "batch classes"]:
    """Take the logits out of a model's output.

    Raises:
        UnsupportedModelError: If they are not one row of class scores per sample.
        NonFiniteError: If they are NaN.
    """
    logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    if (
        not isinstance(logits, Tensor)
        or logits.ndim != 2
        or logits.shape[0] != samples
        or not logits.is_floating_point()
    ):
        found = f"a tensor of shape {list(logits.shape)}" if isinstance(logits, Tensor) else type(output).__name__
        raise UnsupportedModelError(
            f"the model must return logits [batch, classes] (here [{samples}, classes]) or an object with .logits; "
            f"it returned {found}"
        )
    if logits.isnan().any():
        rows = logits.isnan().any(1).nonzero().flatten().tolist()
        raise NonFiniteError(
            f"the logits of samples {rows[:10]} are NaN: there is no class to explain; check these samples of "
            "the input, and the model's weights, for NaN"
        )
    return logits


def _copied(x: Any) -> Any:
    return x.clone() if isinstance(x, Tensor) else x


def explained_input(inputs: Inputs) -> tuple[str, Tensor]:
    """The image, the embeddings or the token ids among the inputs."""
    if isinstance(inputs, Tensor):
        return "inputs", inputs
    tensors = {name: x for name, x in inputs.items() if isinstance(x, Tensor)}
    for name in ("pixel_values", "image", "inputs_embeds", "input_ids"):
        if name in tensors:
            return name, tensors[name]
    floating = {name: x for name, x in tensors.items() if x.is_floating_point() and x.ndim >= 3}
    if not tensors:
        raise UnsupportedModelError(f"no tensor to explain among the inputs {sorted(inputs)}")
    name = next(iter(floating or tensors))
    return name, tensors[name]
