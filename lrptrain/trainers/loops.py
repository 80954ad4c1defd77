"""What is known in a training loop of the user's own, also under Accelerate and Fabric."""

import torch
from torch import nn

from lrptrain.relevance.sharding.shards import check_shards, is_sharded, own_name

_WITHOUT_DTENSORS = {"FullyShardedDataParallel", "DeepSpeedEngine"}


def bare_model(model: nn.Module, takes_shards: bool = False) -> nn.Module:
    """Return the module that the user wrote, out of what DDP, Fabric and `torch.compile` put around it.

    A pass through such a wrapper would count as one of the training: DDP prepares its reducer for it.

    Args:
        model: The model as the loop calls it.
        takes_shards: Whether parameters may be DTensors, whose shards can be gathered.

    Raises:
        ValueError: If its parameters are shards that are not taken, or cannot be had whole.
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
