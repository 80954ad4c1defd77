"""What the modules of a model say before anything runs: that it cannot be recorded, or is in train mode."""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from lrptrain.relevance.fast.walk import modules_of, named_modules_of, once_per_class, once_per_walk
from lrptrain.relevance.notices import warn_once
from lrptrain.relevance.types import UnsupportedModelError

# The modules of torch that compute with packed integers.
_QUANTISED_MODULES = (".nn.quantized", ".intrinsic.quantized")
_INTEGERS = frozenset({torch.int8, torch.uint8})


@once_per_walk
def gives_answers_only(model: nn.Module) -> bool:
    """Whether some of a model's operations cannot be recorded: it is TorchScript, or quantised."""
    return any(isinstance(x, torch.jit.ScriptModule) or _is_quantised(x) for x in modules_of(model))


def check_transformations() -> None:
    """Check that no transformation of torch.func is at work."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise UnsupportedModelError(
            "a map takes gradients of its own, which cannot stand inside of torch.func or torch.vmap: call it outside, "
            "on the whole batch; of create_graph=True the map can be differentiated by torch.autograd"
        )


def check_recordable(model: nn.Module) -> None:
    """Check that all modules compute with torch functions on floating-point numbers."""
    closed = gives_answers_only(model)
    for name, module in named_modules_of(model):
        for x in module._parameters.values():
            if x is not None and x.is_meta:
                raise UnsupportedModelError(
                    f"{_place(name, module)} is on the meta device and has no numbers: load its weights first "
                    "(model.to_empty(device='cpu'), model.load_state_dict(...))"
                )
        if not closed:
            continue
        if isinstance(module, torch.jit.ScriptModule):
            raise UnsupportedModelError(
                f"{_place(name, module)} is TorchScript, whose operations cannot be recorded; explain the model that "
                "was scripted or traced, which has the same weights"
            )
        if _is_quantised(module):
            raise UnsupportedModelError(
                f"{_place(name, module)} is quantised: it computes with integers, which carry no relevance and no "
                "gradient; explain the float model that it was made from"
            )


def check_forward(model: nn.Module) -> None:
    """Check that a model can be called: a LightningModule may leave that to its steps."""
    function = getattr(model.forward, "__func__", None)
    package = (getattr(function, "__module__", None) or "").partition(".")[0]
    if function is nn.Module.forward or package in ("pytorch_lightning", "lightning"):
        parts = [name for name, child in model.named_children() if next(child.parameters(), None) is not None]
        part = parts[0] if parts else "net"
        raise UnsupportedModelError(
            f"{type(model).__name__} has no forward of its own: explain the network that it calls, such as model.{part}"
        )


def _place(name: str, module: nn.Module) -> str:
    return f"{type(module).__name__} in module '{name or '(model)'}'"


@once_per_class
def _is_quantised_kind(kind: type) -> bool:
    # A FloatFunctional stands in the package, too, but is what a float model calls for sums until it is converted.
    return any(part in kind.__module__ for part in _QUANTISED_MODULES) and kind.__name__ != "FloatFunctional"


def _is_quantised(module: nn.Module) -> bool:
    if _is_quantised_kind(type(module)):
        return True
    weight: Tensor | None = module._parameters.get("weight")
    weight = module._buffers.get("weight") if weight is None else weight
    if weight is None or (type(weight) is nn.Parameter and weight.is_floating_point()):
        return False
    return weight.dtype in _INTEGERS or weight.is_quantized or _is_packed(weight)


def _is_packed(weight: Tensor) -> bool:
    """Whether a tensor subclass keeps the numbers in tensors of its own, quantised ones; a shard is plain numbers."""
    return is_traceable_wrapper_subclass(weight) and type(weight).__name__ != "DTensor"


# -- Train mode: a map is one draw of many, or depends on its batch ----------------------------------------------------


def warn_of_train_mode(model: nn.Module) -> None:
    """Say once per model that it is in train mode, if that changes what it computes."""
    if True not in [module.training for module in modules_of(model)]:
        return
    active = [(name, module) for name, module in named_modules_of(model) if module.training and _is_active(module)]
    if not active:
        return
    name, module = active[0]
    warn_once(
        model,
        "train mode",
        f"the model is in train mode: its {type(module).__name__} '{name}' (one of {len(active)}) is active, so that "
        "the map is that of one frozen draw of dropout, or of the batch's own statistics; call model.eval() before",
    )


def _is_active(module: nn.Module) -> bool:
    return isinstance(module, _BatchNorm) or (isinstance(module, _DropoutNd) and module.p > 0)
