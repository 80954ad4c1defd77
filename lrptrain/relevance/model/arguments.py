"""The arguments of a model: what is taken as its inputs, and which mask belongs to which of them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from inspect import Parameter, signature
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lrptrain.relevance.fast.walk import modules_of
from lrptrain.relevance.notices import warn_once
from lrptrain.relevance.types import NonFiniteError

# Endings and parts of the names of inputs, in the place of which the name of a mask has "attention_mask".
_CONTENTS = ("input_ids", "inputs_embeds", "input_values", "input_features", "embeds", "ids", "values")


def as_arguments(model: nn.Module, inputs: Any, tokenizer: Any = None) -> Tensor | Mapping[str, Any]:
    """Return inputs as a tensor or a mapping from the names of arguments."""
    if isinstance(inputs, str):
        inputs = [inputs]
    if isinstance(inputs, (list, tuple)) and inputs:
        if all(isinstance(text, str) for text in inputs):
            return _encoded(model, (list(inputs),), tokenizer)
        if all(_is_pair(pair) for pair in inputs):
            return _encoded(model, ([first for first, _ in inputs], [second for _, second in inputs]), tokenizer)
    if is_dataclass(inputs) and not isinstance(inputs, type):
        inputs = {field.name: getattr(inputs, field.name) for field in fields(inputs)}
    if isinstance(inputs, np.ndarray) or (isinstance(inputs, (list, tuple)) and inputs and _holds_numbers(inputs)):
        inputs = _as_tensor(model, inputs, "inputs")
    if isinstance(inputs, Mapping):
        # A model may take a list beside its tensors; where there is none, lists are what a tokenizer returns.
        has_tensor = any(isinstance(x, (Tensor, np.ndarray)) for x in inputs.values())
        lists = [] if has_tensor else [x for x in inputs.values() if isinstance(x, list) and x and _holds_numbers(x)]
        taken = {
            name: _as_tensor(model, x, repr(name))
            for name, x in inputs.items()
            if isinstance(x, np.ndarray) or any(x is each for each in lists)
        }
        inputs = {**inputs, **taken} if taken else inputs
    if isinstance(inputs, (Tensor, Mapping)):
        arguments = inputs if isinstance(inputs, Mapping) else {"inputs": inputs}
        empty = next((name for name, x in arguments.items() if isinstance(x, Tensor) and x.is_meta), None)
        if empty is not None:
            raise ValueError(f"{empty!r} is on the meta device and has no numbers: pass a tensor with its numbers")
        return inputs
    kind = type(inputs[0] if isinstance(inputs, (list, tuple)) and inputs else inputs).__name__
    raise TypeError(
        f"inputs must be a tensor, an array, a dict of the arguments of the model's forward by name, or texts or pairs "
        f"of texts [(text, text), ...] with tokenizer=, not {'a list of ' if isinstance(inputs, list) else ''}{kind}; "
        "of a picture pass what the model's transform or processor makes of it"
    )


def _is_pair(x: Any) -> bool:
    return isinstance(x, tuple) and len(x) == 2 and all(isinstance(text, str) for text in x)


def _holds_numbers(x: Any) -> bool:
    """Whether nested lists lead to numbers or tensors first."""
    while isinstance(x, (list, tuple)) and x:
        x = x[0]
    return isinstance(x, (Tensor, np.ndarray, np.number, int, float)) and not isinstance(x, bool)


def _as_tensor(model: nn.Module, x: Any, name: str) -> Tensor:
    """Return an array or nested lists as a tensor on the model's device, numbers with a point in its precision."""
    try:
        if isinstance(x, (list, tuple)) and isinstance(x[0], Tensor):
            tensor = torch.stack(list(x))
        else:
            tensor = torch.as_tensor(np.asarray(x))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{name} has rows of several lengths or kinds: pad them to one, with an attention_mask of 0 at the padding"
        ) from error
    weight = next((each for each in model.parameters() if each.is_floating_point()), torch.empty(0))
    return tensor.to(weight.device, weight.dtype if tensor.is_floating_point() else tensor.dtype)


