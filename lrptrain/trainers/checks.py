"""Checks of arguments and trainers that several callbacks share."""

import sys
from collections.abc import Sequence
from typing import Any


def check_counts(least: int = 1, **counts: int) -> None:
    """Reject counts below `least`.

    Raises:
        ValueError: With the name of the argument.
    """
    for name, value in counts.items():
        if value < least:
            raise ValueError(f"{name} must be at least {least}, not {value}")


def check_strategy(strategy: object, callback: str = "RelevanceMonitor") -> None:
    """Reject strategies that shard parameters: relevance needs every weight of the model in each process.

    Args:
        strategy: The trainer's strategy, of either of Lightning's packages.
        callback: Name of the callback that needs the model, for the message.

    Raises:
        ValueError: If the strategy is FSDP, DeepSpeed or model parallel, or derives from one of them.
    """
    if isinstance(strategy, _sharded_strategies()):
        raise ValueError(
            f"{callback} needs whole parameters, which {type(strategy).__name__} shards: use DDP or a single device"
        )


def _sharded_strategies() -> tuple[type, ...]:
    """Return the sharding strategies of those of Lightning's packages that are loaded; a trainer is of one of them."""
    modules = [sys.modules.get(f"{package}.strategies") for package in ("pytorch_lightning", "lightning.pytorch")]
    names = ("FSDPStrategy", "DeepSpeedStrategy", "ModelParallelStrategy")
    return tuple(getattr(module, name) for module in modules for name in names if hasattr(module, name))


def check_normalisation(mean: Sequence[float] | None, std: Sequence[float] | None) -> None:
    """Reject a mean without a standard deviation, and the reverse.

    Raises:
        ValueError: If one of them is None.
    """
    if (mean is None) != (std is None):
        raise ValueError("give both mean and std, or neither")


def check_guidance(annotated_fraction: float, adaptive: bool, compare_every_n_batches: int, on_error: str) -> None:
    """Refuse what `RelevanceGuidance` does not know.

    Raises:
        ValueError: With what is allowed.
    """
    if not 0 < annotated_fraction <= 1:
        raise ValueError(f"annotated_fraction must lie in (0, 1], not {annotated_fraction}")
    if adaptive and compare_every_n_batches < 1:
        raise ValueError("adaptive=True needs compare_every_n_batches of at least 1")
    if on_error not in ("warn", "raise"):
        raise ValueError(f"on_error must be 'warn' or 'raise', not {on_error!r}")


def check_guided(trainer: Any, pl_module: Any) -> None:
    """Refuse trainers and modules whose training step cannot be guided.

    Raises:
        ValueError: With what to change.
    """
    if not pl_module.automatic_optimization:
        raise ValueError(
            f"RelevanceGuidance adds to the loss that training_step returns, but {type(pl_module).__name__} "
            "optimises manually and returns none to Lightning: set automatic_optimization = True, or add "
            "lrptrain.guidance.guidance_loss to your own loss"
        )
    check_strategy(trainer.strategy, "RelevanceGuidance")
    if sum(type(each).__name__ == "RelevanceGuidance" for each in trainer.callbacks) > 1:
        raise ValueError("one RelevanceGuidance per trainer: combine losses, as in loss='consistency+energy'")
