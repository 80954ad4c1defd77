"""The entry points: relevance of a model's input for a class, or for several from one forward pass."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lrptrain.relevance import methods as _methods  # noqa: F401  (registers them)
from lrptrain.relevance.precision import (
    autocast_state,
    has_half_weights,
    inputs_in_float32,
    model_in_float32,
    no_run_in_float32,
    without_autocast,
)
from lrptrain.relevance.preserve import preserved, unwrap
from lrptrain.relevance.propagation.composite import Rules
from lrptrain.relevance.recording import Inputs, Recording, Target, explained_input, read_logits, run_on_tape
from lrptrain.relevance.registry import get_method
from lrptrain.relevance.tape.canonizers import collapse, unflatten
from lrptrain.relevance.tape.nodes import Value
from lrptrain.relevance.tape.tape import Tape
from lrptrain.relevance.types import Relevance, TokenLayout, UnsupportedModelError


def record(model: nn.Module, inputs: Inputs, *, layout: TokenLayout | None = None) -> Recording:
    """Run a model once, for several maps: `record(model, images).attribute(target=3, method="attnlrp")`.

    Arguments and errors are those of `lrptrain.attribute`.
    """
    model = unwrap(model)
    with preserved(model):
        return recorded(model, inputs, layout)


def attribute(
    model: nn.Module,
    inputs: Inputs,
    target: Target = None,
    method: str = "transformer_attribution",
    *,
    other: Target = None,
    layout: TokenLayout | None = None,
    composite: Rules | str | None = None,
    create_graph: bool = False,
    first_order: bool = False,
    **options: Any,
) -> Relevance:
    """Compute the relevance of every patch or token for one class of every sample.

    The unmodified model is run as it stands (dropout is active in training mode); its parameters, gradients, buffers,
    hooks, flags and the random state are as before afterwards. A batch of N equals N batches of one.

    Autocast is switched off for it, so that maps and logits are those of the weights' own precision. Where the weights
    themselves are in half precision, methods that would amplify its rounding (those that take quotients of small sums
    or differences of answers) run a float32 copy of the model, which is dropped afterwards.

    Args:
        model: Any module whose forward returns logits `[batch, classes]` or an object with `.logits`. Compiled and
            wrapped models are unwrapped.
        inputs: The image batch `[batch, channels, height, width]` or the token ids `[batch, tokens]`, or a dict of
            keyword arguments with one of them (`pixel_values`, `image`, `input_ids`, `inputs_embeds`) and, for texts,
            the `attention_mask` (1 token, 0 padding).
        target: The class to explain: one for all, one per sample, or None for the predicted class.
        method: One of `lrptrain.methods()`.
        other: A class to tell the target apart from: what is explained is then the difference of the two logits.
        layout: Where the content tokens stand, for models in which it cannot be found.
        composite: Rules that count before the method's own, for the methods that propagate relevance by rules: a
            `lrptrain.Composite`, or a mapping from operations to rules, `{"cumsum": lrptrain.rules.epsilon()}`. For
            `lrp` also the name of its own composite, "alpha_beta" or "chefer".
        create_graph: Keep the graph, so that a loss on the scores reaches the model's parameters; for the methods that
            README's table calls differentiable.
        first_order: Whether to take gradients inside a map with a graph as constants, as RobustViT does. Cheaper, and
            the loss then reaches the model through the attention and activations in the map only.
        **options: Options of the method.

    Raises:
        ValueError: If the batch is empty, a target is out of range or of the wrong shape, or a pattern of the
            composite's name map matches no module.
        NonFiniteError: If the logits are NaN, or the relevance is NaN or infinite. With `create_graph` the relevance is
            not checked: a training loop decides what to do with a loss that is not finite.
        UnsupportedModelError: If the output is not `[batch, classes]`, or the model lacks what the method needs.
        UnsupportedMethodError: If the method is unknown, does not take an option, or does not exist for this model.
        UnsupportedOperationError: If relevance reaches an operation without a rule.
    """
    if composite is not None:
        options["composite"] = composite
    chosen = get_method(method, options)  # a wrong name raises before the model is run
    model = unwrap(model)
    with preserved(model):
        recording = recorded(
            model, inputs, layout, frugal=not create_graph, full_precision=chosen.in_full_precision(options)
        )
        return recording._attribute(target, method, other, create_graph, first_order, options)


def recorded(
    model: nn.Module,
    inputs: Inputs,
    layout: TokenLayout | None = None,
    *,
    frugal: bool = False,
    full_precision: bool = False,
) -> Recording:
    """Run a model and record it: without autocast where its weights are in float32.

    Args:
        model: The model.
        inputs: Its inputs.
        layout: Where the content tokens stand, if given.
        frugal: See `Tape`.
        full_precision: Whether to run a float32 copy of a model whose weights are in half precision.

    Raises:
        UnsupportedModelError: If there is no such copy, or nothing to explain.
    """
    has_half = has_half_weights(model)
    with torch.inference_mode(False), torch.enable_grad(), ExitStack() as stack:
        if full_precision or not has_half:
            # A model of mixed weights may need autocast to run at all.
            inputs = inputs_in_float32(inputs) if has_half or autocast_state().is_on else inputs
            stack.enter_context(without_autocast())
        if not (full_precision and has_half):
            return as_recording(*run_on_tape(model, inputs, frugal), model, inputs, layout)
        copy = model_in_float32(model, keep_graph=not frugal)
        try:
            tape, output = run_on_tape(copy, inputs, frugal)
        except NotImplementedError:  # an operation that is refused in any precision
            raise
        except RuntimeError as error:
            raise no_run_in_float32(error) from error
        return as_recording(tape, output, copy, inputs, layout)


def as_recording(
    tape: Tape, output: Any, model: nn.Module, inputs: Inputs, layout: TokenLayout | None = None
) -> Recording:
    """Return a forward pass that has run on a tape as a recording, its operations canonized.

    Raises:
        UnsupportedModelError: If the output is not `[batch, classes]`, or did not come from the input.
        NonFiniteError: If logits are NaN.
    """
    logits = read_logits(output, explained_input(inputs)[1].shape[0])
    again = partial(recorded, model, inputs, layout, full_precision=True)
    return Recording(tape, _canonized(tape, logits), model, inputs, _padding(inputs), layout, record_in_float32=again)


def _canonized(tape: Tape, logits: Tensor) -> Value:
    value = tape.value_of(logits)
    if value is None or not value.depends:
        raise UnsupportedModelError(
            "the logits do not come from the input by recorded operations (detached or precomputed?)"
        )
    tape.keep_only(value)
    unflatten(tape)
    collapse(tape, logits.shape[0])
    return value


def _padding(inputs: Inputs) -> Tensor | None:
    mask = inputs.get("attention_mask") if isinstance(inputs, Mapping) else None
    return mask if isinstance(mask, Tensor) and mask.ndim == 2 else None
