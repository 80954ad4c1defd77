"""Find the model, its class names and its tokens on a LightningModule or datamodule."""

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from lrptrain.extras import require

if TYPE_CHECKING:
    import pytorch_lightning as pl

NameSources = Sequence[object]
"""Objects that may have `class_names` and a `tokenizer`, the first one first: a datamodule and a LightningModule."""


def find_model(pl_module: nn.Module, path: str | None) -> nn.Module:
    """Return the module whose forward gives logits.

    Args:
        pl_module: The LightningModule.
        path: The attribute path of the model on it, such as `"net.backbone"`. None for the LightningModule itself, or,
            if it has no forward of its own, for its only child with parameters.

    Raises:
        ValueError: If there is no model, or several children could be meant.
    """
    name = type(pl_module).__name__
    if path is not None:
        try:
            model = operator.attrgetter(path)(pl_module)
        except AttributeError as error:
            raise ValueError(f"model={path!r}: {name} has no such attribute ({error})") from error
        if not isinstance(model, nn.Module):
            raise ValueError(f"model={path!r} is a {type(model).__name__}, not a torch module")
        return model
    # A module without a forward inherits Lightning's, which only calls torch's, which raises.
    if type(pl_module).forward.__module__.partition(".")[0] not in ("pytorch_lightning", "lightning", "torch"):
        return pl_module
    children = {name: child for name, child in pl_module.named_children() if any(True for _ in child.parameters())}
    if len(children) == 1:
        return next(iter(children.values()))
    meant = f"its model could be any of {sorted(children)}" if children else "no child with parameters"
    raise ValueError(f"{name} has no forward of its own, and {meant}: say which with model='<attribute>'")


def parts(model: nn.Module) -> dict[str, nn.Module]:
    """Return the children of a model that have parameters: a metric or a loss has none."""
    return {name: child for name, child in model.named_children() if any(True for _ in child.parameters())}


def whole_batch(model: nn.Module) -> str:
    """Return what to do about a model whose forward takes a whole batch.

    Args:
        model: The model.
    """
    return (
        f"the forward of {type(model).__name__} takes the whole batch, not images or token ids alone: name the network "
        f"that it calls with them, {choice_of_parts(model)}"
    )


def choice_of_parts(model: nn.Module) -> str:
    """Return which parts of a model `model=` may name.

    Args:
        model: The model.
    """
    return choice(list(parts(model)))


def choice(names: list[str]) -> str:
    """Return which of some parts `model=` may name."""
    if not names:
        return "model='<attribute>'"
    return f"model={names[0]!r}" if len(names) == 1 else f"model= and one of {names}"


def name_sources(trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> NameSources:
    """Return the datamodule (or None) and the module, whose class names and tokenizer count in this order."""
    return getattr(trainer, "datamodule", None), pl_module


def find_tokens(tokenizer: Any, sources: NameSources) -> Callable[[list[int]], list[str]]:
    """Return a function that brings token ids to token strings.

    Args:
        tokenizer: A tokenizer, its name or its folder; None for that of a source.
        sources: Objects that may have a tokenizer, as `tokenizer` or by another name. Without one, tokens are named by
            their ids.
    """
    if isinstance(tokenizer, str):
        tokenizer = require("transformers", "transformers").AutoTokenizer.from_pretrained(tokenizer)
    chosen = _tokenizer(tokenizer, sources)
    return chosen.convert_ids_to_tokens if chosen is not None else lambda ids: [f" {number}" for number in ids]


def has_tokenizer(tokenizer: Any, sources: NameSources) -> bool:
    """Return whether `find_tokens` would find a tokenizer."""
    return isinstance(tokenizer, str) or _tokenizer(tokenizer, sources) is not None


def _tokenizer(tokenizer: Any, sources: NameSources) -> Any:
    """Return what can name tokens: the tokenizer, that of a source, or one that a source has by another name."""
    own = (getattr(source, "tokenizer", None) for source in sources)
    others = (value for source in sources for value in getattr(source, "__dict__", {}).values())
    candidates = (tokenizer, *own, *others)
    return next((each for each in candidates if callable(getattr(each, "convert_ids_to_tokens", None))), None)


def find_class_names(class_names: Sequence[str] | None, sources: NameSources, classes: int) -> list[str]:
    """Return the names of all classes; names that occur more than once get the number of their class.

    Args:
        class_names: The names, in the order of the logits; None for the `class_names` of a source that fit, or else
            numbers.
        sources: Objects that may have `class_names`.
        classes: The number of logits.

    Raises:
        ValueError: If there are names, but not one for each logit.
    """
    if class_names is not None and len(class_names) != classes:
        raise ValueError(
            f"{len(class_names)} class_names for {classes} logits: name all classes, in the order of the logits"
        )
    candidates = (class_names, *(getattr(source, "class_names", None) for source in sources))
    # A datamodule may have the names of another task: they count only if there is one for each logit.
    fitting = (x for x in candidates if isinstance(x, Sequence) and not isinstance(x, str) and len(x) == classes)
    names = [str(name) for name in next(fitting, range(classes))]
    return [name if names.count(name) == 1 else f"{name} ({i})" for i, name in enumerate(names)]
