"""A package that brings a strategy and its adapter, and runs with it in processes; for test_strategy_adapters.py."""

import sys
import warnings
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from setting import data, loader, module, monitor, trainer

PACKAGE = '''
from pytorch_lightning.strategies import DDPStrategy, FSDPStrategy

from lrptrain.trainers.processes import DataShare
from lrptrain.trainers.strategies import StrategyAdapter


class SameBatches(DDPStrategy):
    """All processes are given the same batches, of which each computes a part, as in context parallel."""

    @property
    def distributed_sampler_kwargs(self):
        return {"num_replicas": 1, "rank": 0}


class SameBatchesAdapter(StrategyAdapter):
    def serves(self, strategy):
        return isinstance(strategy, SameBatches)

    def data_share(self, strategy):
        return DataShare(0, 1, strategy.global_rank, strategy.world_size)


class WithDTensors(FSDPStrategy):
    """One that derives from a strategy that is refused, and makes DTensors nevertheless."""


class Refusing(StrategyAdapter):
    def serves(self, strategy):
        return isinstance(strategy, WithDTensors)

    def refusal(self, strategy, takes_shards):
        return "" if takes_shards else "gathers nothing: use SameBatches"


NO_ADAPTER = 3
'''
ENTRY_POINTS = """
[lrptrain.strategies]
same-batches = their_strategies:SameBatchesAdapter
with-dtensors = their_strategies:Refusing
gone = their_other_strategies:Adapter
number = their_strategies:NO_ADAPTER
"""


def install(folder: Path, named: str = ENTRY_POINTS) -> None:
    """Write what an installer writes of the package, into a folder that Python looks into."""
    about = folder / "their_strategies-0.1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-strategies\nVersion: 0.1\n")
    (about / "entry_points.txt").write_text(named)
    (folder / "their_strategies.py").write_text(PACKAGE)


def run(folder: Path, strategy: Any = "auto", devices: int = 1) -> dict[str, Any]:
    """What the monitor of a fit without a step explains."""
    watching = monitor(max_samples=12, on_error="raise")
    runner = trainer(folder, watching, strategy=strategy, devices=devices, limit_train_batches=0, max_epochs=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        runner.validate(module(), loader(data(20)), verbose=False)
    return {
        "ids": [each.sample.sample_id for each in watching.scored],
        "maps": [each.maps["predicted"] for each in watching.scored],
        "mine": len(watching.core.reader.sample.samples or []),
        "told": [str(each.message) for each in caught if "strategy adapter" in str(each.message)],
        "failures": watching.failures,
    }


def with_the_package(rank: int, packages: Path, folder: Path) -> dict[str, Any]:
    """A run in one of two processes that are given the same batches."""
    sys.path.insert(0, str(packages))
    from their_strategies import SameBatches

    pl.seed_everything(0, verbose=False)
    return run(folder, SameBatches(process_group_backend="gloo"), devices=2)
