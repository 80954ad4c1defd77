"""The one entry point: relevance of a model's input for a class."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lrptrain.relevance import methods as _methods  # noqa: F401  (registers them)
from lrptrain.relevance.methods.input_maps import patch_grid
from lrptrain.relevance.preserve import preserved, unwrap
from lrptrain.relevance.recording import Inputs, Recording, explained_input, record
from lrptrain.relevance.registry import get_method
from lrptrain.relevance.tape import Tape, Value
from lrptrain.relevance.types import Relevance, TokenLayout, UnsupportedModelError

Target = int | Sequence[int] | Int[Tensor, " batch"] | None


def attribute(
    model: nn.Module,
    inputs: Inputs,
    target: Target = None,
    method: str = "transformer_attribution",
    *,
    layout: TokenLayout | None = None,
    **options: Any,
) -> Relevance:
    """Compute the relevance of every patch or token for one class of every sample.

    The unmodified model is run once, as it stands (dropout is active in training mode); its parameters, gradients,
    buffers, hooks, flags and the random state are as before afterwards. A batch of N equals N batches of one.

    Args:
        model: Any module whose forward returns logits `[batch, classes]` or an object with `.logits`. Compiled and
            wrapped models are unwrapped.
        inputs: The image batch `[batch, channels, height, width]` or the token ids `[batch, tokens]`, or a dict of
            keyword arguments with one of them (`pixel_values`, `image`, `input_ids`, `inputs_embeds`) and, for texts,
            the `attention_mask` (1 token, 0 padding).
        target: The class to explain: one for all, one per sample, or None for the predicted class.
        method: One of `lrptrain.methods()`.
        layout: Where the content tokens stand, for models in which it cannot be found.
        **options: Of the method.

    Raises:
        ValueError: If the batch is empty, a target is out of range or of the wrong shape, or logits are NaN.
        UnsupportedModelError: If the output is not `[batch, classes]`, or the model lacks what the method needs.
        UnsupportedMethodError: If the method is unknown or does not take an option.
        UnsupportedOperationError: If relevance reaches an operation without a rule.
    """
    chosen = get_method(method, options)
    model = unwrap(model)
    with preserved(model), torch.inference_mode(False), torch.enable_grad():
        tape, output = record(model, inputs)
        logits = read_logits(output, explained_input(inputs)[1].shape[0])
        target = explained_class(target, logits)
        recording = Recording(tape, _recorded(tape, logits), target, _padding(inputs), layout)
        with torch.no_grad(), torch.autocast(logits.device.type, enabled=False):
            maps = chosen.function(recording, **options)
    scores = maps.scores if recording.padding is None else maps.scores * recording.padding.to(maps.scores.dtype)
    return Relevance(scores, logits.detach(), target, method, _grid(recording), maps.input, maps.attention)


def _grid(recording: Recording) -> tuple[int, int] | None:
    root = recording.tape.root
    return patch_grid(recording) if root is not None and root.tensor.ndim == 4 else None


def read_logits(output: Any, samples: int) -> Float[Tensor, "batch classes"]:
    """Take the logits out of a model's output.

    Raises:
        UnsupportedModelError: If they are not one row of class scores per sample.
        ValueError: If they are NaN.
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
        raise ValueError(f"the logits of samples {rows[:10]} are NaN: there is no class to explain")
    return logits


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
    return value


def _padding(inputs: Inputs) -> Tensor | None:
    mask = inputs.get("attention_mask") if isinstance(inputs, Mapping) else None
    return mask if isinstance(mask, Tensor) and mask.ndim == 2 else None
