"""One recorded forward pass: what it says of the model, and the maps that can be asked of it."""

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lrptrain.relevance.advice import REACH_INPUT, called, other_methods, several_tokens
from lrptrain.relevance.default import DEFAULT_METHODS, UNSUPPORTED, check_method, first_that_serves
from lrptrain.relevance.explanation import Explanation, seed_scale
from lrptrain.relevance.fast.kernels import KernelError, Kernels
from lrptrain.relevance.fast.switch import is_plain
from lrptrain.relevance.fast.walk import walked, weights_of
from lrptrain.relevance.model.arguments import warn_of_other_texts
from lrptrain.relevance.model.classes import class_names, explained_class, output_meaning, rival_class
from lrptrain.relevance.model.precision import HALF, AutocastState, autocast_state
from lrptrain.relevance.model.preserve import begin_anew, preserved
from lrptrain.relevance.model.recordable import check_recordable, gives_answers_only, warn_of_train_mode
from lrptrain.relevance.notices import warn_once
from lrptrain.relevance.output.heads import Head, HeadFunction, as_head
from lrptrain.relevance.passes.plain_pass import PlainPass, left_to_the_tape
from lrptrain.relevance.propagation.composite import Rules, applied_to, custom_rules, split_composite
from lrptrain.relevance.propagation.propagator import Propagator, at_least_float32
from lrptrain.relevance.registry import Method, RelevanceMaps, check_finite, check_maps, differentiable, get_method
from lrptrain.relevance.sharding.whole_weights import check_graph
from lrptrain.relevance.shown.explained_batch import ExplainedBatch
from lrptrain.relevance.shown.remarks import remark
from lrptrain.relevance.swapped.planned_pass import PlannedPass
from lrptrain.relevance.tape.functions import enterable
from lrptrain.relevance.tape.lookup import AnotherTable, Table
from lrptrain.relevance.tape.nodes import Value, map_nested, tensors_in
from lrptrain.relevance.tape.sample_axes import split_samples
from lrptrain.relevance.tape.tape import Tape
from lrptrain.relevance.tape.text_lookups import TextLookups
from lrptrain.relevance.tokens.attention_layers import DECODER, AttentionLayers, AttentionMap, check_one_sequence
from lrptrain.relevance.tokens.attentions import Attention, find_attentions
from lrptrain.relevance.tokens.flow import flow_to, unweighted
from lrptrain.relevance.tokens.inputs import ExplainedInput, untold_input, with_sizes
from lrptrain.relevance.tokens.inputs import explained_input as kind_of_input
from lrptrain.relevance.tokens.layout import input_layout, joints, reads_sequence, token_states
from lrptrain.relevance.tokens.token_walk import between, last_unmixed
from lrptrain.relevance.types import Relevance, TokenLayout, UnsupportedMethodError, UnsupportedModelError, unknown_name

if TYPE_CHECKING:
    from lrptrain.relevance.passes.forward_pass import ForwardPass

T = TypeVar("T")
Pass = TypeVar("Pass", Tape, PlainPass)
Inputs = Tensor | Mapping[str, Any]
Target = int | str | Sequence[int | str | tuple[int, ...]] | Int[Tensor, " batch"] | HeadFunction | None
Blocks = list[Float[Tensor, "batch heads length length"]]


