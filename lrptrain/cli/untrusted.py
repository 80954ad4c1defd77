"""What a checkpoint that nobody vouches for may ask for: plain values, for classes that somebody else names.

Its weights are numbers. But its hyperparameters become arguments, and those of timm, transformers and Lightning can
name code to import, to download, or to unpickle. So there is one list of what they may be, and none of it names code:

- a class of the user is made only if the user names it (`--module`, `--data`), by arguments that it names itself;
- `ImageClassifier` and `TextClassifier` make models of timm by a name in its registry, and of transformers by a config
  with the fields of its class, both with random weights, no more of them than the checkpoint holds;
- this project's datamodules read files that are here, with tokenizers that are here.
"""

import dataclasses
import inspect
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from lrptrain.cli.yaml_text import DEEPEST, MOST_NODES
from lrptrain.extras import require
from lrptrain.models.pretrained import TOKENIZER_FILES, folder_here

FORBIDDEN = frozenset(
    {
        *("class_path", "_target_", "_instantiator"),
        *("trust_remote_code", "auto_map", "code_revision", "custom_pipelines", "quantization_config"),
    }
)
"""Names under which Lightning, Hydra and transformers look for code, wherever they stand."""
LARGEST_COUNT = 2**20
"""Larger integers than this, and than the number of weights, are no sizes; vocabularies have up to 2**18 words."""
_PLAIN = (bool, int, float, str, Tensor, torch.Size, torch.dtype, torch.device, type(None))
# What a config may have beside the fields of its class. "_name_or_path" is where a tokenizer may lie: nothing but data.
_OF_CONFIGS = frozenset({"model_type", "num_labels", "_name_or_path"})
_LABELS = ("id2label", "label2id")
# A name in a registry: no address, no path, no repository.
_NAME = re.compile(r"[\w.+-]*")


class RefusedError(ValueError):
    """A checkpoint asks for what it may not without trust; the message says for what."""


def check_plain(settings: Any) -> None:
    """Refuse hyperparameters that are no plain values, or too many.

    Raises:
        RefusedError: If they are.
    """
    for value in _values(settings):
        if not isinstance(value, (*_PLAIN, Mapping, list, tuple, set)):
            raise RefusedError(f"an object of {type(value).__name__}")


def _values(settings: Any) -> Iterator[Any]:
    """Yield a value and all those within it."""
    count = 0
    values = [(settings, 0)]
    while values:
        value, depth = values.pop()
        count += 1
        # A list in which each entry holds the one before it twice is short, and its values are without end.
        if count > MOST_NODES or depth > DEEPEST:
            raise RefusedError("more hyperparameters than any model has")
        yield value
        if isinstance(value, Mapping):
            values += [(each, depth + 1) for pair in value.items() for each in pair]
        elif isinstance(value, list | tuple | set):
            values += [(each, depth + 1) for each in value]


def arguments_of(made: type, settings: Mapping[str, Any], weights: int) -> dict[str, Any]:
    """Return the arguments of a constructor among hyperparameters that are not trusted.

    Args:
        made: The class: one that the user names, or one of `lrptrain.models` and `lrptrain.data`.
        settings: The hyperparameters; what the constructor does not name is left out.
        weights: The number of weights in the checkpoint.

    Raises:
        RefusedError: If one of them may not come from a checkpoint.
    """
    named = inspect.signature(made).parameters.values()
    names = {each.name for each in named if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)}
    arguments = {name: value for name, value in settings.items() if name in names}
    if len(arguments) < len(settings) and any(each.kind is each.VAR_KEYWORD for each in named):
        others = ", ".join(_short(name) for name in settings if name not in names)
        raise RefusedError(f"arguments that {made.__name__} does not name, {others}")
    for within in _values(arguments):
        for name in FORBIDDEN & set(within if isinstance(within, Mapping) else ()):
            if within[name]:
                raise RefusedError(f"{name}={_short(within[name])}, which may run code")
    if is_ready(made):
        largest = max(LARGEST_COUNT, weights)
        if any(isinstance(value, int) and abs(value) > largest for value in _values(arguments)):
            raise RefusedError("sizes larger than its weights")
        return _model_arguments(made, arguments) if issubclass(made, nn.Module) else _data_arguments(arguments)
    return arguments