def _encoded(model: nn.Module, texts: tuple[list[str], ...], tokenizer: Any) -> Tensor | dict[str, Tensor]:
    """Cut texts, or pairs of them, padded to the longest, into what the model's forward takes."""
    if not callable(tokenizer):
        what = "no tokenizer" if tokenizer is None else f"a {type(tokenizer).__name__}, which cannot be called"
        raise TypeError(
            f"the inputs are text, with {what}: pass tokenizer=, one of transformers as the model was trained with"
        )
    padding = {"padding": True} if len(texts[0]) > 1 else {}
    encoded = tokenizer(*texts, return_tensors="pt", truncation=True, **padding)
    device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    tensors = {name: x.to(device) for name, x in encoded.items()}
    parameters = signature(model.forward).parameters
    if any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values()):
        return tensors
    taken = {name: x for name, x in tensors.items() if name in parameters}
    return taken if "input_ids" in taken else tensors["input_ids"]


@contextmanager
def telling_of_inputs(model: nn.Module, inputs: Tensor | Mapping[str, Any]) -> Iterator[None]:
    """Say of an error of the model's own what is the matter with the images or token ids, if that can be seen."""
    try:
        yield
    except Exception as error:
        reason = _fault_of_inputs(model, inputs) if _is_models_own(error) else None
        if reason is None:
            raise
        raise ValueError(reason) from error


def _is_models_own(error: Exception) -> bool:
    """Whether an error was not raised by the engine, but by what the model calls."""
    if isinstance(error, NotImplementedError):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = "" if trace is None else trace.tb_frame.f_globals.get("__name__", "")
    return type(error) is RuntimeError or not name.startswith("lrptrain.")


def _fault_of_inputs(model: nn.Module, inputs: Tensor | Mapping[str, Any]) -> str | None:
    """What is wrong with an image or token ids, as far as the first layer tells."""
    first = first_layer(model)
    names = ("inputs", "pixel_values", "image", "input_ids")
    arguments = inputs if isinstance(inputs, Mapping) else {"inputs": inputs}
    name = next((name for name in names if isinstance(arguments.get(name), Tensor)), None)
    if name is None:
        return None
    x: Tensor = arguments[name]
    shown = name if isinstance(inputs, Mapping) else "images" if isinstance(first, nn.Conv2d) else "ids"
    if isinstance(first, nn.Conv2d) and x.ndim == 5:
        return f"{shown} {list(x.shape)} have an axis too many: pass [batch, channels, height, width]"
    if isinstance(first, nn.Conv2d) and x.ndim in (3, 4):
        if x.shape[-3] != first.in_channels and x.shape[-1] == first.in_channels:
            return f"{shown} {list(x.shape)} have their channels last: pass {shown}.movedim(-1, -3)"
        if not x.is_floating_point():
            return (
                f"{shown} are {x.dtype}: pass what the model's transform makes of them, {shown}.float() / 255 with "
                "mean and spread as in training"
            )
        if x.shape[-3] != first.in_channels:
            return f"{shown} {list(x.shape)} have {x.shape[-3]} channels, and the model takes {first.in_channels}"
        if x.dtype != first.weight.dtype:
            precision = first.weight.dtype
            return f"{shown} are {x.dtype}, the model's weights {precision}: pass {shown}.to({precision})"
    if isinstance(first, nn.Embedding) and name in ("inputs", "input_ids"):
        if x.is_floating_point() and x.ndim <= 2:
            return f"{shown} are {x.dtype}, and token ids are whole numbers: pass {shown}.long()"
        if x.ndim == 1:
            return f"{shown} {list(x.shape)} have no axis of samples: pass {shown}[None]"
    return None


