"""Find the model on a LightningModule."""

import operator

from torch import nn


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
    if (type(pl_module).forward.__module__ or "").partition(".")[0] not in ("pytorch_lightning", "lightning", "torch"):
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
    """Return what to do about a model whose forward takes a whole batch."""
    return (
        f"the forward of {type(model).__name__} takes the whole batch, not images or token ids alone: name the network "
        f"that it calls with them, {choice_of_parts(model)}"
    )


def choice_of_parts(model: nn.Module) -> str:
    """Return which parts of a model `model=` may name."""
    return choice(list(parts(model)))


def choice(names: list[str]) -> str:
    """Return which of some parts `model=` may name."""
    if not names:
        return "model='<attribute>'"
    return f"model={names[0]!r}" if len(names) == 1 else f"model= and one of {names}"
