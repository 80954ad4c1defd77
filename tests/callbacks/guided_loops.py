"""The same guided training by Lightning, in loops of one's own, and by the Trainer of transformers."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from guided import RATE, fit, sgd_module, weights
from hugging_face import quiet_arguments
from torch import Tensor, nn
from torch.utils.data import SequentialSampler, StackDataset

import lrptrain
from lrptrain.callbacks import RelevanceGuidance

Options = dict[str, Any]
Trained = tuple[dict[str, Tensor], Any]
"""The weights after a training, and its guidance."""


def batches(columns: dict[str, Tensor], size: int) -> Iterator[dict[str, Tensor]]:
    for start in range(0, len(columns["label"]), size):
        yield {name: x[start : start + size] for name, x in columns.items()}


def by_lightning(
    net: nn.Module, columns: dict, options: Options | None, size: int, accumulate: int, at: Any
) -> Trained:
    module = sgd_module(net)
    guidance = None if options is None else RelevanceGuidance(**options)
    callbacks = [] if guidance is None else [guidance]
    fit(at, module, columns, *callbacks, batch_size=size, accumulate_grad_batches=accumulate)
    return weights(net), guidance


def parallel(net: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    """The network as several processes train it."""
    return (nn.parallel.DistributedDataParallel(net) if dist.is_initialized() else net), optimizer


def a_loop(
    net: nn.Module,
    columns: dict,
    options: Options | None,
    size: int,
    accumulate: int,
    at: Any,
    prepare: Callable[..., Any] = parallel,
    backward: Callable[[Tensor], object] = Tensor.backward,
    in_a_line: bool = False,
) -> Trained:
    """A loop as users write it; what differs under Fabric is handed in."""
    model, optimizer = prepare(net, torch.optim.SGD(net.parameters(), lr=RATE))
    guidance = None if options is None else lrptrain.Guidance(**options, optimizer=optimizer)
    for index, batch in enumerate(batches(columns, size)):
        with nullcontext() if guidance is None or in_a_line else guidance.step(model, batch) as step:
            loss = F.cross_entropy(model(batch["image"]), batch["label"])
            if guidance is not None:
                loss = loss + guidance(model, batch) if step is None else step.guided(loss)
            backward(loss / accumulate)
        if (index + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
    return weights(net), guidance


def by_accelerate(
    net: nn.Module, columns: dict, options: Options | None, size: int, accumulate: int, at: Any
) -> Trained:
    from accelerate import Accelerator
    from accelerate.state import GradientState

    GradientState._reset_state()  # a process has one of them, which knows the accumulation of an earlier run
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
    model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=RATE))
    guidance = None if options is None else lrptrain.Guidance(**options, optimizer=optimizer)
    for batch in batches(columns, size):
        with accelerator.accumulate(model), nullcontext() if guidance is None else guidance.step(model, batch) as step:
            loss = F.cross_entropy(model(batch["image"]), batch["label"])
            accelerator.backward(loss if step is None else step.guided(loss))
            optimizer.step()
            optimizer.zero_grad()
    return weights(net), guidance


def by_fabric(net: nn.Module, columns: dict, options: Options | None, size: int, accumulate: int, at: Any) -> Trained:
    from lightning.fabric import Fabric

    processes = dist.get_world_size() if dist.is_initialized() else 1
    fabric = Fabric(accelerator="cpu", devices=processes, strategy="ddp" if processes > 1 else "auto")
    fabric.launch()
    return a_loop(net, columns, options, size, accumulate, at, fabric.setup, fabric.backward)


class Labelled(nn.Module):
    """A network in the form of transformers: its forward takes labels, and returns the loss, too."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.net(pixel_values)
        loss = {} if labels is None else {"loss": F.cross_entropy(logits, labels)}
        return {**loss, "logits": logits}


def hugging_face_trainer(model: nn.Module, columns: dict, at: Any, **arguments: Any) -> Any:
    """A trainer by plain gradient descent, without shuffling."""
    from transformers import Trainer

    class InOrder(Trainer):
        def _get_train_sampler(self, *arguments: Any) -> SequentialSampler:
            return SequentialSampler(dataset)

    names = {"image": "pixel_values", "label": "labels"}
    dataset: Any = StackDataset(**{names.get(name, name): x for name, x in columns.items()})
    default = {"num_train_epochs": 1, "max_grad_norm": 0.0, "logging_steps": 1, "log_level": "error"}
    settings = quiet_arguments(at, **{**default, **arguments})
    optimizer = torch.optim.SGD([x for x in model.parameters() if x.requires_grad], lr=RATE)
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    return InOrder(model, settings, train_dataset=dataset, eval_dataset=dataset, optimizers=(optimizer, constant))


def by_transformers(
    net: nn.Module, columns: dict, options: Options | None, size: int, accumulate: int, at: Any
) -> Trained:
    settings = {"per_device_train_batch_size": size, "gradient_accumulation_steps": accumulate}
    trainer = hugging_face_trainer(Labelled(net), columns, at, **settings)
    guidance = None if options is None else lrptrain.guide(trainer, **options)
    trainer.train()
    return weights(net), guidance


LOOPS: dict[str, Callable[..., Trained]] = {
    "Lightning": by_lightning,
    "a step": a_loop,
    "a line": partial(a_loop, in_a_line=True),
    "accelerate": by_accelerate,
    "Fabric": by_fabric,
    "transformers": by_transformers,
}