def first_layer(model: nn.Module) -> nn.Module | None:
    """Return the first layer of a model that has weights for its input."""
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear, nn.Embedding)
    return next((module for module in modules_of(model) if isinstance(module, kinds)), None)


def as_batch_of_one(model: nn.Module, inputs: Tensor | Mapping[str, Any]) -> Tensor | Mapping[str, Any] | None:
    """Return one image, without the axis of samples, as a batch; None if the input is none.

    It is one if it has three axes, the first of them as long as the first layer of the model has input channels, and
    that layer is a convolution, which itself takes it so.
    """
    first = first_layer(model)
    named = inputs if isinstance(inputs, Mapping) else {"": inputs}
    name = next((name for name in ("", "pixel_values", "image") if isinstance(named.get(name), Tensor)), None)
    if name is None or not isinstance(first, nn.Conv2d):
        return None
    image = named[name]
    if image.ndim != 3 or len(image) != first.in_channels or not image.is_floating_point():
        return None
    return {**inputs, name: image[None]} if isinstance(inputs, Mapping) else image[None]


def mask_name(inputs: Tensor | Mapping[str, Any], explained: str) -> str | None:
    """Return the name of the mask `[batch, tokens]` of an argument's own tokens (1 token, 0 padding), or None.

    It is the one with the argument's own name (`input_ids_b`, `attention_mask_b`; `visual_embeds`,
    `visual_attention_mask`), or `attention_mask` itself if no other argument has more right to it.
    """
    if isinstance(inputs, Tensor):
        return None
    candidates = _names_of_masks(explained)
    others = [name for name in inputs if name != explained and "attention_mask" in _names_of_masks(name)]
    candidates += [] if others else ["attention_mask"]
    return next((mask for mask in candidates if _fits(inputs.get(mask), inputs[explained])), None)


def warn_of_other_texts(model: nn.Module, explained: str, others: Sequence[str]) -> None:
    """Say, once per model, that it takes other texts than the one that is explained because none was named."""
    if others:
        names = (explained, *others)
        warn_once(
            model,
            "other texts",
            f"the model takes the texts {', '.join(names)}, of which {explained} is explained and the rest is held "
            f"fixed; explain={explained!r} says so, explain={names} gives the relevance of each",
        )


def _names_of_masks(name: str) -> list[str]:
    """Names that the mask of an argument may have: attention_mask_b and mask_b for input_ids_b."""
    content = next((content for content in _CONTENTS if content in name), None)
    if content is None:
        return []
    return [name.replace(content, mask) for mask in ("attention_mask", "mask")]


def _fits(mask: Any, explained: Tensor) -> bool:
    """Whether it masks tokens, steps or samples of a waveform; of an image only its pixels, none of its channels."""
    if not isinstance(mask, Tensor) or mask.ndim < 2 or len(mask) != len(explained):
        return False
    if mask.ndim == 3:
        return explained.ndim == 4 and mask.shape[1:] == explained.shape[2:]
    return mask.ndim == 2 and explained.ndim <= 3 and mask.shape[1] in explained.shape[1:]


def check_inputs(inputs: Tensor | Mapping[str, Any], explained: str, of: Exception | None = None) -> None:
    """Raise if an argument of the model holds NaN, or the explained one infinity, as masks well may."""
    arguments = inputs if isinstance(inputs, Mapping) else {explained: inputs}
    for name, x in arguments.items():
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.is_nested:
            continue
        bad = ~x.isfinite() if name == explained else x.isnan()
        if bad.any():
            rows = bad.reshape(len(bad), -1).any(1).nonzero().flatten().tolist() if x.ndim else []
            what = "the input" if isinstance(inputs, Tensor) else f"the input {name!r}"
            raise NonFiniteError(
                f"{what} holds NaN or infinity in samples {rows[:10]}: replace such numbers (torch.nan_to_num), or "
                "leave these samples out"
            ) from of