@dataclass(eq=False)
class Recording:
    """A forward pass on tape that any number of maps can be asked of: other targets, other methods.

    `lrptrain.record` makes it. It keeps the tensors of the forward pass, and the model, until it is dropped.

    Attributes:
        watched: The tape; or what stands in its place for methods that need no recorded operations.
        read: The logits, or what a head makes of the model's output, as a recorded value; or why there are none.
        model: The module that was run, for methods that run it again.
        inputs: The inputs that the module was given.
        mask: The mask of the explained input's content that the model was given, or None; see `padding`.
        given_layout: The layout that the caller knows better, or None.
        autocast: The precision in which the model was run.
        explain: The name of the explained argument, or None for the one that is chosen by itself.
        head: What of the model's output is explained.
        forward_pass: The model's whole output, which other heads can be read from.
        keeps_answer: Whether a second run answers as the first one did, of a model that changes what cannot be put
            back; None as long as there was no such run.
    """

    watched: Tape | PlainPass
    read: Value | UnsupportedModelError
    model: nn.Module
    inputs: Inputs
    mask: Tensor | None = None
    given_layout: TokenLayout | None = None
    autocast: AutocastState = field(default_factory=autocast_state)
    explain: str | None = None
    head: Head = field(default_factory=Head)
    forward_pass: "ForwardPass | None" = field(default=None, repr=False)
    keeps_answer: bool | None = field(default=None, init=False, repr=False)
    _pooling: dict[tuple[object, ...], Tensor] = field(default_factory=dict, init=False, repr=False)

    # -- Maps ---------------------------------------------------------------------------------------------------------

    def attribute(
        self,
        target: Target = None,
        method: str | None = None,
        *,
        other: Target = None,
        composite: Rules | str | None = None,
        create_graph: bool = False,
        first_order: bool = False,
        **options: Any,
    ) -> Relevance:
        """Compute relevance for one class of every sample; see `lrptrain.attribute` for arguments and errors.

        Raises:
            ValueError: Also if a graph is asked for that the recording does not have.
        """
        if create_graph and not self.watched.differentiable:
            raise ValueError("create_graph=True needs the graph of the weights: record with differentiable=True")
        check_graph(self.model, create_graph)
        if composite is not None:
            options["composite"] = composite
        if not create_graph:
            warn_of_train_mode(self.model)
        with walked(self.model), preserved(self.model):
            return self._attribute(target, method, other, create_graph, first_order, options)

    def _attribute(
        self,
        target: Target,
        method: str | None,
        other: Target,
        create_graph: bool,
        first_order: bool,
        options: Mapping[str, Any],
    ) -> Relevance:
        """The map of a method, or of the first default that serves; of another head or precision, by its recording."""
        settings = (create_graph, first_order, options)
        if self.forward_pass is not None:
            head, target, other = as_head(target, other, self.forward_pass.output)
            if head.functions:
                return self.forward_pass.under(head)._attribute(target, method, other, *settings)
        if method is None and isinstance(self.watched, PlannedPass):
            method = DEFAULT_METHODS[0]
        if method is None:
            names = check_method(None, options)

            def explain(name: str) -> Relevance:
                self.check_default(name)
                return self._attribute(target, name, other, *settings)

            return first_that_serves(self.model, names, explain, create_graph=create_graph)
        chosen = get_method(method, options)
        if chosen.in_full_precision(options) and self.forward_pass is not None and self.forward_pass.is_half:
            return self.in_float32._attribute(target, method, other, *settings)
        if create_graph and not chosen.differentiable:
            raise UnsupportedMethodError(f"{method} cannot be differentiated; these can: {', '.join(differentiable())}")
        logits = self.output.tensor
        labels = class_names(self.model)
        explained = explained_class(target, logits, labels)
        rival = None if other is None else rival_class(other, explained, logits, labels)
        explanation = Explanation(self, explained, rival, create_graph, first_order)
        maps = self._maps(chosen, method, explanation, options)
        relevance = self._relevance(explanation, method, maps, None if create_graph else self._shown_with(labels))
        is_planned = isinstance(self.watched, PlannedPass)  # then it does
        if chosen.name == "generic_attention" and not is_planned and not self.pools_one_token:
            warn_once(self.model, "several tokens", f"generic_attention: {several_tokens()}")
        if not create_graph:
            check_finite(relevance, self.leaf)
            with called(method):
                remark(self.model, chosen, relevance, maps, self.leaf.detach(), self._padding_of(maps))
        return relevance

    def _maps(self, chosen: Method, method: str, explanation: Explanation, options: Mapping[str, Any]) -> RelevanceMaps:
        """What a method returns, checked."""
        options, composite = split_composite(options)
        planned = self.watched if isinstance(self.watched, PlannedPass) else None
        with (
            called(method),
            composite,
            torch.inference_mode(False),
            torch.set_grad_enabled(explanation.create_graph),
            torch.autocast(self.output.tensor.device.type, enabled=False),
            applied_to(self.model, self.tape.nodes) if chosen.uses_rules and planned is None else nullcontext(),
        ):
            if planned is None:
                maps = chosen.function(explanation, **options)
            else:
                with left_to_the_tape():
                    maps = planned.maps(explanation)
        own = _own_tokens(maps)
        tokens = self._number_of_tokens if own is None else math.prod(own)
        check_maps(maps, method, self.samples, tokens, self._grid_of(maps))
        return maps

    def _relevance(
        self, explanation: Explanation, method: str, maps: RelevanceMaps, batch: ExplainedBatch | None
    ) -> Relevance:
        """A method's maps with what they are of; 0 at padding."""
        padding = self._padding_of(maps)
        return Relevance(
            scores=maps.scores if padding is None else maps.scores * padding.to(maps.scores.dtype),
            logits=self.logits,
            target=explanation.target,
            method=method,
            grid=self._grid_of(maps),
            input=maps.input,
            attention=maps.attention,
            other=explanation.other,
            convergence_delta=maps.convergence_delta,
            batch=batch,
        )

    def _padding_of(self, maps: RelevanceMaps) -> Tensor | None:
        return self.padding if _own_tokens(maps) is None else None

    def _grid_of(self, maps: RelevanceMaps) -> tuple[int, ...] | None:
        own = _own_tokens(maps)
        return self.grid if own is None else own if len(own) > 1 else None

    def _shown_with(self, labels: Mapping[str, int]) -> ExplainedBatch:
        """Return what a map of this recording is shown with."""
        explained = explained_input(self.inputs, self.explain)[1]
        # `LABEL_0`, `LABEL_1` ... are what transformers writes where nobody has named them.
        names = {number: name for name, number in labels.items() if name != f"LABEL_{number}"}
        fits = self.padding is not None and self.padding.shape == explained.shape
        tokenizer = None if self.forward_pass is None else self.forward_pass.tokenizer
        padding = self.padding if fits else None
        return ExplainedBatch(explained, padding, names, output_meaning(self.model), tokenizer)

    @property
    def tape(self) -> Tape:
        """The recorded operations."""
        if isinstance(self.watched, PlainPass):
            raise UnsupportedMethodError("the method reads the tape: say needs='tape' where it is registered")
        return self.watched

    @property
    def on_tape(self) -> "Recording":
        """The same with all operations recorded, by another run of the model where this one has none."""
        return self if isinstance(self.watched, Tape) else self._on_tape

    @cached_property
    def _on_tape(self) -> "Recording":
        assert self.forward_pass is not None
        return self.forward_pass.on_tape.under(self.head)

    @cached_property
    def in_float32(self) -> "Recording":
        """Another recording of the same inputs, in float32."""
        assert self.forward_pass is not None
        return self.forward_pass.in_float32.under(self.head)

    def input_gradient(
        self, of: Callable[[Float[Tensor, "batch classes"]], Float[Tensor, ""]], create_graph: bool = False
    ) -> Float[Tensor, "batch ..."]:
        """Return the gradient of a number made of the logits, at the image or the word embeddings."""
        logits = self.output.tensor
        with torch.enable_grad(), torch.autocast(logits.device.type, enabled=False):
            scale = seed_scale(logits)
            number = scale * of(logits)
            with self.watched.replaying():
                grad = enterable(torch.autograd.grad)
                (gradient,) = grad(number, self.leaf, retain_graph=True, create_graph=create_graph)
            return gradient if scale == 1 else at_least_float32(gradient) / scale

    # -- The batch ----------------------------------------------------------------------------------------------------

    @property
    def output(self) -> Value:
        """The logits as a recorded value, `[batch, classes]`; `output.tensor` has their graph."""
        if isinstance(self.read, UnsupportedModelError):
            raise self.read
        return self.read

    @property
    def logits(self) -> Float[Tensor, "batch classes"]:
        """The model's output, without its graph."""
        return self.output.tensor.detach()

    @property
    def samples(self) -> int:
        """Number of samples in the batch."""
        return self.output.shape[0]

    @property
    def leaf(self) -> Tensor:
        """The explained input for gradients: the image, or the word embeddings."""
        assert self.watched.leaf is not None
        return self.watched.leaf

    @property
    def is_image(self) -> bool:
        """Whether the explained input is an image batch, `[batch, channels, height, width]`."""
        return self.watched.root is not None and len(self.watched.root.shape) == 4

    @cached_property
    def explained(self) -> ExplainedInput:
        """What the explained input is, and which of its parts are tokens."""
        if isinstance(self.watched, PlainPass):
            if self.watched.only_answers and self.watched.root is not None and self.watched.token_ids is None:
                return untold_input(self.watched.root, self.given_layout)
            return self.watched.explained(self.model, self.inputs, self.explain, self.found_on_tape)
        explained = self._once_per_structure("explained", lambda: replace(self._found_input, cells=None, order=None))
        return with_sizes(explained, self.inputs.get("spatial_shapes") if isinstance(self.inputs, Mapping) else None)

    def found_on_tape(self) -> tuple[ExplainedInput, bool]:
        """Return the explained input, by another pass, and whether operations say so without their numbers."""
        recording = self.on_tape
        return recording.explained, recording.propagator.structure is not None

    @cached_property
    def _found_input(self) -> ExplainedInput:
        """The explained input, with the values that its tokens are made of."""
        try:
            block = self.blocks[0] if self.length else None
        except (UnsupportedModelError, UnsupportedMethodError):  # no attention over the whole sequence
            block = None
        return kind_of_input(self.propagator, self.given_layout, block)

    def _once_per_structure(self, what: str, find: Callable[[], T]) -> T:
        """Return what `find` finds by the structure of the tape, or found in an earlier pass."""
        if self.given_layout is not None or custom_rules():
            return find()
        return self.propagator.once_per_structure((what, self.explain), find)

    @property
    def grid(self) -> tuple[int, ...] | None:
        """The tokens as (rows, columns) for images, (frames, rows, columns) for videos, None if they form no grid."""
        if self.watched.token_ids is not None:
            return None
        if self.given_layout is not None and self.given_layout.grid is not None:
            return self.given_layout.grid
        try:
            return self.explained.grid
        except UnsupportedModelError:
            if self.given_layout is not None:  # its tokens are known, and that they form no grid
                return None
            raise

    @property
    def _number_of_tokens(self) -> int | None:
        """How many scores a map has for each sample; None where the input's tokens are not known."""
        if self.grid is not None:
            return math.prod(self.grid)
        try:
            return self.explained.tokens
        except UnsupportedModelError:
            return None

    @cached_property
    def padding(self) -> Bool[Tensor, "batch tokens"] | None:
        """True at a sample's own tokens, False at its padding, or None where the model was given no mask."""
        if self.mask is None:
            return None
        content = self.explained.content(self.mask)
        if content is None:
            raise ValueError(
                f"the mask {list(self.mask.shape)} fits neither the {self.explained.tokens} tokens of the input "
                f"{list(self.explained.shape)} ({self.explained.kind}) nor its places; pass a mask of one of these "
                "shapes, or none"
            )
        return content

    def content_mask(self, tokens: int) -> Bool[Tensor, "batch tokens"]:
        """Return True at a sample's own tokens, False at its padding."""
        if self.padding is not None:
            return self.padding.bool()
        return torch.ones(self.samples, tokens, dtype=torch.bool, device=self.output.tensor.device)

    def content_seeds(self, seed: int) -> list[int]:
        """Return one random seed per sample, of its own content, which neighbours and padding do not change."""
        leaf = self.leaf if self.watched.token_ids is None else self.watched.token_ids
        samples = list(leaf.detach().cpu())
        if self.padding is not None:
            places = self.explained.at_places(self.padding, True).expand(self.explained.shape)
            # Token ids have no width.
            content = (places[..., 0] if leaf.ndim < places.ndim else places).cpu()
            samples = [sample[is_content] for sample, is_content in zip(samples, content, strict=True)]
        # The same numbers are the same content in every precision.
        samples = [sample.float() if sample.dtype in HALF else sample for sample in samples]
        contents = (sample.contiguous().view(torch.uint8).numpy().tobytes() for sample in samples)
        return [zlib.crc32(content) * 1_000_003 + seed for content in contents]

    # -- The model's tokens -------------------------------------------------------------------------------------------

    @cached_property
    def propagator(self) -> Propagator:
        """The backward pass of relevance over the tape."""
        return Propagator(self.tape, self.samples, self.model)

    @cached_property
    def blocks(self) -> list[Value]:
        """The attention probabilities of every block, in order: self-attention, and cross-attention of equal lengths.

        Where a model mixes its heads before they weigh the values, what it makes of them.
        """
        blocks = list(dict.fromkeys(attention.block for attention in self.attentions))
        if not blocks:
            raise UnsupportedModelError(
                "the model has no self-attention that the tape can see: no softmax over the last axis of a square "
                f"[tokens, tokens] matrix that weighs values; {other_methods(*REACH_INPUT)} need none"
            )
        return blocks

    @cached_property
    def attentions(self) -> list[Attention]:
        """Where attention maps weigh values on their way to the logits.

        A stream of tokens that only helps another to its scores, as the layout of LiLT, has maps of its own. No value
        goes by them to the logits: they are no part of any product of maps.
        """
        attentions = find_attentions(self.tape)
        if isinstance(self.read, UnsupportedModelError):
            return attentions
        products = {attention.product: attention for attention in attentions}
        passed = set(between(self.propagator, None, self.read, products))
        return [attention for attention in attentions if attention.product in passed] or attentions

    @cached_property
    def attention_layers(self) -> AttentionLayers:
        """How the blocks follow one another."""
        check_one_sequence(self.propagator, self.output)
        return AttentionLayers(self.propagator, self.attentions, self.token_output, self.length)

    @cached_property
    def length(self) -> int:
        """Number of tokens in the sequence, the same in every block."""
        lengths = {value.shape[-1] for value in self.blocks}
        if len(lengths) > 1:
            raise UnsupportedMethodError(
                f"the blocks attend over sequences of different lengths {sorted(lengths)}, so their attention maps "
                f"cannot be multiplied; {other_methods(*REACH_INPUT)} reach the input without that"
            )
        length = lengths.pop()
        if not reads_sequence(self.propagator, self.blocks[0], length):
            raise UnsupportedMethodError(
                f"the attention sees {length} tokens at a time, not the whole sequence (windows?), so that its maps "
                f"are not maps of the input; {other_methods(*REACH_INPUT)} reach the input without them"
            )
        return length

    @cached_property
    def layout(self) -> TokenLayout:
        """Where the content tokens stand in the sequence."""
        if self.given_layout is not None:
            return self.given_layout
        return self._once_per_structure(
            "layout", lambda: input_layout(self.propagator, self._found_input, self.length, self.blocks[0])
        )

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
                f"sees (windows, or attention over features?); take {other_methods(*REACH_INPUT)}"
            )
        # A head may read the tokens in two ways, as the start and the end of an answer: both come from states before.
        complete = joints(self.tape, self.output, self.blocks[-1])
        last = unweighted(self.propagator, next((x for x in reversed(states) if x in complete), states[-1]))
        return last_unmixed(self.propagator, self.output, self.attentions[-1], last, self.length)

    @property
    def pooling(self) -> Float[Tensor, "batch length"]:
        """The share of the logits that is read from every token; sums to 1."""
        # An operation that only a user's rule serves may stand behind the last states.
        rules = custom_rules()
        if rules not in self._pooling:
            self._pooling[rules] = flow_to(self.propagator, self.output, self.token_output, self.length)
        return self._pooling[rules]

    @cached_property
    def pools_one_token(self) -> bool:
        """Whether all logits read one and the same token's row of the maps, as that of a class token."""
        if not self.attentions:
            return True
        # Also where it is asked after the map, as in a validation without gradients.
        with torch.inference_mode(False), torch.enable_grad():
            try:
                last = flow_to(self.propagator, self.output, self.token_output, self.length, logit=-1)
            except UNSUPPORTED:  # windows and stages, of which many are pooled
                return False
            return bool((torch.minimum(self.pooling, last).amax(-1) > 1 - 1e-4).all())

    def check_default(self, method: str) -> None:
        """Reject generic attention where nobody names it and its maps would say where tokens are pooled, no more."""
        if method == "generic_attention" and not self.pools_one_token:
            raise UnsupportedMethodError(several_tokens())

    @property
    def attention(self) -> Blocks:
        """The attention probabilities of every block."""
        return [self.per_head(value, value.tensor) for value in self.blocks]

    def map_tensor(self, attention: AttentionMap) -> Float[Tensor, "batch heads length length"]:
        """What weighs the values: the probabilities of a block, or a sum of several with factors."""
        parts = [self.per_head(value, value.tensor) for value in attention.parts]
        total = parts[0]
        for part, factor in zip(parts[1:], attention.factors[1:], strict=True):
            total = total + factor * part
        return total

    def content_of(self, row: Float[Tensor, "*batch length"], stream: int) -> Float[Tensor, "*batch tokens"]:
        """Relevance of the content tokens, of a row over the tokens of a stream; a decoder reads them one later."""
        if stream == DECODER:
            row = torch.nn.functional.pad(row[..., 1:], (0, 1))
        return self.layout.content(row)

    def per_head(self, block: Value, x: Tensor) -> Float[Tensor, "batch heads length length"]:
        """Bring what belongs to a block's attention probabilities to one shape, whichever way heads are merged.

        Models keep them as [batch, heads, length, length] or as [batch * heads, length, length], say.
        """
        at = self.propagator.axis(block)
        return split_samples(at_least_float32(x), at, self.samples).reshape(self.samples, -1, *x.shape[-2:])


