"""What processes do with a monitor and a sharded model, for test_sharded.py; each function is given its rank."""

import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
import torch.distributed as dist
import torch.nn.functional as F
from gloo import whole_state
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.strategies import ModelParallelStrategy
from setting import loader, messages, monitor, trainer
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from lrptrain.relevance.sharding.shards import is_sharded

# The sizes of the data parallel and of the tensor parallel groups.
SHARDED = {"FSDP2 of 2": (2, 1), "TP of 2": (1, 2), "TP 2 x FSDP2 2": (2, 2)}
WIDTH = 8
PLAN = {
    **{name: ColwiseParallel() for name in ("query", "key", "value", "up")},
    **{name: RowwiseParallel() for name in ("out", "down")},
}


def planted(samples: int, seed: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """Images whose class the corner tells as well as the evidence does."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.arange(samples) % 3
    image = torch.randn(samples, 3, 16, 16, generator=generator) * 0.3
    image[torch.arange(samples), label, :4, :4] += 3
    image[torch.arange(samples), label, 8:12, 8:12] += 1
    mask = torch.zeros(samples, 16, 16, dtype=torch.uint8)
    mask[:, 8:12, 8:12] = 1
    return {"image": image.to(dtype), "label": label, "mask": mask}


class Block(nn.Module):
    """A block that can be split over processes: its heads follow from the width of what comes in."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(16, 16)
        self.key = nn.Linear(16, 16)
        self.value = nn.Linear(16, 16)
        self.out = nn.Linear(16, 16)
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)
        self.norm = nn.LayerNorm(16)
        self.heads = -1

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        width = WIDTH if self.heads < 0 else -1
        q, k, v = (
            layer(self.norm(x)).view(batch, tokens, self.heads, width).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, -1))
        return x + self.down(F.gelu(self.up(x)))


