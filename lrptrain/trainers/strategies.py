"""What callbacks must know of a Lightning strategy: whether each process has its weights whole, and who reads what.

One adapter for each kind of strategy. Strategies of others bring theirs by an entry point:

    [project.entry-points."lrptrain.strategies"]
    mine = "my_package.lightning:MyAdapter"
"""

import sys
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from lrptrain.trainers.failures import describe_error
from lrptrain.trainers.messages import warn
from lrptrain.trainers.processes import DataShare

GROUP = "lrptrain.strategies"
"""The group of entry points that name adapters: objects, or classes that take no argument."""


class StrategyAdapter:
    """What is to be known of one kind of strategy; by itself, of one that keeps weights whole, and divides the data."""

    def serves(self, strategy: Any) -> bool:
        """Return whether this adapter speaks for a strategy."""
        return True

    def refusal(self, strategy: Any, takes_shards: bool) -> str:
        """Return why a callback cannot work with it, and what can be done, in one line; "" if it can."""
        return ""

    def data_share(self, strategy: Any) -> DataShare | None:
        """Return which part of the data this process is given; None if each process has its own."""
        return None


class Sharding(StrategyAdapter):
    """One of Lightning's that shards parameters, and makes no DTensors of them."""

    def __init__(self, name: str) -> None:
        self._name = name

    def serves(self, strategy: Any) -> bool:
        """Return whether a strategy is it, or derives from it."""
        return isinstance(strategy, _of_lightning(self._name))

    def refusal(self, strategy: Any, takes_shards: bool) -> str:
        """Refuse it."""
        way_out = "use DDP or a single device"
        if takes_shards:
            way_out = "use DDP, a single device, or ModelParallelStrategy with fully_shard (FSDP2) in configure_model"
        return f"needs whole parameters, which {type(strategy).__name__} shards: {way_out}"


class ModelParallel(Sharding):
    """Lightning's `ModelParallelStrategy`, of which parameters are DTensors."""

    def __init__(self) -> None:
        super().__init__("ModelParallelStrategy")

    def refusal(self, strategy: Any, takes_shards: bool) -> str:
        """Refuse it where shards are not gathered."""
        return "" if takes_shards else super().refusal(strategy, takes_shards)

    def data_share(self, strategy: Any) -> DataShare | None:
        """Return the part that the process has along the one axis, and who reads it along the other."""
        # Lightning's distributed sampler deals samples out along the first, and repeats them along the second.
        parts = strategy.device_mesh["data_parallel"]
        readers = strategy.device_mesh["tensor_parallel"]
        return DataShare(parts.get_local_rank(), parts.size(), readers.get_local_rank(), readers.size())


BUILT_IN = (Sharding("FSDPStrategy"), Sharding("DeepSpeedStrategy"), ModelParallel(), StrategyAdapter())
"""The first one that serves a strategy speaks for it; the last one serves all others, such as DDP."""


def adapter_of(strategy: Any) -> StrategyAdapter:
    """Return who speaks for a strategy: an adapter that was installed, or else one of `BUILT_IN`."""
    return next(each for each in (*installed(), *BUILT_IN) if each.serves(strategy))


def check_strategy(strategy: Any, callback: str = "RelevanceMonitor", takes_shards: bool = False) -> None:
    """Reject strategies with which a callback cannot have every weight of the model in each process."""
    refusal = adapter_of(strategy).refusal(strategy, takes_shards)
    if refusal:
        raise ValueError(f"{callback} {refusal}")


@cache
def installed() -> tuple[StrategyAdapter, ...]:
    """Return the adapters that packages name as entry points; one that cannot be loaded is passed over, with a line."""
    adapters = []
    for entry in entry_points(group=GROUP):
        try:
            named = entry.load()
            adapter = named() if isinstance(named, type) else named
            if not isinstance(adapter, StrategyAdapter):
                raise TypeError(f"it is no StrategyAdapter, but a {type(adapter).__name__}")
            adapters.append(adapter)
        except Exception as error:  # whatever their code does, a training is not to be ended by it
            warn(f"the strategy adapter {entry.name!r} ({entry.value}) is not used: {describe_error(error)}")
    return tuple(adapters)


def _of_lightning(name: str) -> tuple[type, ...]:
    """Return a strategy by its name, of those of Lightning's packages that are loaded; a trainer is of one of them."""
    # A package that is not imported cannot have made the trainer, and importing it takes seconds.
    modules = [sys.modules.get(f"{package}.strategies") for package in ("pytorch_lightning", "lightning.pytorch")]
    return tuple(getattr(module, name) for module in modules if hasattr(module, name))