def _own_tokens(maps: Any) -> tuple[int, ...] | None:
    """The shape of the tokens of a method that has others than the input; None for those of the input."""
    return maps.own_tokens if isinstance(maps, RelevanceMaps) else None


def run_on_tape(
    model: nn.Module,
    inputs: Inputs,
    differentiable: bool = True,
    explain: str | None = None,
    keeps_maps: bool = True,
    tape_type: type[Tape] = Tape,
) -> tuple[Tape, Any]:
    """Run `model` once on a clone of its inputs and record it, differentiable or not (see `Tape`).

    For `keeps_maps` see `forward_on_tape`.
    """

    def run(forward: Callable[[Tensor], Any], explained: Tensor, others: Mapping[str, Any]) -> tuple[Tape, Any]:
        watched = explained.detach() if explained.is_floating_point() else explained
        return forward_on_tape(model, forward, watched, differentiable, others, keeps_maps, tape_type)

    return _run_on_clones(model, inputs, explain, run)


def run_plainly(
    model: nn.Module, inputs: Inputs, explain: str | None, kind: Callable[..., PlainPass]
) -> tuple[PlainPass, Any]:
    """Run `model` once on a clone of its inputs, for gradients and answers, or by a plan; see `PlainPass`."""

    def run(forward: Callable[[Tensor], Any], explained: Tensor, others: Mapping[str, Any]) -> tuple[PlainPass, Any]:
        is_text = not explained.is_floating_point()
        copied = explained.clone()
        plain = kind(copied if is_text else None, others=tuple(tensors_in(others)))
        plain.only_answers = gives_answers_only(model)
        given = copied if is_text else plain.watch(copied)
        with plain.recording():
            return plain, forward(given)

    return _run_on_clones(model, inputs, explain, run)


