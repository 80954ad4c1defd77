"""A recorded forward pass with the model's whole output, which several heads can be read from."""

import copy
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lrptrain.relevance.model.arguments import check_inputs, mask_name
from lrptrain.relevance.model.precision import (
    AutocastState,
    autocast_state,
    has_half_weights,
    inputs_in_float32,
    model_in_float32,
    no_run_in_float32,
    without_autocast,
)
from lrptrain.relevance.model.preserve import begin_anew
from lrptrain.relevance.model.recordable import check_forward
from lrptrain.relevance.output.heads import Head
from lrptrain.relevance.output.logit_view import LogitView
from lrptrain.relevance.output.outputs import applied_view
from lrptrain.relevance.passes.plain_pass import PlainPass
from lrptrain.relevance.passes.recording import (
    Inputs,
    Recording,
    explained_input,
    run_on_tape,
    run_plainly,
)
from lrptrain.relevance.tape.batch_norms import merge_batch_norms
from lrptrain.relevance.tape.canonizers import collapse, rotate_in_real_numbers, unflatten
from lrptrain.relevance.tape.folding import choose_written, fold_constants
from lrptrain.relevance.tape.nodes import Node, Value, making
from lrptrain.relevance.tape.softmaxes import join_softmaxes
from lrptrain.relevance.tape.tape import Tape
from lrptrain.relevance.types import NonFiniteError, TokenLayout, UnsupportedModelError


@dataclass(frozen=True, eq=False)
class ForwardPass:
    """What one run of a model left: its tape, as recorded, and all that the model returned.

    A tape that is read for a head keeps only what that head comes from, so that every head gets one of its own.

    Attributes:
        tape: All recorded operations; or none, for methods that need no more than gradients at the input.
        output: What the model returned, with its graph.
        model: The module that was run.
        inputs: The inputs that it was given.
        explain: The name of the explained argument, or None for the one that is chosen by itself.
        layout: The layout that the caller knows better, or None.
        autocast: The precision in which the model was run, and in which heads are.
        tokenizer: What cut the texts, to name their tokens; None where the caller gave none.
        serves_once: Whether one gradient is all that is asked for: it then takes the graph along, before another pass
            finds out what the tokens are.
    """

    tape: Tape | PlainPass
    output: Any
    model: nn.Module
    inputs: Inputs
    explain: str | None
    layout: TokenLayout | None
    autocast: AutocastState
    tokenizer: Any = None
    serves_once: bool = False

    @property
    def is_half(self) -> bool:
        """Whether the model ran in half precision, by autocast or by its weights."""
        return self.autocast.is_on or has_half_weights(self.model)

    @cached_property
    def in_float32(self) -> "ForwardPass":
        """Another pass of the same inputs, in float32."""
        begin_anew(self.model)
        passed = forward_pass(
            self.model,
            self.inputs,
            self.explain,
            self.layout,
            differentiable=self.tape.differentiable,
            full_precision=True,
        )
        return replace(passed, tokenizer=self.tokenizer)

    @cached_property
    def on_tape(self) -> "ForwardPass":
        """Another pass of the same inputs, recorded."""
        begin_anew(self.model)
        return forward_pass(self.model, self.inputs, self.explain, self.layout, differentiable=False)

    def under(self, head: Head) -> Recording:
        """Read a head from the output, and return the recording of what it comes from."""
        with torch.inference_mode(False), torch.enable_grad():
            try:
                if isinstance(self.tape, PlainPass):
                    with self.autocast.restored():
                        numbers = head.read(self.output, self._samples)
                    return self._recording(self.tape, self.tape.as_value(numbers), head)
                tape = self._own_tape()
                numbers = self._numbers(tape, head)
            except NonFiniteError as error:
                check_inputs(self.inputs, explained_input(self.inputs, self.explain)[0], error)
                raise
            view = None if head.functions else applied_view(self.output)
            return self._recording(tape, _canonized(tape, numbers, head, view), head)

    def logits(self) -> Recording:
        """Return the recording of the logits; if there are none, one that can be asked for other heads."""
        try:
            return self.under(Head())
        except UnsupportedModelError as error:
            return self._recording(self._own_tape(), error, Head())

    def made_by(self) -> list[Node]:
        """The operations of the model that its logits come from, as they were recorded."""
        tape = self._own_tape()
        with torch.inference_mode(False), torch.enable_grad():
            value = tape.value_of(self._numbers(tape, Head()))
        return [] if value is None else making(tape.nodes, [value])

    @property
    def _samples(self) -> int:
        return explained_input(self.inputs, self.explain)[1].shape[0]

    def _own_tape(self) -> Tape:
        assert isinstance(self.tape, Tape)
        tape = copy.copy(self.tape)
        tape.nodes = list(self.tape.nodes)
        return tape

    def _numbers(self, tape: Tape, head: Head) -> Float[Tensor, "batch numbers"]:
        """Read the head, as further operations of the tape."""
        with self.autocast.restored(), tape.recording(self.model):
            return head.read(self.output, self._samples)

    def _recording(self, tape: Tape | PlainPass, read: Value | UnsupportedModelError, head: Head) -> Recording:
        mask = mask_name(self.inputs, explained_input(self.inputs, self.explain)[0])
        return Recording(
            tape,
            read,
            self.model,
            self.inputs,
            None if mask is None or isinstance(self.inputs, Tensor) else self.inputs[mask],
            self.layout,
            autocast=self.autocast,
            explain=self.explain,
            head=head,
            forward_pass=self,
        )


def forward_pass(
    model: nn.Module,
    inputs: Inputs,
    explain: str | None = None,
    layout: TokenLayout | None = None,
    *,
    differentiable: bool = True,
    full_precision: bool = False,
    plain: Callable[..., PlainPass] | None = None,
    tape_type: type[Tape] = Tape,
) -> ForwardPass:
    """Run a model on a tape, or by a plain pass; without autocast where weights are in float32."""
    check_forward(model)
    has_half = has_half_weights(model)
    with torch.inference_mode(False), torch.enable_grad(), ExitStack() as stack:
        if full_precision or not has_half:
            # A model of mixed weights may need autocast to run at all.
            inputs = inputs_in_float32(inputs) if has_half or autocast_state().is_on else inputs
            stack.enter_context(without_autocast())
        in_another = full_precision and has_half
        run = model_in_float32(model, keep_graph=differentiable) if in_another else model
        if in_another:
            begin_anew(run)  # its first run; others begin alike
        try:
            left: tuple[Tape | PlainPass, Any] = (
                run_on_tape(run, inputs, differentiable, explain, tape_type=tape_type)
                if plain is None
                else run_plainly(run, inputs, explain, plain)
            )
        except NotImplementedError:  # an operation that is refused in any precision
            raise
        except RuntimeError as error:
            if in_another:
                raise no_run_in_float32(error) from error
            raise
        return ForwardPass(*left, run, inputs, explain, layout, autocast_state())


def _canonized(tape: Tape, numbers: Float[Tensor, "batch numbers"], head: Head, view: LogitView | None = None) -> Value:
    value = tape.value_of(numbers)
    if value is None or not value.depends:
        what = "numbers of the target" if head.functions else "logits"
        raise UnsupportedModelError(
            f"the {what} do not come from the input by recorded operations (detached or precomputed?)"
        )
    tape.keep_only(value)
    if view is not None:
        view.into_last_layer(tape, value)
    choose_written(tape)
    fold_constants(tape, value)
    rotate_in_real_numbers(tape, value)
    join_softmaxes(tape)
    unflatten(tape)
    merge_batch_norms(tape)
    collapse(tape, numbers.shape[0])
    return value
