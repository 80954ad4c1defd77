"""Small images of two kinds of squares, and a ViT that tells them apart by their colour."""

from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn

SIZE = 16


def squares(samples: int = 12, seed: int = 0) -> dict[str, torch.Tensor]:
    """Red squares (0) and green ones (1) on noise; the evidence is the square."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.arange(samples) % 2
    mask = torch.zeros(samples, SIZE, SIZE, dtype=torch.uint8)
    for row in range(samples):
        top, left = torch.randint(0, SIZE - 8, (2,), generator=generator).tolist()
        mask[row, top : top + 8, left : left + 8] = 1
    image = 0.2 * torch.rand(samples, 3, SIZE, SIZE, generator=generator)
    image[torch.arange(samples), label] += mask * 0.8
    return {"image": image, "label": label, "mask": mask}


def classifier(**options: Any) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"img_size": SIZE, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 2, "num_classes": 2}
    return VisionTransformer(**{**sizes, **options}).eval()


def fitted(steps: int = 60) -> nn.Module:
    """A classifier that has learned the squares."""
    net, given = classifier().train(), squares(48, seed=1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(given["image"]), given["label"]).backward()
        optimizer.step()
    return net.eval()
