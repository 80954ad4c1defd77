"""One guided run, and the same by hand in plain PyTorch."""

from typing import Any

import torch
import torch.nn.functional as F
from setting import data, loader, module, trainer, vit
from torch import Tensor, nn

import lrptrain
from lrptrain.batch.annotations import IGNORED, TokenAnnotation, mask_to_tokens
from lrptrain.callbacks import RelevanceGuidance
from lrptrain.cues.cue import Cue
from lrptrain.cues.sources import random_sources
from lrptrain.cues.surroundings import Surroundings
from lrptrain.guidance import MAP_LOSSES, consistency, guidance_loss

RATE = 0.1
FEW = (1, 4)  # of 6 samples: fewer than half are annotated


def annotated_data(samples: int = 6, rows: tuple[int, ...] | None = None, dtype: torch.dtype = torch.float64) -> dict:
    """Images of which only some have a mask."""
    columns = data(samples)
    columns["image"] = columns["image"].to(dtype)
    if rows is not None:
        columns["mask"][[i for i in range(samples) if i not in rows]] = IGNORED
    columns["sample_id"] = torch.arange(samples)
    return columns


def guidance(loss: Any = "energy", **options: Any) -> RelevanceGuidance:
    return RelevanceGuidance(loss, **{"on_error": "raise", "weight": 1.0, **options})


def sgd_module(net: nn.Module | None = None, package: str = "pytorch_lightning", **attributes: Any) -> Any:
    """The classifier of `setting`, trained by plain gradient descent."""
    pl_module = module(package, net if net is not None else vit().double(), **attributes)
    del type(pl_module).validation_step  # the class is this module's own
    trained = [p for p in pl_module.parameters() if p.requires_grad]
    pl_module.configure_optimizers = lambda: torch.optim.SGD(trained, lr=RATE)
    return pl_module


def fit(folder: Any, pl_module: Any, columns: dict, *callbacks: Any, batch_size: int = 6, **options: Any) -> Any:
    """One epoch without shuffling; the trainer."""
    runner = trainer(folder, *callbacks, **{"max_epochs": 1, **options})
    runner.fit(pl_module, loader(columns, batch_size))
    return runner


def weights(pl_module: nn.Module) -> dict[str, Tensor]:
    return {name: x.detach().clone() for name, x in pl_module.named_parameters()}


def stepped(
    folder: Any, callback: Any, columns: dict, net: nn.Module | None = None, **options: Any
) -> dict[str, Tensor]:
    """The weights after one guided epoch of gradient descent."""
    pl_module = sgd_module(net)
    fit(folder, pl_module, columns, callback, **options)
    return weights(pl_module.net)


def by_hand(columns: dict, net: nn.Module | None = None, weight: float = 0.5, **losses: Any) -> dict[str, Tensor]:
    """The weights after one step on cross-entropy plus `weight` times the losses of `hand_loss`."""
    net = explicit(net if net is not None else vit().double())
    total = F.cross_entropy(net(columns["image"]), columns["label"]) + weight * hand_loss(net, columns, **losses)
    return descended(net, total)


def plain_step(columns: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights after one step of plain PyTorch."""
    net = explicit(vit().double())
    return descended(net, F.cross_entropy(net(columns["image"]), columns["label"]))


def descended(net: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    """The weights after one step of gradient descent."""
    found = torch.autograd.grad(loss, list(net.parameters()), allow_unused=True)
    pairs = zip(net.named_parameters(), found, strict=True)
    return {name: x.detach() - (0 if g is None else RATE * g) for (name, x), g in pairs}


def hand_loss(net: nn.Module, columns: dict, names: str, method: str = "generic_attention", **options: Any) -> Tensor:
    """The sum of losses, by the library's functions."""
    rows = (columns["mask"] != IGNORED).flatten(1).any(1)
    images, label, mask = columns["image"][rows], columns["label"][rows], columns["mask"][rows]
    total = torch.zeros((), dtype=images.dtype)
    for name in names.split("+"):
        if name in MAP_LOSSES:
            found = lrptrain.attribute(net, images, label, method, create_graph=True, **options)
            assert found.grid is not None
            given = mask_to_tokens(mask, found.grid)
            annotation = TokenAnnotation(given.evidence.to(images.dtype), given.valid.to(images.dtype))
            total = total + guidance_loss(found.scores, annotation, name)
        elif name == "rrr":
            x = images.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(net(x).log_softmax(-1).sum(), x, create_graph=True)
            total = total + ((mask == 0)[:, None] * gradient**2).sum() / len(x)
        else:
            generator = torch.Generator().manual_seed(hash((0, 0, 0)) % 2**63)
            swapped = exchanged(columns, generator)["image"]
            judged = (columns["mask"] == 1).flatten(1).any(1)
            total = total + consistency(net(columns["image"]), net(swapped), judged)
    return total


def exchanged(columns: dict, generator: torch.Generator, cue: Cue | None = None) -> dict:
    """Images that each take a cue, or all outside of the annotation, of a random one that is annotated, too."""
    cue = Surroundings() if cue is None else cue
    batch = {name: columns[name] for name in ("image", "mask") if name in columns}
    masks = columns.get("mask", torch.ones(len(columns["image"]), 1))
    sources = random_sources((masks != IGNORED).flatten(1).any(1), generator)
    return {**columns, "image": cue.exchange(batch, {name: x[sources] for name, x in batch.items()})["image"]}


class NanBackward(torch.autograd.Function):
    """Values as they are, whose gradient is nan."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * torch.nan


def explicit(net: Any) -> Any:
    """With attention that has a second derivative."""
    for block in net.blocks:
        block.attn.fused_attn = False
    return net
