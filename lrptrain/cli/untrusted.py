"""What a checkpoint that nobody vouches for may ask for: plain values, for classes that somebody else names.

Its weights are numbers. But its hyperparameters become arguments, and those of timm, transformers and Lightning can
name code to import, to download, or to unpickle. So there is one list of what they may be, and none of it names code:

- a class of the user is made only if the user names it (`--module`, `--data`), by arguments that it names itself;
- `ImageClassifier` and `TextClassifier` make models of timm by a name in its registry, and of transformers by a config
  with the fields of its class, both with random weights; a text among their options is a plain name;
- this project's datamodules read files that are here, with tokenizers that are here.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from lrptrain.extras import require
from lrptrain.models.pretrained import TOKENIZER_FILES, folder_here

FORBIDDEN = frozenset(
    {
        *("class_path", "_target_", "_instantiator"),
        *("trust_remote_code", "auto_map", "code_revision", "custom_pipelines", "quantization_config"),
    }
)
"""Names under which Lightning, Hydra and transformers look for code, wherever they stand."""
WEIGHTS = frozenset(
    {"pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "use_pretrained_backbone"}
)
"""Names under which timm and transformers look for weights, wherever they stand among the options of a model."""
_PLAIN = (bool, int, float, str, Tensor, torch.Size, torch.dtype, torch.device, type(None))
# What a config may have beside the fields of its class. "_name_or_path" is where a tokenizer may lie: nothing but data.
_LABELS_AND_SOURCE = frozenset({"id2label", "label2id", "_name_or_path"})
# A name in a registry: no address, no path, no repository.
_NAME = re.compile(r"[\w.+-]*")


class RefusedError(ValueError):
    """A checkpoint asks for what it may not without trust; the message says for what."""


def check_plain(settings: Any) -> None:
    """Refuse hyperparameters that are no plain values.

    Raises:
        RefusedError: If they are.
    """
    for _, value in _named_values("", settings):
        if not isinstance(value, (*_PLAIN, Mapping, list, tuple, set)):
            raise RefusedError(f"an object of {type(value).__name__}")


def _named_values(name: Any, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a value and all those within it, keys too, each with the name under which it stands."""
    yield str(name), value
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _named_values(name, key)
            yield from _named_values(key, each)
    elif isinstance(value, list | tuple | set):
        for each in value:
            yield from _named_values(name, each)


def arguments_of(made: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a constructor among hyperparameters that are not trusted.

    Args:
        made: The class: one that the user names, or one of `lrptrain.models` and `lrptrain.data`.
        settings: The hyperparameters; what the constructor does not name is left out.

    Raises:
        RefusedError: If one of them may not come from a checkpoint.
    """
    named = inspect.signature(made).parameters.values()
    names = {each.name for each in named if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)}
    arguments = {name: value for name, value in settings.items() if name in names}
    if len(arguments) < len(settings) and any(each.kind is each.VAR_KEYWORD for each in named):
        others = ", ".join(_short(name) for name in settings if name not in names)
        raise RefusedError(f"arguments that {made.__name__} does not name, {others}")
    for name, value in _named_values("", arguments):
        if name in FORBIDDEN and value:
            raise RefusedError(f"{name}={_short(value)}, which may run code")
    if made in ready_classes("lrptrain.models").values():
        return _model_arguments(made, arguments)
    if made in ready_classes("lrptrain.data").values():
        return _data_arguments(arguments)
    return arguments


def ready_classes(package: str) -> dict[str, type]:
    """Return the classes of `lrptrain.models` or `lrptrain.data` by their dotted paths; nothing else is imported."""
    ready = require(package, "monitor")
    classes = [getattr(ready, name) for name in ready.__all__]
    return {f"{place}.{each.__name__}": each for each in classes for place in (package, each.__module__)}


def _model_arguments(made: type, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of `ImageClassifier` or `TextClassifier` that load no weights, no code and no other file."""
    model = arguments.get("model", inspect.signature(made).parameters["model"].default)
    options = arguments.get("model_kwargs") or {}
    if not isinstance(options, Mapping):
        raise RefusedError(f"model_kwargs={_short(options)}")
    if arguments.get("pretrained", False) is not False:
        raise RefusedError(f"pretrained={_short(arguments['pretrained'])}, weights that it does not hold")
    if isinstance(model, Mapping):
        fields = _fields({**model, **options})
        _check_names({name: value for name, value in fields.items() if name not in _LABELS_AND_SOURCE})
        return {**arguments, "model": fields, "model_kwargs": None}
    # `TextClassifier` has no backend: it is of transformers, which loads weights by a name.
    if arguments.get("backend", "timm" if made.__name__ == "ImageClassifier" else "") != "timm":
        raise RefusedError(f"the model {_short(model)}, which is loaded from elsewhere")
    if not _NAME.fullmatch(str(model)) or not require("timm.models", "timm").is_model(str(model)):
        raise RefusedError(f"the model {_short(model)}, which is none of timm")
    _check_names(options)
    return arguments


def _fields(config: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return what a config of transformers has for the fields of its class; what no field has the name of is left out.

    Old configs have entries that nobody reads any more.
    """
    kind = config.get("model_type")
    mapping = require("transformers.models.auto.configuration_auto", "transformers").CONFIG_MAPPING
    if not isinstance(kind, str) or kind not in mapping:
        raise RefusedError(f"a model of the type {_short(kind)}, which is none of transformers")
    names = {*inspect.signature(mapping[kind]).parameters, *_LABELS_AND_SOURCE, "model_type", "num_labels"}
    return {name: value for name, value in config.items() if name in names}


def _check_names(options: Mapping[Any, Any]) -> None:
    """Refuse options of a model that may name code or weights elsewhere.

    Raises:
        RefusedError: If a text among them is no plain name, or stands where any name is one of a file or of code.
    """
    for name, value in _named_values("", options):
        elsewhere = name in WEIGHTS or name.endswith(("_implementation", "_implementation_internal"))
        if (elsewhere and value) or (isinstance(value, str) and not _NAME.fullmatch(value)):
            raise RefusedError(f"{name}={_short(value)}")


def _data_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of a datamodule of this project, which fetch nothing."""
    name = arguments.get("tokenizer")
    if not isinstance(name, str):
        return arguments
    folder = folder_here(name, *TOKENIZER_FILES)
    if folder is None:
        raise RefusedError(f"the tokenizer {_short(name)}, which is not on this machine")
    return {**arguments, "tokenizer": folder}


def _short(value: Any) -> str:
    text = " ".join(repr(value)[:200].split())
    return text if len(text) <= 60 else f"{text[:57]}..."