def _run_on_clones(
    model: nn.Module, inputs: Inputs, explain: str | None, run: Callable[..., tuple[Pass, Any]]
) -> tuple[Pass, Any]:
    name, explained = explained_input(inputs, explain)
    by_name = {} if isinstance(inputs, Tensor) else {key: x for key, x in inputs.items() if key != name}
    others = map_nested(by_name, Tensor, Tensor.clone)

    def forward(tensor: Tensor) -> Any:
        return model(tensor) if isinstance(inputs, Tensor) else model(**{**others, name: tensor})

    passed, output = run(forward, explained, others)
    if explain is None:
        texts = [key for key, x in others.items() if isinstance(x, Tensor) and passed.text.reads_as_text(x)]
        warn_of_other_texts(model, name, texts)
    return passed, output


def forward_on_tape(
    model: nn.Module,
    forward: Callable[[Tensor], Any],
    explained: Tensor,
    differentiable: bool = True,
    others: Mapping[str, Any] | None = None,
    keeps_maps: bool = True,
    tape_type: type[Tape] = Tape,
) -> tuple[Tape, Any]:
    """Record what `forward` makes of (a clone of) the explained input.

    Args:
        model: Whose module paths are named in messages.
        forward: Runs the model.
        explained: Image, embeddings or token ids. What has a graph keeps it.
        differentiable: See `Tape`.
        others: The other arguments that `forward` gives to the model.
        keeps_maps: Whether a graph of the weights holds the attention maps, as methods with rules need them. Otherwise
            they are made again where they are asked for.
        tape_type: The kind of tape that records.

    Raises:
        ValueError: If the input is empty.
        UnsupportedModelError: If the model cannot be recorded, or never looks the ids up.
    """
    check_recordable(model)
    if explained.numel() == 0:
        raise ValueError("the batch is empty: there is nothing to explain")
    tables: tuple[Table, ...] = ()
    kernels = not (differentiable and keeps_maps) and not is_plain()
    while True:
        fused = Kernels(twice=differentiable) if kernels else None
        text = TextLookups(others=tuple(tensors_in(others)), tables=tables)
        tape = tape_type(differentiable=differentiable, kernels=fused, text=text)
        try:
            output = _run_on(tape, model, forward, explained)
            break
        except AnotherTable as found:
            tables = _distinct(found.tables)
        except KernelError:
            kernels = False
        begin_anew(model)
    if tape.root is None:
        raise UnsupportedModelError(
            "the model never looks up an embedding of its token ids (it changes them before, or multiplies a one-hot "
            "matrix?); look them up with nn.Embedding, or pass inputs_embeds where the model takes them"
        )
    return tape, output


