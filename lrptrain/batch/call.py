"""How the user's own code calls a model: the arguments of its forward, kept so that the call can be made again.

A batch in the contract's form has, beside the input that is explained, an entry `argument:<parameter>` for each other
tensor `[samples, ...]`. What is no such tensor (flags, shared tables) is the same in all calls: see `Call`.
"""

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lrptrain.relevance.model.arguments import mask_name
from lrptrain.relevance.model.one_sample import OfOneSample
from lrptrain.relevance.model.preserve import unwrap
from lrptrain.relevance.output.outputs import read_logits

IMAGES = ("image", "pixel_values")
TEXTS = ("input_ids", "attention_mask", "token_type_ids")
ARGUMENT = "argument:"
CALL = "call:"
"""The entry of a batch that holds its `Call`; batches that nobody heard have none."""
ROWS = "rows:"
"""The entry that says which rows of padded samples are theirs; see `lrptrain.batch.rows`."""
CHUNK = "chunk:"
"""The entry that says how many tokens a chunk of each text has; see `lrptrain.batch.chunks`."""
_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device)


@dataclass(frozen=True, eq=False)
class Call:
    """What is the same in every call of a model.

    Attributes:
        explained: The parameter that takes the explained input.
        texts: Those of a text's entries that the model is given; a batch may have others.
        constants: The arguments that are no rows of samples, by parameter.
        bare: The parameters that take one sample without a batch axis, as of a model of one bag `[rows, numbers]`.
    """

    explained: str
    texts: tuple[str, ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
    bare: tuple[str, ...] = ()

    def with_mask(self) -> "Call":
        """Return the call with an attention mask, of texts that are all full: it was made without one."""
        constants = {name: x for name, x in self.constants.items() if name != "attention_mask"}
        return Call(self.explained, ("attention_mask", *self.texts), constants, self.bare)

    def differs_from(self, other: "Call") -> str:
        """Return the name of an argument that another call has otherwise; "" if none."""
        if (self.explained, self.bare) != (other.explained, other.bare):
            return self.explained
        names = [*self.constants, *(name for name in other.constants if name not in self.constants)]
        return next((name for name in names if not _equal(self.constants.get(name), other.constants.get(name))), "")


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one, other)
    return bool(one == other)


def of_batches(model: nn.Module, batch: Mapping[str, Any]) -> nn.Module:
    """Return a model as one of batches, which the call of a batch may say that it is not."""
    call: Call | None = batch.get(CALL)
    return OfOneSample(model, call.bare) if call is not None and call.bare else model


def parameters_of(model: nn.Module) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a model's forward by name."""
    return inspect.signature(unwrap(model).forward).parameters


