"""The entry points: relevance of a model's input for a class, or for several from one forward pass."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lrptrain.relevance import methods as _methods  # noqa: F401  (registers them)
from lrptrain.relevance.autocast import seed_scale
from lrptrain.relevance.explanation import Explanation
from lrptrain.relevance.methods.input_maps import patch_grid
from lrptrain.relevance.preserve import preserved, unwrap
from lrptrain.relevance.propagation.propagate import real
from lrptrain.relevance.recording import Inputs, Recording, explained_input, read_logits, run_on_tape
from lrptrain.relevance.registry import differentiable, get_method
from lrptrain.relevance.tape.flattened import unflatten
from lrptrain.relevance.tape.functions import enterable
from lrptrain.relevance.tape.nodes import Value
from lrptrain.relevance.tape.tape import Tape
from lrptrain.relevance.tape.written_out import collapse
from lrptrain.relevance.types import (
    NonFiniteError,
    Relevance,
    TokenLayout,
    UnsupportedMethodError,
    UnsupportedModelError,
)

Target = int | Sequence[int] | Int[Tensor, " batch"] | None


@dataclass(eq=False)
class Recorded:
    """A forward pass that any number of maps can be asked of: other targets, other methods. Made by `record`.

    It keeps the tensors of the forward pass, and the model, until it is dropped.
    """

    recording: Recording

    @property
    def logits(self) -> Float[Tensor, "batch classes"]:
        """The model's output."""
        return self.recording.logits.detach()

    def attribute(
        self,
        target: Target = None,
        method: str = "transformer_attribution",
        *,
        other: Target = None,
        create_graph: bool = False,
        first_order: bool = False,
        **options: Any,
    ) -> Relevance:
        """Relevance for one class of every sample; see `lrptrain.attribute`."""
        with preserved(self.recording.model):
            return _explain(self.recording, target, method, other, create_graph, first_order, options)

    def input_gradient(
        self, of: Callable[[Float[Tensor, "batch classes"]], Float[Tensor, ""]], create_graph: bool = False
    ) -> Float[Tensor, "batch ..."]:
        """Gradient of a number made of the logits, at the image or the word embeddings."""
        recording, leaf = self.recording, self.recording.tape.leaf
        assert leaf is not None
        with torch.enable_grad(), torch.autocast(recording.logits.device.type, enabled=False):
            scale = seed_scale(recording.logits)
            number = scale * of(recording.logits)
            with recording.tape.replaying():
                grad = enterable(torch.autograd.grad)
                (found,) = grad(number, leaf, retain_graph=True, create_graph=create_graph)
            return found if scale == 1 else real(found) / scale


def record(model: nn.Module, inputs: Inputs, *, layout: TokenLayout | None = None) -> Recorded:
    """Run a model once, for several maps: `record(model, images).attribute(target=3, method="attnlrp")`.

    Arguments and errors are those of `lrptrain.attribute`.
    """
    model = unwrap(model)
    with preserved(model):
        return Recorded(_recording(model, inputs, layout))


def attribute(
    model: nn.Module,
    inputs: Inputs,
    target: Target = None,
    method: str = "transformer_attribution",
    *,
    other: Target = None,
    layout: TokenLayout | None = None,
    create_graph: bool = False,
    first_order: bool = False,
    **options: Any,
) -> Relevance:
    """Compute the relevance of every patch or token for one class of every sample.

    The unmodified model is run as it stands (dropout is active in training mode); its parameters, gradients, buffers,
    hooks, flags and the random state are as before afterwards. A batch of N equals N batches of one.

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
        create_graph: Keep the graph, so that a loss on the scores reaches the model's parameters; for the methods that
            README's table calls differentiable.
        first_order: With `create_graph`: take gradients inside the map as constants, as RobustViT does. Cheaper, and
            the loss then reaches the model through the attention and activations in the map only.
        **options: Of the method.

    Raises:
        ValueError: If the batch is empty, or a target is out of range or of the wrong shape.
        NonFiniteError: If the logits are NaN, or the relevance is NaN or infinite. With `create_graph` the relevance is
            not checked: a training loop decides what to do with a loss that is not finite.
        UnsupportedModelError: If the output is not `[batch, classes]`, or the model lacks what the method needs.
        UnsupportedMethodError: If the method is unknown, does not take an option, or does not exist for this model.
        UnsupportedOperationError: If relevance reaches an operation without a rule.
    """
    get_method(method, options)  # a wrong name is told before the model is run
    model = unwrap(model)
    with preserved(model):
        recording = _recording(model, inputs, layout, frugal=not create_graph)
        return _explain(recording, target, method, other, create_graph, first_order, options)


def _recording(model: nn.Module, inputs: Inputs, layout: TokenLayout | None, *, frugal: bool = False) -> Recording:
    with torch.inference_mode(False), torch.enable_grad():
        tape, output = run_on_tape(model, inputs, frugal)
        return as_recording(tape, output, model, inputs, layout)


