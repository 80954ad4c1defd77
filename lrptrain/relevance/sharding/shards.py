"""Which parameters are shards, and what a strategy has hung on a model that would gather or split tensors by itself."""

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from lrptrain.relevance.fast.walk import modules_of, once_per_class, weights_of
from lrptrain.relevance.types import UnsupportedModelError

# Where the hooks of FSDP2 and of tensor parallel layers come from.
_STRATEGIES = ("torch.distributed.fsdp.", "torch.distributed.tensor.")
# Where transformers has its own, which replace the forward of a module.
_PARALLEL_FORWARD = "transformers.distributed.tensor_parallel"
_OTHER_FORWARDS = ("transformers.distributed.expert_parallel", "transformers.distributed.pipeline_parallel")
_WAY_OUT = "shard it by FSDP2 (fully_shard) or tensor parallel, of which the parameters are DTensors, or use DDP"


def is_shard(x: object) -> bool:
    """Whether a tensor is a DTensor, of which this process holds a part."""
    # Whoever has none need not wait until torch has imported them.
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(x, module.DTensor)


def has_shards(model: nn.Module) -> bool:
    """Whether parameters of a model are DTensors, whichever strategy has made them."""
    kinds = {type(weight).__name__ for weight in weights_of(model)}
    return "DTensor" in kinds and any(is_shard(weight) for weight in weights_of(model))


def is_sharded(model: nn.Module) -> bool:
    """Whether processes share a model, also while FSDP2 has left all of its parameters whole, as after a validation."""
    return has_shards(model) or any(map(_is_fsdp_module, {type(module) for module in modules_of(model)}))


def own_name(module: nn.Module) -> str:
    """The name that the user's code has for the class of a module: FSDP2 puts it into one of another name."""
    kind = type(module)
    # The class that FSDP2 makes has FSDPModule and the user's own as its bases.
    return (kind.__bases__[-1] if _is_fsdp_module(kind.__bases__[0]) else kind).__name__


def computes_in_half(model: nn.Module) -> bool:
    """Whether FSDP2 casts parameters of a model to half precision for the computation."""
    policies = [each._get_fsdp_state()._mp_policy for each in model.modules() if _is_fsdp_module(type(each))]  # type: ignore[operator]
    return any(policy.param_dtype in (torch.bfloat16, torch.float16) for policy in policies)


def reshard(model: nn.Module) -> None:
    """Give back what FSDP2 has left whole behind a forward pass; the next pass gathers it again."""
    for module in model.modules():
        if _is_fsdp_module(type(module)):
            module.reshard()  # type: ignore[operator]


@once_per_class
def _is_fsdp_module(kind: type) -> bool:
    return any(base.__name__ == "FSDPModule" for base in kind.__mro__)


def shards_by_module(model: nn.Module) -> list[list[tuple[str, Tensor]]]:
    """The shards of a model with their names, those of one module together; one that several share counts once."""
    units = []
    seen = set[int]()
    for prefix, module in model.named_modules():
        unit = []
        for name, parameter in module._parameters.items():
            if is_shard(parameter) and id(parameter) not in seen:
                assert parameter is not None
                seen.add(id(parameter))
                unit.append((f"{prefix}.{name}".lstrip("."), parameter))
        units += [unit] if unit else []
    return units


def check_shards(model: nn.Module) -> None:
    """Check that the weights of a sharded model can be had whole."""
    for name, module in model.named_modules():
        where = f"'{name or '(model)'}'"
        if any(base.__name__ == "FullyShardedDataParallel" for base in type(module).__mro__):
            raise UnsupportedModelError(f"FSDP1 flattens and shards the parameters of {where}: {_WAY_OUT}")
        if any(hasattr(parameter, "ds_id") for parameter in module._parameters.values()):
            raise UnsupportedModelError(f"DeepSpeed ZeRO-3 shards the parameters of {where}: {_WAY_OUT}")
        forward = vars(module).get("forward")
        if getattr(forward, "__module__", None) in _OTHER_FORWARDS:
            raise UnsupportedModelError(f"{where} runs in several processes by expert or pipeline parallel: {_WAY_OUT}")


@contextmanager
def without_strategy(model: nn.Module) -> Iterator[None]:
    """Switch off the hooks of FSDP2 and of tensor parallel layers: they gather weights, and split activations.

    Parameters that FSDP2 has left whole, as those of its root behind a forward pass, are shards inside: what it gathers
    may be in half precision.
    """
    before: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for attributes, name, value in (*_left_whole(model), *_without_hooks(model)):
            before.append((attributes, name, attributes[name]))
            attributes[name] = value
        yield
    finally:
        for attributes, name, value in before:
            attributes[name] = value


def _without_hooks(model: nn.Module) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """The attributes of modules in which a strategy has put something, the name of one, and what it is without that."""
    for module in model.modules():
        attributes = vars(module)
        for name in ("_forward_pre_hooks", "_forward_hooks"):
            others = OrderedDict((key, hook) for key, hook in attributes[name].items() if not _is_strategys(hook))
            if len(others) < len(attributes[name]):
                yield attributes, name, others
        forward = attributes.get("forward")
        if getattr(forward, "__module__", None) == _PARALLEL_FORWARD:
            yield attributes, "forward", _beneath(forward)


def _left_whole(model: nn.Module) -> Iterator[tuple[dict[str, Any], str, Tensor]]:
    """What FSDP2 has left whole: the parameters of a module, the name of one, and its shard."""
    for module in model.modules():
        if not _is_fsdp_module(type(module)):
            continue
        state: Any = module._get_fsdp_state()  # type: ignore[operator]
        # Earlier versions of torch have one group of parameters, or none.
        groups = getattr(state, "_fsdp_param_groups", None)
        for group in [state._fsdp_param_group] if groups is None else groups:
            for each in group.fsdp_params if group is not None else ():
                # Of others, a module may have got new shards, of which FSDP2 does not know yet.
                if each.sharded_state.name == "UNSHARDED":
                    yield from _places(each._module_info, each.sharded_param)


def _places(info: Any, shard: Tensor) -> Iterator[tuple[dict[str, Any], str, Tensor]]:
    """Where a parameter stands, in all modules that share it."""
    modules = (info.module, *info.shared_modules)
    for module, name in zip(modules, (info.param_name, *info.shared_param_names), strict=True):
        yield module._parameters, name, shard


def _is_strategys(hook: Callable[..., Any]) -> bool:
    return (getattr(hook, "__module__", None) or "").startswith(_STRATEGIES)


def _beneath(forward: Any) -> Any:
    """The forward that one of transformers' tensor parallel layers calls."""
    while getattr(forward, "__module__", None) == _PARALLEL_FORWARD:
        names = forward.__code__.co_freevars
        if "original_forward" not in names:
            raise UnsupportedModelError(f"a tensor parallel layer of this version of transformers: {_WAY_OUT}")
        forward = forward.__closure__[names.index("original_forward")].cell_contents
    return forward