def _run_on(tape: Tape, model: nn.Module, forward: Callable[[Tensor], Any], explained: Tensor) -> Any:
    tape.know(weight for weight in weights_of(model) if weight.grad_fn is not None)
    if explained.is_floating_point():
        watched = tape.watch(explained if explained.requires_grad else explained.clone())
    else:
        tape.text.ids = watched = explained.clone()
    with tape.recording(model):
        return forward(watched)


def _distinct(tables: tuple[Table, ...]) -> tuple[Table, ...]:
    """Tables that a later pass tells apart by their weights: those of a model, not computed anew in each."""
    weights = [table.weight for table in tables]
    if len({id(weight) for weight in weights}) < len(weights) or not all(isinstance(x, nn.Parameter) for x in weights):
        raise UnsupportedModelError(
            "the model looks its token ids up in several tables that cannot be told apart (one table with several "
            "hashes, or weights that are computed?); pass inputs_embeds where it takes them"
        )
    return tables


def explained_input(inputs: Inputs, explain: str | None = None) -> tuple[str, Tensor]:
    """Return the argument that is explained: its name and its tensor."""
    if isinstance(inputs, Tensor):
        if explain is not None:
            raise ValueError(
                f"explain={explain!r} names an argument of the model, but the input is one tensor; pass a dict of the "
                "arguments, or leave explain out"
            )
        return "inputs", inputs
    tensors = {name: x for name, x in inputs.items() if isinstance(x, Tensor)}
    if explain is not None:
        if explain not in tensors:
            raise ValueError(unknown_name("argument to explain", str(explain), tuple(tensors)))
        return explain, tensors[explain]
    for name in ("pixel_values", "image", "inputs_embeds", "input_ids"):
        if name in tensors:
            return name, tensors[name]
    floating = {name: x for name, x in tensors.items() if x.is_floating_point() and x.ndim >= 3}
    if not tensors:
        raise UnsupportedModelError(f"no tensor to explain among the inputs {sorted(inputs)}")
    name = next(iter(floating or tensors))
    return name, tensors[name]