def ready_class(path: Any, package: str) -> type | None:
    """Return a class of `lrptrain.models` or `lrptrain.data` by its dotted path; None for any other path.

    Nothing is imported but the package.
    """
    ready = require(package, "monitor")
    classes = {name: getattr(ready, name) for name in ready.__all__}
    paths = {f"{package}.{name}": each for name, each in classes.items()}
    return paths.get(str(path)) or {f"{each.__module__}.{name}": each for name, each in classes.items()}.get(str(path))


def is_ready(made: type) -> bool:
    """Return whether a class is one of `lrptrain.models` or `lrptrain.data` itself, and no user's that inherits."""
    path = f"{made.__module__}.{made.__qualname__}"
    return any(ready_class(path, package) is made for package in ("lrptrain.models", "lrptrain.data"))


@contextmanager
def no_more_than(state: Mapping[str, Any]) -> Iterator[None]:
    """Refuse to make a module with far more parameters than there are weights for, before they take memory.

    Args:
        state: The weights. Twice as many, and 2**24 besides, leave room for tables that are not saved.

    Raises:
        RefusedError: If one is made.
    """
    room = 2 * weights_in(state) + 2**24
    places = 2 * len(state) + 1000
    used = count = 0

    def register(module: nn.Module, name: str, tensor: Any) -> None:
        nonlocal used, count
        used += tensor.numel() if isinstance(tensor, Tensor) else 0
        count += 1
        if used > room or count > places:
            raise RefusedError(f"a larger model than its {len(state)} weights are of")

    hooks = [
        torch.nn.modules.module.register_module_parameter_registration_hook(register),
        torch.nn.modules.module.register_module_buffer_registration_hook(register),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def make_within(made: type, arguments: Mapping[str, Any], state: Mapping[str, Any]) -> Any:
    """Return a module of `lrptrain.models` that is not larger than its weights.

    Raises:
        RefusedError: If it is.
    """
    # Once without memory, where sizes alone are known: some tensors are filled before a module registers them.
    with no_more_than(state), torch.device("meta"):
        try:
            made(**arguments)
        except RefusedError:
            raise
        except Exception:  # some models read numbers while they are made, which such tensors lack
            pass
    with no_more_than(state):
        return made(**arguments)


def weights_in(state: Any) -> int:
    """Return how many numbers the tensors of a state dict hold, shared ones once."""
    tensors = [each for each in state.values() if isinstance(each, Tensor)] if isinstance(state, Mapping) else []
    # By what they are stored in: a view can claim any size.
    stored = {each.untyped_storage().data_ptr(): each for each in tensors if each.layout == torch.strided}
    return sum(each.untyped_storage().nbytes() // each.element_size() for each in stored.values())


def _model_arguments(made: type, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of `ImageClassifier` or `TextClassifier` that load no weights, no code and no other file."""
    model = arguments.get("model", inspect.signature(made).parameters["model"].default)
    options = arguments.get("model_kwargs") or {}
    if not isinstance(options, Mapping):
        raise RefusedError(f"model_kwargs={_short(options)}")
    if arguments.get("pretrained", False) is not False:
        raise RefusedError(f"pretrained={_short(arguments['pretrained'])}, weights that it does not hold")
    # `TextClassifier` has no backend: it is of transformers.
    of_timm = arguments.get("backend", "timm" if made.__name__ == "ImageClassifier" else "") == "timm"
    if isinstance(model, Mapping):
        fields = _allowed_fields({**model, **options}, _config_class(model.get("model_type")))
        return {**arguments, "model": fields, "model_kwargs": None}
    if of_timm:
        return {**arguments, "model_kwargs": _allowed_options(str(model), options)}
    if model == "minilm":
        return {**arguments, "model_kwargs": _allowed_fields(options, _config_class("bert"))}
    raise RefusedError(f"the model {_short(model)}, which is loaded from elsewhere")


def _config_class(kind: Any) -> Any:
    mapping = require("transformers.models.auto.configuration_auto", "transformers").CONFIG_MAPPING
    if not isinstance(kind, str) or kind not in mapping:
        raise RefusedError(f"a model of the type {_short(kind)}, which is none of transformers")
    return mapping[kind]


def _allowed_fields(config: Mapping[Any, Any], made: Any) -> dict[str, Any]:
    """Return what a config of transformers has for the fields of its class; what no field has the name of is left out.

    Old configs have entries that nobody reads any more. Read are those by which transformers finds code elsewhere, such
    as `attn_implementation`, or `model_args` of the wrapper for timm.
    """
    fields = {each.name for each in dataclasses.fields(made)} if dataclasses.is_dataclass(made) else set()
    fields |= set(inspect.signature(made.__init__).parameters) - {"self", "args", "kwargs"}
    parts = getattr(made, "sub_configs", None) or {}
    allowed = {}
    for name, value in config.items():
        if name in parts and isinstance(value, Mapping):
            of_part = parts[name]
            # `AutoConfig` stands for the class that the part itself names.
            is_open = not hasattr(of_part, "model_type") or of_part.__name__ == "AutoConfig"
            value = _allowed_fields(value, _config_class(value.get("model_type")) if is_open else of_part)
        elif name in _LABELS or name in _OF_CONFIGS:
            pass
        elif name not in fields:
            continue
        elif isinstance(value, Mapping) and value and not str(name).startswith("rope_"):
            raise RefusedError(f"{name}={_short(value)}")
        elif foreign := [text for text in _texts(value) if not _NAME.fullmatch(text)]:
            raise RefusedError(f"{name}={_short(foreign[0])}")
        allowed[name] = value
    return allowed


def _allowed_options(name: str, options: Mapping[Any, Any]) -> dict[str, Any]:
    """Return arguments of a model of timm that its class takes; those of the function around it load files."""
    models = require("timm.models", "timm")
    if not _NAME.fullmatch(name) or not models.is_model(name):
        raise RefusedError(f"the model {_short(name)}, which is none of timm")
    module = sys.modules[models.model_entrypoint(name).__module__]
    classes = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, nn.Module)]
    origins = {origin for each in classes for origin in each.__mro__ if origin.__module__.startswith("timm.")}
    names = {parameter for each in origins for parameter in inspect.signature(each).parameters}
    for function in (models.create_model, models.build_model_with_cfg):
        names -= inspect.signature(function).parameters.keys()
    for option, value in options.items():
        is_plain = not isinstance(value, Mapping) and all(map(_NAME.fullmatch, _texts(value)))
        if option not in names - {"self", "args", "kwargs"} or not is_plain:
            raise RefusedError(f"{option}={_short(value)} of the model {name}")
    return dict(options)


def _data_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of a datamodule of this project, which fetch nothing, and start as many processes as fit."""
    allowed = dict(arguments)
    if isinstance(workers := arguments.get("num_workers"), int):
        allowed["num_workers"] = min(workers, os.cpu_count() or 1)
    if isinstance(name := arguments.get("tokenizer"), str):
        folder = folder_here(name, *TOKENIZER_FILES)
        if folder is None:
            raise RefusedError(f"the tokenizer {_short(name)}, which is not on this machine")
        allowed["tokenizer"] = folder
    return allowed


def _texts(settings: Any) -> list[str]:
    return [value for value in _values(settings) if isinstance(value, str)]


def _short(value: Any) -> str:
    text = " ".join(repr(value)[:200].split())
    return text if len(text) <= 60 else f"{text[:57]}..."
