"""Which parameters are shards, and what a strategy has hung on a model that would gather or split tensors by itself."""

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

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
    return any(is_shard(parameter) for parameter in model.parameters())


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
    """Check that the weights of a sharded model can be had whole.

    Raises:
        UnsupportedModelError: If they are sharded by a strategy that has no DTensors, or experts or blocks of the model
            are those of another process.
    """
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
    """Switch off the hooks of FSDP2 and of tensor parallel layers: they gather weights, and split activations."""
    before: list[tuple[dict[str, Any], str, Any]] = []
    for module in model.modules():
        attributes = vars(module)
        for name in ("_forward_pre_hooks", "_forward_hooks"):
            kept = OrderedDict((key, hook) for key, hook in attributes[name].items() if not _is_strategys(hook))
            if len(kept) < len(attributes[name]):
                before.append((attributes, name, attributes[name]))
                attributes[name] = kept
        forward = attributes.get("forward")
        if getattr(forward, "__module__", None) == _PARALLEL_FORWARD:
            before.append((attributes, "forward", forward))
            attributes["forward"] = _beneath(forward)
    try:
        yield
    finally:
        for attributes, name, value in before:
            attributes[name] = value


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
