"""One recorded forward pass: what it says of the model, and the maps that can be asked of it."""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lrptrain.relevance.classes import class_names, explained_class, rival_class
from lrptrain.relevance.explanation import Explanation, seed_scale
from lrptrain.relevance.flow import flow_to, unweighted
from lrptrain.relevance.layout import attention_probabilities, image_layout, reads_sequence, text_layout, token_states
from lrptrain.relevance.precision import HALF, AutocastState, autocast_state, has_half_weights
from lrptrain.relevance.preserve import preserved
from lrptrain.relevance.propagation.composite import Rules, check_active_names, custom_rules, split_composite
from lrptrain.relevance.propagation.propagator import Propagator, at_least_float32
from lrptrain.relevance.registry import check_finite, differentiable, get_method
from lrptrain.relevance.tape.functions import enterable
from lrptrain.relevance.tape.nodes import Value
from lrptrain.relevance.tape.sample_axes import split_samples
from lrptrain.relevance.tape.tape import Tape
from lrptrain.relevance.types import (
    NonFiniteError,
    Relevance,
    TokenLayout,
    UnsupportedMethodError,
    UnsupportedModelError,
)

Inputs = Tensor | Mapping[str, Any]
Target = int | str | Sequence[int | str] | Int[Tensor, " batch"] | None
Blocks = list[Float[Tensor, "batch heads length length"]]