class Net(nn.Module):
    """A vision transformer of one block."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.places = nn.Parameter(torch.randn(1, 17, 16) * 0.1)
        self.first = nn.Parameter(torch.zeros(1, 1, 16))
        self.block = Block()
        self.head = nn.Linear(16, 3)

    def forward(self, image: Tensor) -> Tensor:
        tokens = self.patches(image).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.first.expand(len(tokens), -1, -1), tokens], 1) + self.places
        return self.head(self.block(tokens)[:, 0])


def trained_net() -> Net:
    """A net that reads the corner."""
    torch.manual_seed(0)
    net = Net()
    columns = planted(48, 2, torch.float32)
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(net(columns["image"]), columns["label"]).backward()
        optimizer.step()
    return net


class Sharded(pl.LightningModule):
    """A module that shards its net, if it is trained so."""

    def __init__(self, net: Net, rate: float, heads: int = -1, breaks: int = -1) -> None:
        super().__init__()
        self.net = net
        self.rate = rate
        self.heads = heads
        self.breaks = breaks

    def configure_model(self) -> None:
        mesh = self.device_mesh
        if mesh is None or is_sharded(self.net):  # Lightning calls this before each fit and each validation
            return
        if mesh["tensor_parallel"].size() > 1:
            parallelize_module(self.net.block, mesh["tensor_parallel"], PLAN)
            self.net.block.heads = self.heads
        if mesh["data_parallel"].size() > 1:
            fully_shard(self.net.block, mesh=mesh["data_parallel"])
            fully_shard(self.net, mesh=mesh["data_parallel"])

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        broken = not self.training and self.global_rank == self.breaks
        return {**batch, "label": torch.rand(len(batch["label"]), 3)} if broken else batch

    def forward(self, image: Tensor) -> Tensor:
        return self.net(image)

    def training_step(self, batch: Any, index: int) -> Tensor:
        return F.cross_entropy(self(batch["image"]), batch["label"])

    def validation_step(self, batch: Any, index: int) -> None:
        self(batch["image"])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), self.rate, momentum=0.9)


def run(
    folder: Path,
    state: dict[str, Tensor],
    name: str,
    how: str = "",
    dtype: torch.dtype = torch.float64,
    rate: float = 0.1,
    watched: bool = True,
    fails: int = -1,
    **options: Any,
) -> dict[str, Any]:
    """What a fit of one epoch leaves behind; in process `fails` no evaluation can be computed."""
    for seeded in (torch.manual_seed, np.random.seed, random.seed):
        seeded(0)
    net = Net()
    net.load_state_dict(state)
    sanity = options.pop("num_sanity_val_steps", 1)
    module = Sharded(net.to(dtype), rate, **options)
    parts, readers = SHARDED.get(how, (1, 1))
    given = {"max_samples": 10, "max_pictures": 2, "class_maps": 2, "batch_size": 8, "run_name": name}
    watching = monitor(**given)
    runner = trainer(
        folder,
        *([watching] if watched else []),
        max_epochs=1,
        devices=parts * readers,
        num_sanity_val_steps=sanity,
        strategy=ModelParallelStrategy(parts, readers) if how else "auto",
    )
    evaluator = watching.core.explainer.evaluator

    def evaluator_or_error(context: Any, class_maps: int) -> Any:
        if runner.global_rank == fails and not runner.sanity_checking:
            raise RuntimeError("only here")
        return evaluator(context, class_maps)

    watching.core.explainer.evaluator = evaluator_or_error
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train = loader(planted(12, 0, dtype), batch_size=6 // parts)
        runner.fit(module, train, loader(planted(13, 1, dtype), batch_size=6))
    sample = watching.core.reader.sample.samples or []
    return {
        "state": whole_state(module),
        "random": (torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random()),
        "scalars": {key: value.item() for key, value in runner.callback_metrics.items()},
        "findings": [finding.to_dict() for finding in watching.findings],
        "ids": [each.sample.sample_id for each in watching.scored],
        "maps": [each.maps["predicted"] for each in watching.scored],
        "mine": len(sample),
        "failures": watching.failures,
        "told": [str(each.message) for each in caught if "elevance" in str(each.message)],
        "folder": watching.folder is not None,
    }


def watched_and_plain(rank: int, folder: Path, state: dict[str, Tensor], how: str) -> dict[str, Any]:
    """Runs with and without a monitor, and one that does not train, in float32."""
    runs = {
        "watched": run(folder, state, "watched", how),
        "plain": run(folder, state, "plain", how, watched=False),
    }
    if how == "FSDP2 of 2":
        runs["float32"] = run(folder, state, "float32", how, torch.float32, rate=0.0)
    return runs


def that_fail(rank: int, folder: Path, state: dict[str, Tensor]) -> dict[str, Any]:
    """Runs in which something is wrong, in one process or in all."""
    how = "FSDP2 of 2"
    return {
        "failing": run(folder, state, "failing", how, fails=1),
        "unread": run(folder, state, "unread", how, num_sanity_val_steps=0, breaks=1),
        "refused": _error(folder, state, "refused", how, breaks=1),
        "heads": _error(folder, state, "heads", "TP of 2", heads=1),
        "late heads": run(folder, state, "late", "TP of 2", heads=1, num_sanity_val_steps=0),
    }


def _error(*arguments: Any, **options: Any) -> str:
    try:
        run(*arguments, **options)
    except Exception as error:
        dist.barrier()  # both have got here
        return f"{type(error).__name__}: {error}"
    return ""


class Score(pl.Callback):
    """Logs a score of each validation, of which the first is the best."""

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        pl_module.log("score", float(trainer.current_epoch))


def best_checkpoint(rank: int, folder: Path) -> dict[str, Any]:
    """A fit whose best checkpoint is that of the first epoch, and the validation of it that the monitor advises."""
    torch.manual_seed(0)
    checkpoint = ModelCheckpoint(folder / "checkpoints", monitor="score")
    watching = monitor(max_samples=10, max_pictures=0, batch_size=8, on_error="raise")
    runner = trainer(
        folder,
        *(Score(), watching, checkpoint),
        devices=2,
        num_sanity_val_steps=1,
        strategy=ModelParallelStrategy(2, 1),
        enable_checkpointing=True,
    )
    validation = loader(planted(13, 1, torch.float32), batch_size=6)
    module = Sharded(Net(), 0.3)
    with messages() as lines:
        runner.fit(module, loader(planted(12, 0, torch.float32), batch_size=3), validation)
    told = list(lines)
    last = np.stack([each.probabilities for each in watching.scored])
    runner.validate(module, validation, ckpt_path="best")
    return {
        "told": told,
        "path": checkpoint.best_model_path,
        "last": last,
        "best": np.stack([each.probabilities for each in watching.scored]),
        "failures": watching.failures,
    }
