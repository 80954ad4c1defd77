"""Checks of arguments and trainers that several callbacks share."""

import sys
from collections.abc import Sequence


def check_run_name(name: str | None) -> None:
    """Reject a name that cannot be that of one folder.

    Args:
        name: The name, or None.

    Raises:
        ValueError: If it is empty, a path, or points at another folder.
    """
    if name is not None and (not name.strip() or name in (".", "..") or any(each in name for each in "/\\\0")):
        raise ValueError(f"run_name is the name of one folder below relevance/, not {name!r}")


def check_counts(least: int = 1, **counts: int) -> None:
    """Reject counts below `least`.

    Raises:
        ValueError: With the name of the argument.
    """
    for name, value in counts.items():
        if value < least:
            raise ValueError(f"{name} must be at least {least}, not {value}")


def check_strategy(strategy: object, callback: str = "RelevanceMonitor", takes_shards: bool = False) -> None:
    """Reject strategies with which a callback cannot have every weight of the model in each process.

    Args:
        strategy: The trainer's strategy, of either of Lightning's packages.
        callback: Name of the callback that needs the model, for the message.
        takes_shards: Whether the callback gathers DTensors, of which parameters are under `ModelParallelStrategy`.

    Raises:
        ValueError: If the strategy is FSDP, DeepSpeed or model parallel, or derives from one of them.
    """
    way_out = "use DDP or a single device"
    if takes_shards:
        way_out = "use DDP, a single device, or ModelParallelStrategy with fully_shard (FSDP2) in configure_model"
    taken = strategies("ModelParallelStrategy") if takes_shards else ()
    refused = strategies("FSDPStrategy", "DeepSpeedStrategy", "ModelParallelStrategy")
    if isinstance(strategy, refused) and not isinstance(strategy, taken):
        raise ValueError(f"{callback} needs whole parameters, which {type(strategy).__name__} shards: {way_out}")


def strategies(*names: str) -> tuple[type, ...]:
    """Return strategies by their names, of those of Lightning's packages that are loaded; a trainer is of one of them.

    Args:
        names: The names of the classes.
    """
    # A package that is not imported cannot have made the trainer, and importing it takes seconds.
    modules = [sys.modules.get(f"{package}.strategies") for package in ("pytorch_lightning", "lightning.pytorch")]
    return tuple(getattr(module, name) for module in modules for name in names if hasattr(module, name))


def check_normalisation(mean: float | Sequence[float] | None, std: float | Sequence[float] | None) -> None:
    """Reject a mean without a standard deviation, and the reverse.

    Raises:
        ValueError: If one of them is None.
    """
    if (mean is None) != (std is None):
        raise ValueError("give both mean and std, or neither")