def as_recording(
    tape: Tape, output: Any, model: nn.Module, inputs: Inputs, layout: TokenLayout | None = None
) -> Recording:
    """What methods need of a forward pass that has run on a tape.

    Raises:
        UnsupportedModelError: If the output is not `[batch, classes]`, or did not come from the input.
        NonFiniteError: If logits are NaN.
    """
    logits = read_logits(output, explained_input(inputs)[1].shape[0])
    return Recording(tape, _recorded(tape, logits), model, inputs, _padding(inputs), layout)


def _explain(
    recording: Recording,
    target: Target,
    method: str,
    other: Target,
    create_graph: bool,
    first_order: bool,
    options: Mapping[str, Any],
) -> Relevance:
    chosen, logits = get_method(method, options), recording.logits
    if create_graph and not chosen.differentiable:
        raise UnsupportedMethodError(f"{method} cannot be differentiated; these can: {', '.join(differentiable())}")
    target = explained_class(target, logits)
    rival = None if other is None else _rival(other, target, logits)
    explanation = Explanation(recording, target, rival, create_graph, first_order)
    with (
        torch.inference_mode(False),
        torch.set_grad_enabled(create_graph),
        torch.autocast(logits.device.type, enabled=False),
    ):
        maps = chosen.function(explanation, **options)
    padding = recording.padding
    scores = maps.scores if padding is None else maps.scores * padding.to(maps.scores.dtype)
    relevance = Relevance(
        scores=scores,
        logits=logits.detach(),
        target=target,
        method=method,
        grid=_grid(recording),
        input=maps.input,
        attention=maps.attention,
        other=rival,
    )
    if not create_graph:
        _check_finite(relevance, recording)
    return relevance


def _check_finite(relevance: Relevance, recording: Recording) -> None:
    """Raise if a map holds NaN or infinity.

    Raises:
        NonFiniteError: With the method, the samples and what to do.
    """
    for field, maps in (
        ("scores", (relevance.scores,)),
        ("input", () if relevance.input is None else (relevance.input,)),
        ("attention", relevance.attention or ()),
    ):
        for values in maps:
            if not values.isfinite().all():
                raise NonFiniteError(_why_not_finite(relevance, recording, field, _rows_not_finite(values)))


def _rows_not_finite(values: Float[Tensor, "batch ..."]) -> list[int]:
    return (~values.isfinite()).flatten(1).any(1).nonzero().flatten().tolist()


def _why_not_finite(relevance: Relevance, recording: Recording, field: str, rows: list[int]) -> str:
    """The message, which names the nearest cause: the input, the explained logits, or the method itself."""
    assert recording.tape.leaf is not None
    what = f"{relevance.method}: the {field} are NaN or infinite in samples {rows[:10]}"
    if set(rows) & set(_rows_not_finite(recording.tape.leaf)):
        return f"{what}, as is the input: replace such numbers in it"
    explained = [relevance.target] if relevance.other is None else [relevance.target, relevance.other]
    logits = torch.stack([relevance.logits.gather(1, classes[:, None])[:, 0] for classes in explained], 1)
    if set(rows) & set(_rows_not_finite(logits)):
        return f"{what}, as are the explained logits: choose another target, or check the model's weights"
    return (
        f"{what}, though input and logits are not: run the model in float32 or float64, check its weights, or take "
        "another method (generic_attention needs gradients only)"
    )


def _rival(other: Target, target: Tensor, logits: Tensor) -> Tensor:
    rival = explained_class(other, logits)
    if (rival == target).any():
        rows = (rival == target).nonzero().flatten().tolist()
        raise ValueError(f"target and other are the same class in samples {rows[:10]}: their difference is 0")
    return rival


def _grid(recording: Recording) -> tuple[int, int] | None:
    root = recording.tape.root
    return patch_grid(recording) if root is not None and len(root.shape) == 4 else None


def explained_class(target: Target, logits: Float[Tensor, "batch classes"]) -> Int[Tensor, " batch"]:
    """The target as one class per sample.

    Raises:
        ValueError: If it is out of range or of the wrong shape.
    """
    samples, classes = logits.shape
    if target is None:
        return logits.detach().argmax(1)
    chosen = torch.as_tensor(target, device=logits.device)
    if chosen.is_floating_point() or chosen.dtype == torch.bool or chosen.shape not in ((), (samples,)):
        raise ValueError(
            f"target must be an integer or one integer per sample (shape [{samples}]), not {chosen.dtype} of shape "
            f"{list(chosen.shape)}"
        )
    chosen = chosen.long().expand(samples).clone()
    if ((chosen < 0) | (chosen >= classes)).any():
        raise ValueError(f"target {chosen.tolist()[:10]} is out of range for {classes} classes (0 to {classes - 1})")
    return chosen


def _recorded(tape: Tape, logits: Tensor) -> Value:
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