def bound_arguments(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of a call by the names of the forward's parameters.

    Returns:
        None if some have no name, as those of `forward(self, *inputs)`, or the call does not fit the forward.
    """
    signature = inspect.signature(unwrap(model).forward)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return None
    arguments: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            arguments |= value
        elif kind is not inspect.Parameter.VAR_POSITIONAL:
            arguments[name] = value
        elif value:
            return None
    return arguments


def candidates(arguments: Mapping[str, Any], length: int | None) -> dict[str, Tensor]:
    """Return the arguments that may be what is explained: images, volumes, rows of features, or token ids."""
    tensors = {
        name: x
        for name, x in arguments.items()
        if isinstance(x, Tensor) and x.ndim > 1 and not x.is_complex() and length in (None, len(x))
    }
    known = {name: x for name, x in tensors.items() if name in (*IMAGES, "input_ids")}
    if known:
        return known
    images = {name: x for name, x in tensors.items() if x.ndim >= 4 and x.is_floating_point()}
    rows = {name: x for name, x in tensors.items() if x.ndim == 3 and x.is_floating_point()}
    whole = {name: x for name, x in tensors.items() if x.ndim == 2 and not x.is_floating_point()}
    # Not only 0 and 1, as those of masks and types.
    ids = {name: x for name, x in whole.items() if x.dtype is not torch.bool and bool((x > 1).any())}
    return images or rows or ids or tensors


def split_call(arguments: Mapping[str, Any], explained: str, length: int) -> tuple[Call, dict[str, Tensor]]:
    """Return what of a call is the same for all samples, and its columns: tensors with a row per sample."""
    constants: dict[str, Any] = {}
    columns: dict[str, Tensor] = {}
    for name, value in arguments.items():
        if name == explained:
            continue
        if isinstance(value, Tensor) and value.ndim and len(value) == length:
            columns[name] = value
        elif isinstance(value, Tensor) and value.ndim > 1 and len(value) == 1:
            columns[name] = value.expand(length, *value.shape[1:])  # the same for all, such as positions [1, tokens]
        elif isinstance(value, Tensor):
            constants[name] = value.detach().cpu().clone()
        elif _is_plain(value):
            constants[name] = value
        else:
            raise ValueError(
                f"the model's argument {name!r} is a {type(value).__name__}, which cannot be cut into samples: "
                "name the network that is called with tensors, model='<attribute>'"
            )
    return Call(explained, tuple(name for name in TEXTS if name in columns), constants), columns


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN)


def model_inputs(model: nn.Module, batch: Mapping[str, Any]) -> Tensor | dict[str, Any]:
    """Return the arguments of the model's forward: a tensor of images, or a dict where it takes names.

    A batch that has a `Call` gives what that says. Else the explained input goes to the parameter of its own name, or
    to the first one, and every other entry to the parameter of its name.
    """
    inputs = _inputs(model, batch)
    missing = _missing(model, inputs)
    if missing:
        raise ValueError(f"{needs(model, missing)}: name it so in the dataset, or by batch_adapter=")
    return inputs


def needs(model: nn.Module, names: Sequence[str]) -> str:
    """Return the words for arguments that a model needs and a batch has nothing for."""
    wanted = " and ".join(map(repr, names))
    return f"the forward of {type(unwrap(model)).__name__} needs {wanted}, which no entry of the batch is called"


def _inputs(model: nn.Module, batch: Mapping[str, Any]) -> Tensor | dict[str, Any]:
    inputs = _flat_inputs(model, batch)
    if CHUNK not in batch or isinstance(inputs, Tensor):
        return inputs
    # Chunks stand one behind the other here; the model takes them side by side.
    shape, width = batch["input_ids"].shape, int(batch[CHUNK][0])
    return {
        name: x.unflatten(1, (-1, width)) if isinstance(x, Tensor) and x.shape[:2] == shape else x
        for name, x in inputs.items()
    }


def _flat_inputs(model: nn.Module, batch: Mapping[str, Any]) -> Tensor | dict[str, Any]:
    explained = next(name for name in (*IMAGES, "input_ids") if name in batch)
    call: Call | None = batch.get(CALL)
    others = {name[len(ARGUMENT) :]: x for name, x in batch.items() if name.startswith(ARGUMENT)}
    if call is not None:
        place = batch[explained].device
        constants = {name: x.to(place) if isinstance(x, Tensor) else x for name, x in call.constants.items()}
        texts = {name: batch[name] for name in call.texts if name in batch}
        return {call.explained: batch[explained], **texts, **others, **constants}
    parameters = parameters_of(model)
    is_open = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    known = parameters_below(model) if is_open and others else {}
    others = {name: x for name, x in others.items() if name in parameters or name in known}
    others |= {name: batch[name] for name in TEXTS if name in batch and (is_open or name in parameters)}
    # Annotations are no arguments, unless the forward cannot do without one.
    needed = [name for name in required_parameters(model) if name in batch]
    others |= {name: batch[name] for name in needed if name not in (*IMAGES, *TEXTS)}
    others.pop(explained, None)
    own_name = explained in parameters or (is_open and explained == "input_ids")
    if explained != "input_ids" and not others and not (own_name and explained == "pixel_values"):
        return batch[explained]
    first = explained if own_name else next(name for name in parameters if name not in others)
    return {first: batch[explained], **others}


def parameters_below(model: nn.Module) -> Collection[str]:
    """Return the names of all parameters of a forward that hands on what it is given, and of those that it may call."""
    return {name for module in unwrap(model).modules() for name in parameters_of(module)}


def takes(model: nn.Module, name: str) -> bool:
    """Return whether a model's forward takes an argument of this name, or hands on to one that does."""
    parameters = parameters_of(model)
    is_open = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    return name in parameters or (is_open and any(takes(each, name) for each in unwrap(model).children()))


def required_parameters(model: nn.Module) -> list[str]:
    """Return the parameters of a model's forward that have no default."""
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [
        name
        for name, each in parameters_of(model).items()
        if each.default is inspect.Parameter.empty and each.kind not in variable
    ]


def explained_argument(inputs: Tensor | Mapping[str, Any]) -> str | None:
    """Return the name of the explained one among the arguments that `model_inputs` gives; None of a tensor."""
    return None if isinstance(inputs, Tensor) else next(iter(inputs))


def missing_arguments(model: nn.Module, batch: Mapping[str, Any]) -> list[str]:
    """Return the parameters that the model's forward needs and a batch has nothing for."""
    return _missing(model, _inputs(model, batch))


def _missing(model: nn.Module, inputs: Tensor | Mapping[str, Any]) -> list[str]:
    required = required_parameters(model)
    return required[1:] if isinstance(inputs, Tensor) else [name for name in required if name not in inputs]


def entry_of(batch: Mapping[str, Any], name: str, value: Tensor) -> str:
    """Return the contract's name of an argument."""
    if name in ("pixel_values", "input_ids"):
        return name
    are_ids = value.ndim == 2 or (value.ndim == 3 and "input_ids" in batch)
    is_text = name == "inputs_embeds" or (are_ids and not value.is_floating_point())
    return "input_ids" if is_text else next((known for known in IMAGES if known in batch), "image")


def inputs_of(batch: Mapping[str, Any], explained: str) -> dict[str, tuple[str, ...]]:
    """Return the entries of each input of a model, by its parameter, the explained one first: itself and its masks."""
    own = next(name for name in (*IMAGES, "input_ids") if name in batch)
    others = {name.removeprefix(ARGUMENT): name for name in batch if name.startswith(ARGUMENT)}
    # From the labels of several heads, `labels_b`, and of spans a model computes its loss.
    labels = ("label", "start_positions", "end_positions")
    others = {name: x for name, x in others.items() if batch[x].is_floating_point() or not name.startswith(labels)}
    entries = {explained: own, **others}
    given = {name: batch[entry] for name, entry in entries.items()}
    # Of two inputs that a mask fits, it is that of the one that is not explained.
    masks = {mask: name for name in given if (mask := mask_name(given, name)) not in (None, name)}
    if "input_ids" in given and "token_type_ids" in given:
        masks["token_type_ids"] = "input_ids"
    inputs = {name: [entry] for name, entry in entries.items() if name not in masks}
    inputs[explained] += [name for name in TEXTS if name in batch and name != own]
    for mask, name in masks.items():
        inputs[name].append(entries[mask])
    return {name: tuple(each) for name, each in inputs.items()}


def samples_of(entries: Mapping[str, Any], chosen: Any) -> dict[str, Any]:
    """Return some samples, a slice or indices, of a batch or of arguments; what has no axis of samples stays."""
    length = batch_length(entries)
    return {name: x[chosen] if _is_column(x, length) else x for name, x in entries.items()}


def _is_column(value: Any, length: int) -> bool:
    if isinstance(value, list):  # the ids of samples
        return len(value) == length
    return isinstance(value, Tensor) and value.ndim > 0 and len(value) == length


def batch_length(batch: Mapping[str, Any]) -> int:
    """Return the number of samples of a batch, or of a model's arguments, the explained one of which comes first."""
    return len(next(value for value in batch.values() if not isinstance(value, Call)))


def model_output(model: nn.Module, batch: Mapping[str, Tensor]) -> Float[Tensor, "batch classes"]:
    """Return the logits of a batch in the contract's form; samples of different numbers of rows each at its own."""
    if ROWS in batch:
        return _output_by_length(model, batch)
    length = batch_length(batch)
    called = of_batches(model, batch)
    if called is not model and length > 1:
        return torch.cat([model_output(model, samples_of(batch, slice(i, i + 1))) for i in range(length)])
    model, inputs = called, model_inputs(model, batch)
    output = model(inputs) if isinstance(inputs, Tensor) else model(**inputs)
    return read_logits(output, length)


def _output_by_length(model: nn.Module, batch: Mapping[str, Any]) -> Float[Tensor, "batch classes"]:
    there = batch[ROWS]
    lengths = there.sum(1)
    found: dict[int, Tensor] = {}
    for length in lengths.unique().tolist():
        samples = (lengths == length).nonzero().flatten()
        part = {name: x for name, x in samples_of(batch, samples).items() if name != ROWS}
        aligned = [name for name, x in part.items() if isinstance(x, Tensor) and batch[name].shape[:2] == there.shape]
        output = model_output(model, part | {name: part[name][:, :length] for name in aligned})
        found |= dict(zip(samples.tolist(), output, strict=True))
    return torch.stack([found[sample] for sample in range(len(lengths))])
