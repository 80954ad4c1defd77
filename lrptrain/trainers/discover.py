"""Find the model, its class names and its tokens on a LightningModule or datamodule."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from lrptrain.extras import require


def find_model(pl_module: Any, path: str | None) -> nn.Module:
    """The module whose forward gives logits: at `path`, the LightningModule itself, or its only child with parameters.

    Raises:
        ValueError: If there is none, or several could be meant.
    """
    if path is not None:
        try:
            model = operator.attrgetter(path)(pl_module)
        except AttributeError as error:
            raise ValueError(f"model={path!r}: {type(pl_module).__name__} has no such attribute ({error})") from error
        if not isinstance(model, nn.Module):
            raise ValueError(f"model={path!r} is a {type(model).__name__}, not a torch module")
        return model
    # Lightning's own forward only calls torch's, which refuses.
    if type(pl_module).forward.__module__.partition(".")[0] not in ("pytorch_lightning", "lightning", "torch"):
        return pl_module
    children = {name: child for name, child in pl_module.named_children() if any(True for _ in child.parameters())}
    if len(children) == 1:
        return next(iter(children.values()))
    meant = f"its model could be any of {sorted(children)}" if children else "no child with parameters"
    raise ValueError(
        f"{type(pl_module).__name__} has no forward of its own, and {meant}: say which with model='<attribute>'"
    )


def find_tokens(tokenizer: Any, *owners: Any) -> Callable[[list[int]], list[str]]:
    """How to name tokens: by the tokenizer given (or its name or folder), that of an owner, or their numbers."""
    if isinstance(tokenizer, str):
        tokenizer = require("transformers", "transformers").AutoTokenizer.from_pretrained(tokenizer)
    candidates = [tokenizer, *(getattr(owner, "tokenizer", None) for owner in owners)]
    found = next((one for one in candidates if hasattr(one, "convert_ids_to_tokens")), None)
    return found.convert_ids_to_tokens if found is not None else lambda ids: [f" {number}" for number in ids]


def find_class_names(given: Sequence[str] | None, owners: Sequence[Any], classes: int) -> list[str]:
    """Names of all classes: as given, as an owner's `class_names` that fit, or numbers. Names that recur get theirs.

    Raises:
        ValueError: If names were given, but not one for each class.
    """
    if given is not None and len(given) != classes:
        raise ValueError(f"{len(given)} class_names for {classes} logits: name all classes, in the order of the logits")
    offered = (given, *(getattr(owner, "class_names", None) for owner in owners))
    fitting = (own for own in offered if isinstance(own, Sequence) and not isinstance(own, str) and len(own) == classes)
    names = [str(name) for name in next(fitting, range(classes))]
    return [name if names.count(name) == 1 else f"{name} ({i})" for i, name in enumerate(names)]


def find_owners(trainer: Any, pl_module: Any) -> tuple[Any, Any]:
    """Whose class names and tokenizer count: the datamodule, if there is one, and the module."""
    return getattr(trainer, "datamodule", None), pl_module
