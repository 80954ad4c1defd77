"""One of two processes is killed in the middle of an evaluation: the other one must not wait for it."""

import os
import signal
from pathlib import Path
from typing import Any

import timm
import torch
from forks import start_fork
from gloo import SECONDS, _run
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import lrptrain


def work(rank: int, folder: Path) -> None:
    torch.manual_seed(0)
    sizes: Any = {"img_size": 16, "patch_size": 4, "embed_dim": 16, "depth": 1, "num_heads": 2, "num_classes": 2}
    net = timm.models.VisionTransformer(**sizes)
    data = TensorDataset(torch.randn(32, 3, 16, 16), torch.arange(32) % 2)
    model = DistributedDataParallel(net)
    monitor = lrptrain.Monitor(model, DataLoader(data, 8), folder, step=lambda model, batch: model(batch[0]))

    def die(*_: object) -> None:
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    net.register_forward_hook(die)
    # What failed is counted; the group is broken, which the next step of the training says.
    assert monitor.evaluate(0) is None
    assert monitor.failures == 1
    (folder / "went on").touch()
    model(data.tensors[0]).sum().backward()


def test_the_survivor_of_a_killed_process_ends(tmp_path):
    processes = [start_fork(_run, work, rank, 2, tmp_path, (tmp_path,)) for rank in range(2)]
    for process in processes:
        process.join(SECONDS)
    hangs = [process.is_alive() for process in processes]
    for process in processes:
        process.kill()
    assert hangs == [False, False]
    assert processes[1].exitcode == -signal.SIGKILL
    assert (tmp_path / "went on").exists()
    assert "by peer" in (tmp_path / "log-0").read_text(encoding="utf-8").lower()
