"""What is known in a training loop of the user's own, also under Accelerate and Fabric."""

import torch
from torch import nn

_SHARDED = ("FullyShardedDataParallel", "FSDPModule", "DeepSpeedEngine")


def bare_model(model: nn.Module) -> nn.Module:
    """Return the module that the user wrote, out of what DDP, Fabric and `torch.compile` put around it.

    A pass through such a wrapper would count as one of the training: DDP prepares its reducer for it.

    Args:
        model: The model as the loop calls it.

    Raises:
        ValueError: If its parameters are shards, of which no process has the whole.
    """
    while True:
        names = {base.__name__ for base in type(model).__mro__}
        if names & set(_SHARDED) or any(hasattr(parameter, "placements") for parameter in model.parameters()):
            raise ValueError(f"relevance needs whole parameters, which {type(model).__name__} shards: use DDP")
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
