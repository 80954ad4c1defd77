"""Find the model: on a LightningModule, and within what DDP, Accelerate or Fabric put around it in a loop."""

import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from lrptrain.relevance.model.preserve import unwrap
from lrptrain.relevance.sharding.shards import check_shards, is_sharded, own_name

_WITHOUT_DTENSORS = {"FullyShardedDataParallel", "DeepSpeedEngine"}


_FRAMEWORKS = ("pytorch_lightning", "lightning", "torch")
# What guides which model, for a monitor, which knows nothing of guidance.
_LOSSES: WeakKeyDictionary[nn.Module, tuple[str, ...]] = WeakKeyDictionary()


class Method(nn.Module):
    """A method of a module as a model of its own: whoever calls the method calls it."""

    def __init__(self, method: Callable[..., Any]) -> None:
        super().__init__()
        self.owner: nn.Module = method.__self__  # type: ignore[attr-defined]
        self.forward = method
        vars(self.owner)[method.__name__] = self  # and no child of it: that would be one of its own

    def release(self) -> None:
        """Give the method back to its module."""
        vars(self.owner).pop(self.forward.__name__, None)


def title_of(model: nn.Module) -> str:
    """Return what a model is called in messages."""
    is_method = isinstance(model, Method)
    return f"{type(model.owner).__name__}.{model.forward.__name__}" if is_method else type(unwrap(model)).__name__


def methods_of(module: nn.Module) -> list[str]:
    """Return the methods that a user has written for a module, beside those that its framework calls."""
    module = module.owner if isinstance(module, Method) else module
    own = [each for each in type(module).__mro__ if (each.__module__ or "").partition(".")[0] not in _FRAMEWORKS]
    known = {name for each in type(module).__mro__ if each not in own for name in vars(each)}
    found = dict.fromkeys(name for each in own for name, x in vars(each).items() if inspect.isfunction(x))
    return [name for name in found if not name.startswith("_") and name not in known]


def find_model(pl_module: nn.Module, path: str | None) -> nn.Module:
    """Return the module whose forward gives logits.

    Args:
        pl_module: The LightningModule.
        path: The attribute path of the model on it, such as `"net.backbone"`, or of a method that gives logits. None
            for the LightningModule itself, or, if it has no forward of its own, for its only child with parameters.
    """
    name = type(pl_module).__name__
    if path is not None:
        try:
            model = operator.attrgetter(path)(pl_module)
        except AttributeError as error:
            raise ValueError(f"model={path!r}: {name} has no such attribute ({error})") from error
        if inspect.ismethod(model) and isinstance(model.__self__, nn.Module):
            return model.__self__ if model.__name__ == "forward" else Method(model)
        if not isinstance(model, nn.Module):
            raise ValueError(f"model={path!r} is a {type(model).__name__}, not a torch module")
        return model
    # A module without a forward inherits Lightning's, which only calls torch's, which raises.
    if (type(pl_module).forward.__module__ or "").partition(".")[0] not in _FRAMEWORKS:
        return pl_module
    children = parts(pl_module)
    if len(children) == 1:
        return next(iter(children.values()))
    meant = f"its model could be any of {sorted(children)}" if children else "no child with parameters"
    raise ValueError(
        f"{name} has no forward of its own, and {meant}: say which with model='<attribute>', or name the method that "
        f"gives the logits, model={next(iter(methods_of(pl_module)), 'logits')!r}"
    )


def logits_model(model: nn.Module | Callable[..., Any]) -> nn.Module:
    """Return the module whose forward gives logits: the model, or the only child of a LightningModule without forward.

    A method of a module is one, too.
    """
    if inspect.ismethod(model):
        return find_model(model.__self__, model.__name__)  # type: ignore[arg-type]
    assert isinstance(model, nn.Module)
    model = unwrap(model)
    # Lightning's own forward does nothing; torch's modules, such as Sequential, have one that does.
    if (type(model).forward.__module__ or "").partition(".")[0] not in ("pytorch_lightning", "lightning"):
        return model
    try:
        return find_model(model, None)
    except ValueError as error:
        reason = str(error).partition(": say which")[0]
        raise ValueError(
            f"{reason}: pass the model itself, such as module.{next(iter(parts(model)), 'net')}"
        ) from error


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
    """Return which methods and parts of a model `model=` may name."""
    return choice([*methods_of(model), *parts(model)])


def choice(names: list[str]) -> str:
    """Return which of some parts `model=` may name."""
    if not names:
        return "model='<attribute>'"
    return f"model={names[0]!r}" if len(names) == 1 else f"model= and one of {names}"


def bare_model(model: nn.Module, takes_shards: bool = False) -> nn.Module:
    """Return the module that the user wrote, out of what DDP, Fabric and `torch.compile` put around it.

    A pass through such a wrapper would count as one of the training: DDP prepares its reducer for it.
    """
    way_out = "use DDP, or fully_shard (FSDP2)" if takes_shards else "use DDP"
    while True:
        names = {base.__name__ for base in type(model).__mro__}
        if names & _WITHOUT_DTENSORS or (not takes_shards and is_sharded(model)):
            raise ValueError(f"relevance needs whole parameters, which {own_name(model)} shards: {way_out}")
        check_shards(model)
        inner = getattr(model, "_orig_mod", None)
        if inner is None and names & {"DistributedDataParallel", "DataParallel", "_FabricModule"}:
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def device_of(model: nn.Module) -> torch.device:
    """Return the device of a model's first parameter or buffer; the CPU if it has none."""
    tensors = (*model.parameters(), *model.buffers())
    return tensors[0].device if tensors else torch.device("cpu")


def note_guided(model: nn.Module, losses: Sequence[str]) -> None:
    """Note the names of what guides a model, which is trained without wrappers."""
    _LOSSES[model] = tuple(losses)


def guided_by(module: nn.Module) -> tuple[str, ...]:
    """Return the names of what guides a module, or a part of it."""
    return next((_LOSSES[part] for part in module.modules() if part in _LOSSES), ())
