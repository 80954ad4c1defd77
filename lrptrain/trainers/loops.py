"""What is known in a training loop of the user's own, also under Accelerate and Fabric."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

_SHARDED = ("FullyShardedDataParallel", "FSDPModule", "DeepSpeedEngine")
_UNNAMED = "LABEL_"  # what Hugging Face calls classes that nobody has named


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
            raise ValueError(f"a monitor needs whole parameters, which {type(model).__name__} shards: use DDP")
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


class ModelNames:
    """The class names and the tokenizer that come with a model, as one name source.

    Args:
        model: The model; its `config.id2label`, as models of Hugging Face have it, names the classes.
        tokenizer: What names tokens; None for nothing.

    Attributes:
        class_names: The names in the order of the logits; None where nobody has named them.
        tokenizer: What names tokens.
    """

    def __init__(self, model: nn.Module, tokenizer: Any = None) -> None:
        self.class_names = _class_names(model)
        self.tokenizer = tokenizer


def _class_names(model: nn.Module) -> list[str] | None:
    names = getattr(getattr(model, "config", None), "id2label", None)
    if not isinstance(names, Mapping) or sorted(map(str, names)) != sorted(map(str, range(len(names)))):
        return None
    by_class = {int(number): str(name) for number, name in names.items()}
    ordered = [by_class[number] for number in range(len(by_class))]
    return None if all(name == f"{_UNNAMED}{number}" for number, name in enumerate(ordered)) else ordered
