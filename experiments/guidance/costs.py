"""What a guided step costs: half of the batches of one run are guided, half are not."""

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from experiments.guidance.fitting import Trained, guidance, quiet_trainer
from experiments.records import KEY, made_on

PAIRS, WARM = 12, 2


class Clock(pl.Callback):
    """Seconds of every training batch."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_train_batch_start(self, *_: Any) -> None:
        self.started = time.perf_counter()

    def on_train_batch_end(self, *_: Any) -> None:
        self.seconds.append(time.perf_counter() - self.started)


def cost(module: Trained, loader: DataLoader, average: Callable[[Sequence[float]], float] = statistics.median) -> float:
    """Time of a guided batch over that of an unguided one; 1 without guidance.

    Args:
        module: With its arm.
        loader: Its batches.
        average: Over batches; the mean where many batches have nothing to guide.
    """
    own = module.arm.guidance
    if own is None:
        return 1.0
    torch.set_num_threads(1)
    clock, steps = Clock(), 2 * (PAIRS + WARM)
    guided = guidance({**own, "every_n_batches": 2}, 1.0, 0)
    quiet_trainer(steps, [guided, clock], module.trained_in).fit(module, loader)
    seconds = clock.seconds[2 * WARM :]
    return average(seconds[::2]) / average(seconds[1::2])


def write_costs(path: Path, found: Mapping[str, float]) -> None:
    """Keep the costs of a table's arms, and what they were measured on: several, where some are of before."""
    before = _file(path)
    stamps = before.get(KEY, [None]) if any(before.get(arm) == cost for arm, cost in found.items()) else []
    whole = {**found, KEY: [*(stamp for stamp in stamps if stamp != made_on()), made_on()]}
    path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


def read_costs(path: Path) -> dict[str, float]:
    """Those that are measured already, by arm."""
    return {arm: cost for arm, cost in _file(path).items() if arm != KEY}


def _file(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