@dataclass(eq=False)
class Recording:
    """A forward pass on tape that any number of maps can be asked of: other targets, other methods.

    `lrptrain.record` makes it. It keeps the tensors of the forward pass, and the model, until it is dropped.

    Attributes:
        tape: The recorded operations.
        output: The logits as a recorded value, `[batch, classes]`; `output.tensor` has their graph.
        model: The module that was run, for methods that run it again.
        inputs: The inputs that the module was given.
        padding: Content mask of a text (1 token, 0 padding), `[batch, tokens]`, or None.
        given_layout: The layout that the caller knows better, or None.
        autocast: The precision in which the model was run.
        record_in_float32: Records the same inputs once more, in float32, for methods that half precision misleads.
    """

    tape: Tape
    output: Value
    model: nn.Module
    inputs: Inputs
    padding: Tensor | None = None
    given_layout: TokenLayout | None = None
    autocast: AutocastState = field(default_factory=autocast_state)
    record_in_float32: Callable[[], "Recording"] | None = None
    _pooling: dict[tuple[object, ...], Tensor] = field(default_factory=dict, init=False, repr=False)

    # -- Maps ---------------------------------------------------------------------------------------------------------

    def attribute(
        self,
        target: Target = None,
        method: str = "transformer_attribution",
        *,
        other: Target = None,
        composite: Rules | str | None = None,
        create_graph: bool = False,
        first_order: bool = False,
        **options: Any,
    ) -> Relevance:
        """Compute relevance for one class of every sample; see `lrptrain.attribute` for arguments and errors."""
        if composite is not None:
            options["composite"] = composite
        with preserved(self.model):
            return self._attribute(target, method, other, create_graph, first_order, options)

    def _attribute(
        self,
        target: Target,
        method: str,
        other: Target,
        create_graph: bool,
        first_order: bool,
        options: Mapping[str, Any],
    ) -> Relevance:
        chosen = get_method(method, options)
        if chosen.in_full_precision(options) and self.in_float32 is not self:
            return self.in_float32._attribute(target, method, other, create_graph, first_order, options)
        options, composite = split_composite(options)
        logits = self.output.tensor
        if create_graph and not chosen.differentiable:
            raise UnsupportedMethodError(f"{method} cannot be differentiated; these can: {', '.join(differentiable())}")
        labels = class_names(self.model)
        explained = explained_class(target, logits, labels)
        rival = None if other is None else rival_class(other, explained, logits, labels)
        explanation = Explanation(self, explained, rival, create_graph, first_order)
        with (
            composite,
            torch.inference_mode(False),
            torch.set_grad_enabled(create_graph),
            torch.autocast(logits.device.type, enabled=False),
        ):
            if chosen.uses_rules:
                check_active_names(self.model)
            maps = chosen.function(explanation, **options)
        relevance = Relevance(
            scores=maps.scores if self.padding is None else maps.scores * self.padding.to(maps.scores.dtype),
            logits=logits.detach(),
            target=explained,
            method=method,
            grid=self.patch_grid if self.is_image else None,
            input=maps.input,
            attention=maps.attention,
            other=rival,
        )
        if not create_graph:
            assert self.tape.leaf is not None
            check_finite(relevance, self.tape.leaf)
        return relevance

    @cached_property
    def in_float32(self) -> "Recording":
        """This recording, or another of the same inputs where this one ran in half precision."""
        is_half = self.autocast.is_on or has_half_weights(self.model)
        return self.record_in_float32() if is_half and self.record_in_float32 is not None else self

    def input_gradient(
        self, of: Callable[[Float[Tensor, "batch classes"]], Float[Tensor, ""]], create_graph: bool = False
    ) -> Float[Tensor, "batch ..."]:
        """Return the gradient of a number made of the logits, at the image or the word embeddings.

        Args:
            of: The number, as a function of the logits.
            create_graph: Keep the graph, so that a loss on the gradient can be trained.
        """
        leaf = self.tape.leaf
        logits = self.output.tensor
        assert leaf is not None
        with torch.enable_grad(), torch.autocast(logits.device.type, enabled=False):
            scale = seed_scale(logits)
            number = scale * of(logits)
            with self.tape.replaying():
                grad = enterable(torch.autograd.grad)
                (gradient,) = grad(number, leaf, retain_graph=True, create_graph=create_graph)
            return gradient if scale == 1 else at_least_float32(gradient) / scale

    # -- The batch ----------------------------------------------------------------------------------------------------

    @property
    def logits(self) -> Float[Tensor, "batch classes"]:
        """The model's output, without its graph."""
        return self.output.tensor.detach()

    @property
    def samples(self) -> int:
        """Number of samples in the batch."""
        return self.output.shape[0]

    @property
    def is_image(self) -> bool:
        """Whether the explained input is an image batch, `[batch, channels, height, width]`."""
        return self.tape.root is not None and len(self.tape.root.shape) == 4

    def content_mask(self, tokens: int) -> Bool[Tensor, "batch tokens"]:
        """Return True at a sample's own tokens, False at its padding."""
        if self.padding is not None:
            return self.padding.bool()
        return torch.ones(self.samples, tokens, dtype=torch.bool, device=self.output.tensor.device)

    def content_seeds(self, seed: int) -> list[int]:
        """Return one random seed per sample, of its own content, which neighbours and padding do not change."""
        leaf = self.tape.token_ids if self.tape.token_ids is not None else self.tape.leaf
        assert leaf is not None
        samples = list(leaf.detach().cpu())
        if self.padding is not None:
            samples = [sample[content] for sample, content in zip(samples, self.padding.bool().cpu(), strict=True)]
        # The same numbers are the same content in every precision.
        samples = [sample.float() if sample.dtype in HALF else sample for sample in samples]
        contents = (sample.contiguous().view(torch.uint8).numpy().tobytes() for sample in samples)
        return [zlib.crc32(content) * 1_000_003 + seed for content in contents]

    # -- The model's tokens -------------------------------------------------------------------------------------------

    @cached_property
    def propagator(self) -> Propagator:
        """The backward pass of relevance over the tape."""
        return Propagator(self.tape, self.samples)

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
        if not reads_sequence(self.propagator, self.blocks[0], length):
            raise UnsupportedMethodError(
                f"the attention sees {length} tokens at a time, not the whole sequence (windows?), so that its maps "
                "are not maps of the input; lrp and input_x_gradient reach the input without them"
            )
        return length

    @cached_property
    def layout(self) -> TokenLayout:
        """Where the content tokens stand in the sequence."""
        if self.given_layout is not None:
            return self.given_layout
        assert self.tape.root is not None
        if self.is_image:
            return image_layout(self.propagator, self.length)
        if self.tape.root.shape[1] != self.length:
            raise UnsupportedModelError(
                f"the text has {self.tape.root.shape[1]} positions but the attention sees {self.length} tokens; "
                "pass layout=TokenLayout(length, positions)"
            )
        return text_layout(self.length)

    @property
    def patch_grid(self) -> tuple[int, int]:
        """Rows and columns of an image's patches.

        Raises:
            UnsupportedModelError: If the image is not cut by a convolution and no layout was given.
        """
        if self.given_layout is not None and self.given_layout.grid is not None:
            return self.given_layout.grid
        node = self.propagator.patch_embedding
        if node is None:
            raise UnsupportedModelError(
                "no patch convolution was found; pass layout=TokenLayout(length, positions, grid)"
            )
        rows, columns = node.outputs[0].shape[-2:]
        return rows, columns

    @cached_property
    def encoder_input(self) -> Value:
        """The image, or what a text's encoder reads: the sum of the word, position and type embeddings."""
        # word -> + position -> + type: follow the sums as long as nothing else reads the embeddings.
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
        states = list(token_states(self.propagator, self.length))
        if not states:
            raise UnsupportedModelError(
                f"no states [batch, {self.length}, width] were found for the {self.length} tokens that the attention "
                "sees (windows, or attention over features?); take input_x_gradient or lrp"
            )
        return unweighted(self.propagator, states[-1])

    @property
    def pooling(self) -> Float[Tensor, "batch length"]:
        """The share of the logits that is read from every token; sums to 1."""
        # An operation that only a user's rule serves may stand behind the last states.
        rules = custom_rules()
        if rules not in self._pooling:
            self._pooling[rules] = flow_to(self.propagator, self.output, self.token_output, self.length)
        return self._pooling[rules]

    @property
    def attention(self) -> Blocks:
        """The attention probabilities of every block."""
        return [self.per_head(value, value.tensor) for value in self.blocks]

    def per_head(self, block: Value, x: Tensor) -> Float[Tensor, "batch heads length length"]:
        """Bring what belongs to a block's attention probabilities to one shape, whichever way heads are merged.

        Models keep them as [batch, heads, length, length] or as [batch * heads, length, length], say.
        """
        at = self.propagator.axis(block)
        return split_samples(at_least_float32(x), at, self.samples).reshape(self.samples, -1, *x.shape[-2:])


def run_on_tape(model: nn.Module, inputs: Inputs, frugal: bool = False) -> tuple[Tape, Any]:
    """Run `model` once on a clone of its inputs and record it, with its graph or frugally (see `Tape`).

    Raises:
        UnsupportedModelError: If no input can be explained.
    """
    name, explained = explained_input(inputs)
    copies = {key: _copied(x) for key, x in inputs.items()} if isinstance(inputs, Mapping) else explained
    watched = explained.detach() if explained.is_floating_point() else explained

    def forward(tensor: Tensor) -> Any:
        return model(**{**copies, name: tensor}) if isinstance(copies, dict) else model(tensor)

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
    tape.know(weight for weight in model.parameters() if weight.grad_fn is not None)
    if explained.is_floating_point():
        watched = tape.watch(explained if explained.requires_grad else explained.clone())
    else:
        tape.token_ids = watched = explained.clone()
    with tape.recording(model):
        output = forward(watched)
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
        returned = f"a tensor of shape {list(logits.shape)}" if isinstance(logits, Tensor) else type(output).__name__
        raise UnsupportedModelError(
            f"the model must return logits [batch, classes] (here [{samples}, classes]) or an object with .logits; "
            f"it returned {returned}"
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
