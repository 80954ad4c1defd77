"""Real processes of a gloo group, and models that are sharded over them."""

import os
import pickle
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from forks import start_fork
from torch import Tensor, nn

SECONDS = 120


def in_processes(work: Callable[..., Any], size: int, folder: Path, *arguments: Any) -> list[Any]:
    """What a function of the rank, and of further arguments, returns in each process of a group."""
    folder.mkdir(exist_ok=True)
    running = [start_fork(_run, work, rank, size, folder, arguments) for rank in range(size)]
    logs = []
    for rank, process in enumerate(running):
        process.join(SECONDS)
        hangs = process.is_alive()
        process.kill()
        log = folder / f"log-{rank}"
        logs += [] if process.exitcode == 0 else [f"process {rank} {'hangs' if hangs else 'fails'}: {log.read_text()}"]
    assert not logs, "\n".join(logs)[-6000:]
    return [pickle.loads((folder / f"result-{rank}").read_bytes()) for rank in range(size)]


def _run(work: Callable[..., Any], rank: int, size: int, folder: Path, arguments: tuple[Any, ...]) -> None:
    with (folder / f"log-{rank}").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))
        torch.set_num_threads(1)
        store = torch.distributed.FileStore(str(folder / "store"), size)
        torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=size)
        try:
            result = work(rank, *arguments)
        except BaseException:
            traceback.print_exc()
            raise
        (folder / f"result-{rank}").write_bytes(pickle.dumps(result))
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
        sys.stdout.flush()


def layers(model: nn.Module) -> Any:
    """The blocks of a transformer."""
    return next(module for module in model.modules() if isinstance(module, (nn.ModuleList, nn.Sequential)))


def fully_sharded(model: nn.Module, size: int, **options: Any) -> Any:
    """A model under FSDP2, block by block."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (size,))
    for block in layers(model):
        fully_shard(block, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def tensor_parallel(bert: nn.Module, tensors: int, replicas: int = 1) -> Any:
    """A BERT of which each layer is split over processes, and, with replicas, sharded over these by FSDP2, too."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (replicas, tensors), mesh_dim_names=("data", "tensor"))
    into = {f"attention.self.{name}": ColwiseParallel() for name in ("query", "key", "value")}
    plan = {
        **into,
        "attention.output.dense": RowwiseParallel(),
        "intermediate.dense": ColwiseParallel(),
        "output.dense": RowwiseParallel(),
    }
    for block in layers(bert):
        parallelize_module(block, mesh["tensor"], plan)
        if replicas > 1:
            fully_shard(block, mesh=mesh["data"])
    return fully_shard(bert, mesh=mesh["data"]) if replicas > 1 else bert


def whole_state(model: nn.Module) -> dict[str, Tensor]:
    """All parameters and their gradients, whole."""
    tensors = {}
    for name, parameter in model.named_parameters():
        tensors[name] = parameter.detach()
        if parameter.grad is not None:
            tensors[f"{name}.grad"] = parameter.grad
    return {name: x.full_tensor() if hasattr(x, "full_tensor") else x.clone() for name, x in tensors.items()}
