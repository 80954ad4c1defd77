"""What processes do with a monitor in a loop of their own, and a sharded model; for test_sharded_loops.py."""

import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from gloo import whole_state
from grouped_options import grouped
from sharded_runs import PLAN, Net, planted
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import parallelize_module
from torch.utils.data import DataLoader, StackDataset

import lrptrain

sys.path.insert(0, str(Path(__file__).parent.parent / "trainers" / "behaviours"))
from trained import OPTIONS as TEXT_OPTIONS
from trained import Texts, unannotated

OPTIONS: dict[str, Any] = {
    "max_samples": 10,
    "max_pictures": 2,
    "class_maps": 2,
    "batch_size": 8,
    "on_error": "raise",
}


def sharded(net: Net, how: str, heads: int = -1) -> Net:
    """A net as its loop shards it; `how` is "" for one process."""
    if how == "TP":
        parallelize_module(net.block, init_device_mesh("cpu", (2,)), PLAN)
        net.block.heads = heads
    if how == "FSDP2":
        mesh = init_device_mesh("cpu", (2,))
        fully_shard(net.block, mesh=mesh)
        fully_shard(net, mesh=mesh)
    return net


def loader() -> DataLoader[Any]:
    columns: Any = planted(13, 1, torch.float64)
    return DataLoader(StackDataset(**columns), batch_size=6)


def net_of(state: dict[str, Tensor]) -> Net:
    net = Net()
    net.load_state_dict(state)
    return net.double()


def loop(folder: Path, state: dict[str, Tensor], how: str = "", watched: bool = True) -> dict[str, Any]:
    """Three steps; the second is evaluated in its middle, where gradients lie in wait."""
    for seeded in (torch.manual_seed, np.random.seed, random.seed):
        seeded(0)
    net = sharded(net_of(state), how)
    monitor = lrptrain.Monitor(net, loader(), folder, **grouped({"run_name": "run", **OPTIONS})) if watched else None
    # What FSDP2 has left whole behind the monitor's forward pass is given back.
    assert how != "FSDP2" or all(hasattr(x, "placements") for x in net.parameters())
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    columns = planted(12, 0, torch.float64)
    rows = slice(dist.get_rank(), None, 2) if how == "FSDP2" else slice(None)
    for step in range(3):
        optimizer.zero_grad()
        F.cross_entropy(net(columns["image"][rows]), columns["label"][rows]).backward()
        if monitor is not None and step == 1:
            monitor.evaluate(0, step)
        optimizer.step()
    left = {"state": whole_state(net), "random": (torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random())}
    if monitor is None:
        return left
    monitor.close()
    return left | {
        "scalars": monitor.scalars,
        "findings": [finding.to_dict() for finding in monitor.findings],
        "ids": [each.sample.sample_id for each in monitor.scored],
        "maps": [each.maps["predicted"] for each in monitor.scored],
        "mine": len(monitor.core.reader.sample.samples or []),
        "failures": monitor.failures,
    }


def watched_and_plain(rank: int, folder: Path, state: dict[str, Tensor], how: str) -> dict[str, Any]:
    """Runs with and without a monitor."""
    return {"watched": loop(folder, state, how), "plain": loop(folder, state, how, watched=False)}


def refused(rank: int, folder: Path, state: dict[str, Tensor]) -> dict[str, str]:
    """What is refused before the first step."""
    stream = [planted(4, 1, torch.float64)]
    return {
        "heads": _error(sharded(net_of(state), "TP", heads=1), loader(), folder),
        "stream": _error(sharded(net_of(state), "FSDP2"), stream, folder),
        "odd": _error(sharded(net_of(state), "FSDP2"), _odd(rank), folder),
    }


def _odd(rank: int) -> DataLoader[Any]:
    """Samples of which those of the second process have labels that cannot be."""
    columns: Any = planted(8, 1, torch.float64)
    columns["label"][1::2] = 7 if rank == 1 else columns["label"][1::2]
    return DataLoader(StackDataset(**columns), batch_size=4)


def _error(net: Net, samples: Any, folder: Path) -> str:
    try:
        lrptrain.Monitor(net, samples, folder, **grouped({"run_name": "refused", **OPTIONS}))
    except (ValueError, RuntimeError) as error:
        dist.barrier()
        return f"{type(error).__name__}: {error}"
    return ""


def trainer(folder: Path, weights: Path, sharded: bool = False, watched: bool = True) -> dict[str, Any]:
    """An epoch of a Trainer whose model transformers has sharded where it was loaded."""
    from hugging_face import quiet_arguments
    from transformers import LlamaForSequenceClassification, Trainer
    from transformers.distributed import DistributedConfig

    from lrptrain.callbacks import RelevanceMonitorCallback

    given: dict[str, Any] = {"distributed_config": DistributedConfig(fsdp_size=2)} if sharded else {}
    net = LlamaForSequenceClassification.from_pretrained(weights, dtype=torch.float64, **given)
    parts = 2 if sharded else 1
    arguments = quiet_arguments(
        folder / "trainer",
        num_train_epochs=1,
        per_device_train_batch_size=4 // parts,
        per_device_eval_batch_size=3,
        learning_rate=0.01,
        eval_strategy="epoch",
        adam_epsilon=1e-30,  # gradients of a shard have another scale, which else shows where they are small
        max_grad_norm=0,
    )
    monitor = RelevanceMonitorCallback(**grouped({**TEXT_OPTIONS, "run_name": f"trainer-{parts}", "on_error": "raise"}))
    data = {"train_dataset": Texts(8, 0), "eval_dataset": Texts(11, 1), "data_collator": unannotated}
    running: Any = Trainer(net, arguments, callbacks=[monitor] if watched else [], **data)
    running.train()
    return {
        "kind": type(next(running.model.parameters())).__name__,
        "state": whole_state(running.model),
        "scalars": monitor.core.recorder.scalars,
        "ids": [each.sample.sample_id for each in monitor.scored],
        "maps": [each.maps["predicted"] for each in monitor.scored],
        "failures": monitor.failures,
    }


def trainers(rank: int, folder: Path, weights: Path) -> dict[str, Any]:
    """Trainings with and without a monitor."""
    # Accelerate asks for them, and takes the group that is there.
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", LOCAL_WORLD_SIZE="2")
    return {
        "watched": trainer(folder, weights, sharded=True),
        "plain": trainer(folder, weights, sharded=True, watched=False),
    }
