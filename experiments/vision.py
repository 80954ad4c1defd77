"""What the vision experiments share: the small ViT, one training loop, augmentation."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import timm
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lrptrain.models.pretrained import timm_classifier

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
"""Of CIFAR-10, RGB in 0..1: the pre-trained model expects images normalised with them."""
Batch = tuple[Tensor, Tensor]


def vit(
    classes: int,
    size: int | tuple[int, int],
    weights: Path | None = None,
    width: int = 128,
    depth: int = 6,
    **options: Any,
) -> nn.Module:
    """A timm ViT with patches of 4 x 4 pixels: the small one, unless `weights` or the caller say another shape.

    Args:
        classes: Rows of the head.
        size: Side, or height and width, of the images in pixels.
        weights: State dict to start from, whose shape the model has; its position embedding is resampled to `size`.
        width: Of the tokens. Heads have 32 numbers each; from 384, the width of a ViT-S, they have 64.
        depth: Number of blocks.
        **options: More of timm's.
    """
    if weights is not None:
        width, depth = _width_and_depth(weights)
    heads = width // (64 if width >= 384 else 32)
    shape = {"patch_size": 4, "embed_dim": width, "depth": depth, "num_heads": heads}
    pretrained = str(weights) if weights is not None else False
    return timm_classifier("vit_tiny_patch16_224", classes, pretrained, img_size=size, **shape, **options)


def _width_and_depth(weights: Path) -> tuple[int, int]:
    state = timm.models.load_state_dict(str(weights))
    return state["cls_token"].shape[-1], len({name.split(".")[1] for name in state if name.startswith("blocks.")})


def fit(
    model: nn.Module,
    draw: Callable[[torch.Generator], Batch],
    steps: int,
    lr: float,
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
    seed: int = 0,
) -> nn.Module:
    """AdamW with a one-cycle schedule, gradient norm 1 and bfloat16 autocast; returns the model in evaluation mode.

    Args:
        model: Trained in place, on the device where it is.
        draw: Makes a batch of images and targets, all that is random from the generator it is given.
        steps: Number of batches.
        lr: Peak learning rate.
        loss: Of logits and targets.
        seed: Of the generator.
    """
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, steps)
    model.train()
    for _ in range(steps):
        images, targets = draw(generator)
        with torch.autocast(device.type, torch.bfloat16):
            value = loss(model(images), targets)
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return model.eval()


def augment(
    images: Float[Tensor, "batch channels height width"], generator: torch.Generator | None, zoom: float = 0.6
) -> Float[Tensor, "batch channels height width"]:
    """A random window of at least `zoom` of the height and as much of the width, mirrored half of the time."""
    device = images.device
    side, x, y, mirror = torch.rand(4, len(images), generator=generator, device=device)
    side = zoom + (1 - zoom) * side
    flip = torch.where(mirror < 0.5, -1.0, 1.0)
    theta = torch.zeros(len(images), 2, 3, device=device)
    theta[:, 0, 0], theta[:, 1, 1] = side * flip, side
    theta[:, 0, 2], theta[:, 1, 2] = (1 - side) * (2 * x - 1), (1 - side) * (2 * y - 1)
    window = F.affine_grid(theta, list(images.shape), align_corners=False)
    return F.grid_sample(images, window, padding_mode="reflection", align_corners=False)


@torch.no_grad()
def logits(model: nn.Module, images: Float[Tensor, "n channels height width"]) -> Float[Tensor, "n classes"]:
    """Of all images, in batches."""
    return torch.cat([model(part) for part in images.split(64)])
